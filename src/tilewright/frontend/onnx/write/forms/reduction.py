"""Reductions over axes."""

from collections.abc import Mapping

from tilewright.frontend.onnx.read.rules.reduction import RULES
from tilewright.frontend.onnx.write.forms.form import Form, FormFunction, Writing
from tilewright.ops.shapes import normalize_axes

_IMAGE_RANK = 4
"""Rank of data from which on a mean over all spatial dimensions is pooling: runtimes keep its input in their own
layout."""


def _pooling(reduction: str, pooling: str) -> FormFunction:
    """What reduces all of an image is pooling in ONNX."""
    plain = Form.inverse(reduction, RULES[reduction])

    def form(writing: Writing) -> None:
        data, axes = writing.value(0), writing.ints("axes") or ()
        rank = len(data.shape)
        is_image = rank >= _IMAGE_RANK and data.dtype.is_float and bool(writing.integer("keepdims"))
        if is_image and normalize_axes(axes, rank) == tuple(range(2, rank)):
            writing.result(pooling, [data.name])
        else:
            plain(writing)

    return form


def _norm(writing: Writing) -> None:
    """The ``p``-norm: ONNX has those for p = 1 and 2."""
    data, p = writing.value(0), writing.integer("p")
    options = {"keepdims": writing.integer("keepdims")}
    axes = writing.vector(normalize_axes(writing.ints("axes"), len(data.shape)))
    if p <= 2:
        writing.result(f"ReduceL{p}", [data.name, axes], **options)
        return
    powers = writing.apply("Pow", [writing.apply("Abs", [data.name]), writing.scalar(p, data.dtype)])
    total = writing.apply("ReduceSum", [powers, axes], **options)
    writing.result("Pow", [total, writing.scalar(1.0 / p, data.dtype)])


FORMS: Mapping[str, FormFunction] = {
    "ReduceLp": _norm,
    "ReduceMax": _pooling("ReduceMax", "GlobalMaxPool"),
    "ReduceMean": _pooling("ReduceMean", "GlobalAveragePool"),
}
