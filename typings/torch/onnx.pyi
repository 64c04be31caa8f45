from typing import Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from torch.export import ExportedProgram

class _Constant(Protocol):
    def numpy(self) -> NDArray[np.generic]: ...

class _Value(Protocol):
    const_value: _Constant | None

class _Graph(Protocol):
    initializers: dict[str, _Value]

class _Model(Protocol):
    graph: _Graph

class ONNXProgram:
    model: _Model
    exported_program: ExportedProgram
    @property
    def model_proto(self) -> onnx.ModelProto: ...

def export(
    model: ExportedProgram, *, dynamo: bool, verbose: bool | None = None, dynamic_shapes: object = None
) -> ONNXProgram: ...
