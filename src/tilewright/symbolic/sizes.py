"""How large an array may be: its bytes, and so all offsets into it, are counted in 63 bits."""

from collections.abc import Sequence

from tilewright.base.dtypes import DType
from tilewright.base.errors import ResourceLimit
from tilewright.symbolic.expr import Const, Expr

MAX_BYTES = (1 << 63) - 1


def check_size(name: str, dtype: DType, shape: Sequence[Expr]) -> None:
    """Raise ``ResourceLimit`` for an array of more than ``MAX_BYTES``; what is known at run time only counts as 1."""
    count = 1
    for extent in shape:
        if isinstance(extent, Const):
            count *= max(int(extent.value), 1)
    if count * dtype.itemsize > MAX_BYTES:
        text = ", ".join(map(str, shape))
        raise ResourceLimit(
            f"{name}: {dtype}[{text}] has {count} elements of {dtype.itemsize} bytes; an array has {MAX_BYTES} at most"
        )
