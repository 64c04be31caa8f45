from collections.abc import Mapping

class Config:
    def __init__(
        self,
        *,
        connect_timeout: float,
        read_timeout: float,
        max_pool_connections: int,
        retries: Mapping[str, object],
    ) -> None: ...
