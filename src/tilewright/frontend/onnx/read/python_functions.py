"""Operators of ONNX models that Python functions compute, between native parts of the model.

def median(x, *, axis=0):
    return np.median(x, axis=axis).astype(np.float32)

def of_median(x, *, axis=0):
    return TensorType(x.dtype, x.shape[:axis] + x.shape[axis + 1 :])

MEDIAN = python_operator("my.domain", "Median", median, of_median)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, cast

from tilewright.base.arrays import Array
from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.onnx.read.rules import Request
from tilewright.graph import Value
from tilewright.ops import Attribute
from tilewright.ops.called import TensorType, called
from tilewright.ops.shapes import static

Attributes: TypeAlias = Mapping[str, Attribute | Array]


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A rule: the node is a call of ``function`` on arrays; ``result`` gives the types of what it returns.

    Both take the node's inputs, None for one that is left out, and its attributes by keyword.
    """

    domain: str
    name: str
    function: Callable[..., object]
    result: Callable[..., TensorType | tuple[TensorType, ...]]

    def __call__(self, request: Request) -> Sequence[Value]:
        """The results. Raises ``UnsupportedModel`` if a size is known only at run time."""
        types = [None if value is None else _type_of(request, value) for value in request.inputs]
        results = self._declared(request, types)
        given = [value for value in request.inputs if value is not None]
        places = [at for at, value in enumerate(request.inputs) if value is not None]
        call = partial(_call, self.function, dict(request.attributes), len(types), places)
        operator = called(f"{self.domain}.{self.name}", call, results)
        arrays = [array for array in map(request.importer.known, given) if array is not None]
        if len(arrays) == len(given):
            return [request.constant(array) for array in operator.on(arrays, request.place)][: request.outputs]
        return request.apply_many(operator, given, request.outputs)

    def _declared(self, request: Request, types: Sequence[TensorType | None]) -> list[TensorType]:
        """The types of the results. Raises ``UnsupportedModel`` if ``result`` gives something else."""
        declared: object = self.result(*types, **request.attributes)
        several = cast("tuple[object, ...]", declared) if isinstance(declared, tuple) else (declared,)
        found = [one for one in several if isinstance(one, TensorType)]
        if len(found) < max(len(several), request.outputs):
            raise request.unsupported(f"the types of its results are {declared}; give {request.outputs} of TensorType")
        return found


def _type_of(request: Request, value: Value) -> TensorType:
    shape = static(value.shape)
    if shape is None or value in request.importer.symbolic:
        raise request.unsupported(f"a Python function computes it, for known sizes only, and there is {value!r}")
    return TensorType(value.dtype, shape)


def _call(
    function: Callable[..., object], attributes: Attributes, count: int, places: Sequence[int], arrays: Sequence[Array]
) -> Sequence[object]:
    inputs: list[Array | None] = [None] * count
    for place, array in zip(places, arrays, strict=True):
        inputs[place] = array
    found = function(*inputs, **attributes)
    return cast("tuple[object, ...]", found) if isinstance(found, tuple) else (found,)


def python_operator(
    domain: str,
    name: str,
    function: Callable[..., object],
    result: Callable[..., TensorType | tuple[TensorType, ...]],
    since: int = 1,
) -> OnnxOperator:
    """The operator ``domain::name``, computed by ``function(*arrays, **attributes)``: an array, or a tuple of them.

    ``result(*types, **attributes)`` gives its type, or a tuple of types, from those of the inputs (``TensorType``: of
    elements, and the shape). ``since``: the first version of the domain that it holds for.

    The function must give equal results for equal inputs, must not write to its inputs, and may be called by several
    threads at once.
    """
    return OnnxOperator(domain, name, PythonFunction(domain, name, function, result), since)
