"""ONNX's types of elements that native code has as codes, one in a byte: integers of 2 and 4 bits, floats of 4 and 8.

Integers are codes of their own value, floats of their own bits. Rules decode what is computed with and encode results
(``rules.narrow_types``); what only moves elements moves codes. Inputs and outputs of a model have the types themselves
(``dtypes.CODED``): their bytes are read anew between native parts (``ops.hosted.VIEW``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from tilewright.base import dtypes
from tilewright.base.arrays import Array, Bytes
from tilewright.base.dtypes import DType


@dataclass(frozen=True, slots=True)
class Narrow:
    """One type: ``code`` is ONNX's number of it, ``held`` the type that its elements have in native code."""

    code: int
    dtype: DType
    held: DType

    @property
    def name(self) -> str:
        """ONNX's name."""
        return onnx.TensorProto.DataType.Name(self.code)

    @property
    def type_name(self) -> str:
        """What ONNX calls tensors of it."""
        return f"tensor({self.name.lower()})"

    @property
    def bits(self) -> int:
        """Of an element in a file."""
        return 4 if self.dtype == dtypes.f4e2m1fn else self.dtype.bits

    def held_of(self, array: Array) -> Array:
        """The codes of an array of the type itself."""
        return array.astype(self.held.numpy) if self.dtype.is_int else array.view(self.held.numpy)

    def unpacked(self, content: Bytes, count: int) -> Array:
        """``count`` codes from the bytes of a file, of which each has the first of its elements in its lowest bits."""
        shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
        codes = ((content[:, None] >> shifts) & np.uint8((1 << self.bits) - 1)).reshape(-1)[:count]
        if not self.dtype.is_signed:
            return codes
        sign = np.uint8(1 << (self.bits - 1))
        return ((codes ^ sign).astype(np.int8) - sign.astype(np.int8)).astype(np.int8)


_HELD: Mapping[DType, DType] = {
    **dict.fromkeys(dtypes.CODED, dtypes.u8),
    **dict.fromkeys((dtypes.i2, dtypes.i4), dtypes.i8),
}
_NAMES: Mapping[str, DType] = {
    "INT2": dtypes.i2,
    "UINT2": dtypes.u2,
    "INT4": dtypes.i4,
    "UINT4": dtypes.u4,
    "FLOAT4E2M1": dtypes.f4e2m1fn,
    "FLOAT8E4M3FN": dtypes.f8e4m3fn,
    "FLOAT8E4M3FNUZ": dtypes.f8e4m3fnuz,
    "FLOAT8E5M2": dtypes.f8e5m2,
    "FLOAT8E5M2FNUZ": dtypes.f8e5m2fnuz,
    "FLOAT8E8M0": dtypes.f8e8m0fnu,
}
NARROW: Mapping[int, Narrow] = {
    code: Narrow(code, _NAMES[name], _HELD[_NAMES[name]])
    for name, code in onnx.TensorProto.DataType.items()
    if name in _NAMES
}
"""By ONNX's number; older releases of onnx do not have all."""
OF_DTYPES: Mapping[DType, Narrow] = {each.dtype: each for each in NARROW.values()}
OF_NUMPY: Mapping[np.dtype[np.generic], Narrow] = {each.dtype.numpy: each for each in NARROW.values()}


def narrow_attribute(node: onnx.NodeProto) -> Narrow | None:
    """The type of the elements of a tensor among the attributes, if it is such a type."""
    return next((NARROW[a.t.data_type] for a in node.attribute if a.t.data_type in NARROW), None)
