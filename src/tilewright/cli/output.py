"""Reports as JSON: one object on standard output, whose schema is in ``docs/cli.schema.json``."""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import cast


def emit(report: Mapping[str, object]) -> None:
    """Print ``report``. JSON has no infinities and no NaN: they become null."""
    print(json.dumps(_finite(report), allow_nan=False))


def _finite(value: object) -> object:
    match value:
        case float():
            return value if isfinite(value) else None
        case Mapping():
            return {name: _finite(item) for name, item in cast("Mapping[str, object]", value).items()}
        case list() | tuple():
            return [_finite(item) for item in cast("Sequence[object]", value)]
        case _:
            return value
