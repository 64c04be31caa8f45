"""Pooling."""

from collections.abc import Mapping

from tilewright.frontend.onnx.write.forms.form import FormFunction, Writing
from tilewright.frontend.onnx.write.forms.windows import slid
from tilewright.frontend.onnx.write.forms.writer import OnnxAttribute
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import const


def _pooling(operator: str, **options: str) -> FormFunction:
    """``options``: attributes of ONNX's operator besides those of the window, by our names."""

    def form(writing: Writing) -> None:
        kernel = writing.ints("kernel_shape") or ()
        window = slid(writing, tuple(map(const, kernel)), None)
        numbers = {theirs: writing.integer(ours) for theirs, ours in options.items()}
        attributes = {**window.attributes, "ceil_mode": writing.integer("ceil_mode"), **_trimmed(writing, kernel)}
        writing.result(operator, [window.data], kernel_shape=kernel, **attributes, **numbers)

    return form


def _trimmed(writing: Writing, kernel: tuple[int, ...]) -> dict[str, OnnxAttribute]:
    """Pads in place of ``ceil_mode`` if that would give windows of padding only, which older opsets keep."""
    extents, counts = static(writing.value(0).shape[2:]), static(writing.output.shape[2:])
    if not writing.integer("ceil_mode") or extents is None or counts is None:
        return {}
    ones, rank = (1,) * len(kernel), len(kernel)
    strides, dilations = writing.ints("strides") or ones, writing.ints("dilations") or ones
    pads = writing.ints("pads") or (0,) * (2 * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    rooms = [e + b + a - r for e, b, a, r in zip(extents, pads[:rank], pads[rank:], reach, strict=True)]
    if all(-(-room // s) + 1 == count for room, s, count in zip(rooms, strides, counts, strict=True)):
        return {}
    ends = [
        max((count - 1) * s + r - e - b, 0)
        for count, s, r, e, b in zip(counts, strides, reach, extents, pads[:rank], strict=True)
    ]
    if any(end > given for end, given in zip(ends, pads[rank:], strict=True)):
        raise writing.unsupported("some of its windows go beyond the padding, others start there; use larger pads")
    return {"ceil_mode": 0, "pads": (*pads[:rank], *ends)}


FORMS: Mapping[str, FormFunction] = {
    "AveragePool": _pooling("AveragePool", count_include_pad="count_include_pad"),
    "LpPool": _pooling("LpPool", p="p"),
    "MaxPool": _pooling("MaxPool"),
    "MaxPoolWithIndices": _pooling("MaxPool", storage_order="column_major"),
}
