"""Extents that must be equal: what they are computed from does not prove it, but no other input fits the model.

On its way up, a U-Net joins an image of height ``h // 4 * 2`` with one of ``h // 2``, which is right where ``h`` is a
multiple of 4, as the model asks for. Then the extents are declared to be equal (operator ``Declared``), and the runtime
refuses other inputs. So it is of extents that are known only when a part of the model has run (``passes.parts``):
nothing is known of them but what they must be equal to.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, product

from tilewright.frontend.onnx.read.rules.rule import Importer
from tilewright.graph import Value
from tilewright.ops.shapes import Shape, element_count, same_extent, simplified
from tilewright.symbolic.expr import ONE, Const, Expr, Extent, as_expr


def joined(importer: Importer, values: Sequence[Value], axis: int, place: str) -> list[Value]:
    """``values`` with equal extents but along ``axis``, along which they are joined. ONNX demands that they are."""
    if not _may_align(importer):
        return [*values]
    if len({len(value.shape) for value in values}) != 1 or not -len(values[0].shape) <= axis < len(values[0].shape):
        return [*values]
    at = axis % len(values[0].shape)
    common = [_common(importer, extents) for extents in zip(*(value.shape for value in values), strict=True)]
    common[at] = None
    return [declared(importer, value, _replaced(value.shape, common), place) for value in values]


def broadcast(importer: Importer, values: Sequence[Value | None], place: str) -> list[Value | None]:
    """``values`` with equal extents where these are computed from the same dimensions, and none is 1.

    Where one is computed from others, it may be 1 and be broadcast. One that is known only when a part of the model has
    run is taken not to be.
    """
    if not _may_align(importer):
        return [*values]
    rank = max((len(value.shape) for value in values if value is not None), default=0)
    shapes = [(ONE,) * (rank - len(value.shape)) + value.shape for value in values if value is not None]
    common = [
        _simplest([e for e in extents if e != ONE]) if _are_alike(importer, extents) else None
        for extents in zip(*shapes, strict=True)
    ]
    aligned: list[Value | None] = []
    for value in values:
        if value is None:
            aligned.append(None)
            continue
        own = [None if e == ONE else w for e, w in zip(value.shape, common[rank - len(value.shape) :], strict=True)]
        aligned.append(declared(importer, value, _replaced(value.shape, own), place))
    return aligned


def _replaced(shape: Shape, wanted: Sequence[Expr | None]) -> Shape:
    return tuple(own if other is None else other for own, other in zip(shape, wanted, strict=True))


def _may_align(importer: Importer) -> bool:
    return importer.symbolic.assumed.aligned or importer.symbolic.has_late


def _common(importer: Importer, extents: Sequence[Expr]) -> Expr | None:
    """What ``extents`` are declared to be, which must be equal."""
    is_late = any(map(importer.symbolic.is_late, extents))
    return _simplest(extents) if importer.symbolic.assumed.aligned or is_late else None


def in_parts(importer: Importer, value: Value, target: Sequence[int | Expr], place: str) -> Value:
    """``value``, before it gets the shape ``target``, with whole multiples of numbers there as extents.

    Where ``h`` becomes ``h // 2, 2``, it must be a multiple of 2, or the numbers of elements would differ.
    """
    if not importer.symbolic.assumed.aligned or any(extent in (-1, 0) for extent in target):
        return value
    made = element_count(tuple(map(as_expr, target)))
    shapes = (value.shape, *_whole_multiples(value.shape, target))
    fitting = next((shape for shape in shapes if same_extent(element_count(shape), made)), value.shape)
    return declared(importer, value, fitting, place)


_MOST_SHAPES = 128
"""Maximum shapes that are tried for a Reshape."""


def _whole_multiples(shape: Shape, target: Sequence[int | Expr]) -> Iterator[Shape]:
    """Shapes in which extents known at run time only are rounded to multiples of numbers in ``target``.

    All down, or all up, so that only extents that are multiples make the same number of elements.
    """
    factors = sorted({extent for extent in target if isinstance(extent, int) and extent > 1})
    for up in (False, True):
        choices = [(e, *(() if isinstance(e, Const) else (_multiple(e, k, up) for k in factors))) for e in shape]
        yield from islice(product(*choices), _MOST_SHAPES)


def _multiple(extent: Expr, factor: int, up: bool) -> Expr:
    return simplified((extent + (factor - 1 if up else 0)) // factor * factor)


def _simplest(extents: Sequence[Expr]) -> Expr:
    """A number if there is one, a dimension of an input, or the shortest."""
    return min(extents, key=lambda e: (not isinstance(e, Const), not isinstance(e, Extent), len(str(e))))


def _are_alike(importer: Importer, extents: Sequence[Expr]) -> bool:
    found = [extent for extent in extents if extent != ONE]
    if any(map(importer.symbolic.is_late, found)):
        return True
    if not importer.symbolic.assumed.aligned:
        return False
    return len({extent.variables for extent in found}) == 1 and not any(isinstance(extent, Const) for extent in found)


def declared(importer: Importer, value: Value, shape: Shape, place: str) -> Value:
    """``value`` with these extents, which the runtime demands where it must; itself if they always differ."""
    differing = [(own, wanted) for own, wanted in zip(value.shape, shape, strict=True) if not same_extent(own, wanted)]
    if not differing or any(importer.symbolic.differ(own, wanted) for own, wanted in differing):
        return value
    for own, wanted in differing:
        importer.symbolic.equate(own, wanted)
    return importer.add("Declared", [value], {"shape": shape}, 1, place)[0]
