"""Remedies for messages: the keyword of ``compile`` that helps, as it would be written."""

import json
from collections.abc import Iterable, Mapping, Sequence

from tilewright.base.names import readable

_SHOWN = 4
"""Maximum inputs or dimensions in an example."""
_FIRST, _OTHER = 1, 128
"""Sizes in an example: of a first dimension, mostly a batch, and of others."""


def by_shapes(inputs: Mapping[str, Sequence[int | str]]) -> str:
    """``shapes={"ids": (1, 128)}`` for those inputs that have open dimensions (a str is the name of one)."""
    opened = {name: shape for name, shape in inputs.items() if any(isinstance(extent, str) for extent in shape)}
    if not opened:
        return "shapes="
    items = [f"{json.dumps(readable(name))}: {_example(opened[name])}" for name in list(opened)[:_SHOWN]]
    return f"shapes={{{', '.join([*items, *(['...'] if len(opened) > _SHOWN else [])])}}}"


def _example(shape: Sequence[int | str]) -> str:
    sizes = [extent if isinstance(extent, int) else _OTHER if axis else _FIRST for axis, extent in enumerate(shape)]
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def by_bounds(names: Iterable[str], most: int = 512) -> str:
    """``bounds={"sequence": 512}`` for open dimensions with these names."""
    listed = list(dict.fromkeys(names))
    items = [f"{json.dumps(readable(name))}: {most}" for name in listed[:_SHOWN]]
    return f"bounds={{{', '.join([*items, *(['...'] if len(listed) > _SHOWN else [])])}}}"
