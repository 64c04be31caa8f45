"""Operators that read and write at data-dependent positions; sorting, counting and accumulation."""

from collections.abc import Mapping

from tilewright.base.dtypes import f32, i32, i64
from tilewright.frontend.onnx.write.forms.form import Form, FormFunction, Writing
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import Expr


def _one_hot(writing: Writing) -> None:
    # A depth may have any type: ONNX Runtime has kernels for a float with these values, for an integer with others.
    dtype = f32 if writing.value(1).dtype in (f32, i32) else i64
    depth = writing.extent("depth")
    given = writing.vector([depth]) if isinstance(depth, Expr) else writing.scalar(depth, dtype)
    writing.result("OneHot", [writing.input(0), given, writing.input(1)], axis=writing.integer("axis"))


def _place_of_extreme(writing: Writing) -> None:
    options = {name: writing.integer(name) for name in ("axis", "select_last_index")}
    writing.result(writing.node.op.name, [writing.input(0)], keepdims=1, **options)


def _top_k(writing: Writing) -> None:
    options = {name: writing.integer(name) for name in ("axis", "largest")}
    writing.result("TopK", [writing.input(0), writing.vector((writing.extent("k"),))], **options)


def _sum(writing: Writing) -> None:
    options = {name: writing.integer(name) for name in ("exclusive", "reverse")}
    writing.result("CumSum", [writing.input(0), writing.scalar(writing.integer("axis"), i64)], **options)


def _max_unpool(writing: Writing) -> None:
    """With a window of the size that gives the output, moved by 1: only the positions matter."""
    extents, wanted = static(writing.value(0).shape[2:]), writing.ints("spatial") or ()
    if extents is None:
        raise writing.unsupported("its input has run-time extents; give the model's shapes")
    kernel = [after - before + 1 for before, after in zip(extents, wanted, strict=True)]
    if min(kernel) < 1:
        raise writing.unsupported(f"its output {list(wanted)} is smaller than its input {list(extents)}")
    output = writing.ints("output")
    operands = [*writing.inputs, "" if output is None else writing.vector(output)]
    writing.result("MaxUnpool", operands, kernel_shape=kernel)


def _labels(writing: Writing) -> None:
    """For labels that are classes; ONNX can't express that check."""
    writing.result("Identity", [writing.input(0)])


FORMS: Mapping[str, FormFunction] = {
    "ArgMax": _place_of_extreme,
    "ArgMin": _place_of_extreme,
    "CumSum": _sum,
    "Gather": Form("Gather", {"axis": "axis"}),
    "GatherElements": Form("GatherElements", {"axis": "axis"}),
    "GatherND": Form("GatherND", {"batch_dims": "batch_dims"}),
    "Labels": _labels,
    "MaxUnpool": _max_unpool,
    "OneHot": _one_hot,
    "ScatterElements": Form("ScatterElements", {"axis": "axis", "reduction": "reduction"}),
    "ScatterND": Form("ScatterND", {"reduction": "reduction"}),
    "TopK": _top_k,
}
