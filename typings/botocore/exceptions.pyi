from collections.abc import Mapping

class BotoCoreError(Exception): ...

class ClientError(Exception):
    response: Mapping[str, Mapping[str, str]]
