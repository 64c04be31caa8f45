"""Arrays in memory: how large one may be, and the number of an element.

Bytes, and so all offsets, are counted in 63 bits.
"""

from collections.abc import Sequence

from tilewright.base.dtypes import DType
from tilewright.base.errors import ResourceLimit
from tilewright.symbolic.expr import ZERO, Const, Expr

MAX_BYTES = (1 << 63) - 1


def check_size(name: str, dtype: DType, shape: Sequence[Expr]) -> None:
    """Raise ``ResourceLimit`` for an array of more than ``MAX_BYTES``; extents known only at run time count as 1."""
    count = 1
    for extent in shape:
        if isinstance(extent, Const):
            count *= max(int(extent.value), 1)
    if count * dtype.itemsize > MAX_BYTES:
        text = ", ".join(map(str, shape))
        raise ResourceLimit(
            f"{name}: {dtype}[{text}] has {count} elements of {dtype.itemsize} bytes; an array has {MAX_BYTES} at most"
        )


def flat_index(place: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
    """The row-major number of the element at ``place``."""
    flat: Expr = ZERO
    for index, extent in zip(place, extents, strict=True):
        flat = flat * extent + index
    return flat
