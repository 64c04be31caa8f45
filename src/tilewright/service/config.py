"""What a worker is told when it is started. Imports no compiler, as the process that starts workers needs none."""

import json
from dataclasses import asdict, dataclass, field

from tilewright.base import fields
from tilewright.service.limits import Limits


@dataclass(frozen=True, slots=True)
class Config:
    """What a worker must know. ``parent``: the process that it ends with; ``store``: a bucket; None: ``folder``."""

    parent: int
    database: str
    folder: str
    name: str = ""
    store: str | None = None
    limits: Limits = field(default_factory=Limits)

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> "Config":
        """The configuration that ``text`` wrote."""
        plain = fields.mapping(json.loads(text))
        limits = Limits.read(fields.mapping(plain["limits"]))
        name, database, folder = (fields.text(plain[key]) for key in ("name", "database", "folder"))
        store = None if plain["store"] is None else fields.text(plain["store"])
        return Config(fields.whole(plain["parent"]), database, folder, name, store, limits)
