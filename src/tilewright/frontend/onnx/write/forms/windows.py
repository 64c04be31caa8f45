"""The attributes of windows, with ``pads`` in a form valid in ONNX."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.frontend.onnx.write.forms.form import Writing
from tilewright.frontend.onnx.write.forms.writer import OnnxAttribute
from tilewright.ops.shapes import Shape, same_extent
from tilewright.ops.windows import same_pads
from tilewright.symbolic.expr import Expr, as_expr


@dataclass(frozen=True, slots=True)
class Slid:
    """The data that a window slides over, and its attributes."""

    data: str
    attributes: dict[str, OnnxAttribute | None]


def slid(writing: Writing, kernel: Shape, around: str | None) -> Slid:
    """The node's window in ONNX, where pads are non-negative numbers, or derived from ``auto_pad``.

    Other pads become a Pad node with the value ``around`` (``""``: zero). Raises ``UnsupportedModel`` if that is None.
    """
    strides, dilations, pads = writing.ints("strides"), writing.ints("dilations"), writing.extents("pads")
    apart = None if dilations is None or max(dilations) == 1 else dilations  # missing in old pooling
    moves: dict[str, OnnxAttribute | None] = {"strides": strides, "dilations": apart}
    data = writing.input(0)
    known = [pad for pad in pads or () if isinstance(pad, int) and pad >= 0]
    if len(known) == len(pads or ()):
        return Slid(data, {**moves, "pads": known or None})
    mode = _mode(writing, kernel, strides, dilations, pads or ())
    if mode is not None:
        return Slid(data, {**moves, "auto_pad": mode})
    if around is None:
        raise writing.unsupported("its pads are negative, or depend on run-time extents; give the model's shapes")
    return Slid(_padded(writing, pads or (), around), moves)


def _mode(
    writing: Writing,
    kernel: Shape,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int | Expr],
) -> str | None:
    """The ``auto_pad`` with these pads, if there is one."""
    spatial = writing.value(0).shape[2:]
    ones = (1,) * len(spatial)
    for upper in (True, False):
        made = same_pads(spatial, kernel, strides or ones, dilations or ones, upper)
        if all(same_extent(as_expr(a), as_expr(b)) for a, b in zip(made, pads, strict=True)):
            return "SAME_UPPER" if upper else "SAME_LOWER"
    return None


def _padded(writing: Writing, pads: Sequence[int | Expr], around: str) -> str:
    rank = len(pads) // 2
    whole = writing.vector((0, 0, *pads[:rank], 0, 0, *pads[rank:]))
    return writing.apply("Pad", [writing.input(0), whole, around])
