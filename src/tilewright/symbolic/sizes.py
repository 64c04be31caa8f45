"""How large an array may be: its bytes, and so all offsets into it, are counted in 63 bits."""

from collections.abc import Sequence

from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.symbolic.expr import Const, Expr

MAX_BYTES = (1 << 63) - 1


def check_size(name: str, dtype: DType, shape: Sequence[Expr]) -> None:
    """Raise ``BadProgram`` for an array of more than ``MAX_BYTES``; what is known at run time only counts as 1."""
    size = dtype.itemsize
    for extent in shape:
        if isinstance(extent, Const):
            size *= max(int(extent.value), 1)
    if size > MAX_BYTES:
        text = ", ".join(map(str, shape))
        raise BadProgram(f"{name}: {dtype}[{text}] has {size} bytes; an array has {MAX_BYTES} at most")
