"""Tensor data in arrays of this process, beside a model instead of in it: weights of other libraries, not copied."""

import hashlib
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.base import dtypes
from tilewright.base.arrays import Array, Bytes
from tilewright.base.errors import InvalidModel, UnsupportedDType
from tilewright.base.memory import Budget
from tilewright.base.names import readable
from tilewright.frontend.onnx.read.external_data import all_tensors, byte_count, location_of


class ArrayData:
    """The arrays of external tensors, by location. Like ``ExternalData``, but none of them is a file."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        """Only arrays that are not C-contiguous are copied. They must not be written to while a model is compiled."""
        self._bytes = {location: _bytes_of(array) for location, array in arrays.items()}

    def check(self, model: onnx.ModelProto, budget: Budget) -> None:
        """Check all references of ``model``'s tensors, and count their bytes. Raises ``InvalidModel``,
        ``ResourceLimit``."""
        counted = set[str]()
        for tensor in all_tensors(model):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                place = f"tensor {readable(tensor.name)}"
                size = self.read(tensor, place).size
                location = location_of(tensor, place)
                if location not in counted:
                    counted.add(location)
                    budget.take(size, place)

    def read(self, tensor: onnx.TensorProto, place: str) -> Bytes:
        """The bytes of a tensor; read-only. Raises ``InvalidModel`` if there are none, or another number."""
        found = self._bytes.get(location_of(tensor, place))
        if found is None or found.size != byte_count(tensor, place):
            raise InvalidModel(f"{place}: the arrays that were given beside the model do not have its elements")
        return found

    def sha256(self) -> dict[str, str]:
        """The SHA-256 of each array's bytes, in hexadecimal digits."""
        return {location: hashlib.sha256(content.data).hexdigest() for location, content in self._bytes.items()}

    def inside(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """A copy of ``model`` with all bytes in it."""
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
        for tensor in all_tensors(whole):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                tensor.raw_data = self.read(tensor, f"tensor {readable(tensor.name)}").tobytes()
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
        return whole


def constant(name: str, array: Array) -> onnx.TensorProto:
    """A constant of a model whose bytes are in an ``ArrayData`` at the location ``name``.

    Types that have no counterpart here are stored in the tensor itself.
    """
    try:
        dtypes.from_numpy(array.dtype)
    except UnsupportedDType:
        return numpy_helper.from_array(array, name)
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_location=onnx.TensorProto.EXTERNAL)
    tensor.data_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor.external_data.add(key="location", value=name)
    return tensor


def _bytes_of(array: Array) -> Bytes:
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    content.flags.writeable = False
    return content
