"""Operators that generate tensors from numbers and extents."""

from collections.abc import Mapping

from tilewright.base.dtypes import boolean, index
from tilewright.frontend.onnx.write.forms.form import FormFunction, Writing
from tilewright.symbolic.expr import as_expr


def _range(writing: Writing) -> None:
    """ONNX has a limit in place of a count; for floats it is half a step before the next element."""
    start, delta = (writing.as_scalar(writing.value(position)) for position in range(2))
    dtype = writing.output.dtype
    extent = writing.apply("Reshape", [writing.vector(writing.output.shape), writing.vector(())])
    steps = writing.cast(extent, index, dtype)
    if dtype.is_float:
        steps = writing.apply("Sub", [steps, writing.scalar(0.5, dtype)])
    limit = writing.apply("Add", [start, writing.apply("Mul", [delta, steps])])
    writing.result("Range", [start, limit, delta])


def _elements(writing: Writing) -> None:
    """Numbers that depend on run-time extents."""
    values, dtype = writing.attributes["values"], writing.output.dtype
    assert isinstance(values, tuple), "values of Elements is a list"
    own = boolean if dtype.is_bool else index
    parts = [writing.writer.element(as_expr(v, own)) for v in values if not isinstance(v, float | str)]
    flat = parts[0] if len(parts) == 1 else writing.apply("Concat", parts, axis=0)
    shaped = writing.apply("Reshape", [flat, writing.vector(writing.output.shape)])
    writing.result("Identity", [writing.cast(shaped, own, dtype)])


FORMS: Mapping[str, FormFunction] = {
    "Elements": _elements,
    "Range": _range,
}
