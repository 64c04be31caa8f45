"""Padding: adds elements around a tensor, or crops its edges."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from tilewright.base.errors import BadProgram
from tilewright.ops.batches import all_but
from tilewright.ops.build import Index, choice, tensor
from tilewright.ops.operator import Attributes, Batch, FusionKind, Trait, operator
from tilewright.ops.shapes import nearest_index, show, simplified
from tilewright.symbolic.expr import ZERO, Const, Expr, Var, const, maximum, minimum, select
from tilewright.symbolic.traversal import all_of, vars_in
from tilewright.tensor.ir import Tensor


class Mode(Enum):
    """Padding modes."""

    CONSTANT = "constant"
    """A value, or 0."""
    EDGE = "edge"
    """The nearest element."""
    REFLECT = "reflect"
    """Reflection about the first and the last element."""
    WRAP = "wrap"
    """Periodic repetition."""


def _mirrored(position: Expr, extent: Expr) -> Expr:
    """Repeated reflection about the first and the last element."""
    period = maximum(2 * (extent - 1), const(1))
    offset = position % period
    return minimum(offset, period - offset)


def _repeated(position: Expr, extent: Expr) -> Expr:
    return position % extent


_SOURCES: Mapping[Mode, Callable[[Expr, Expr], Expr]] = {
    Mode.EDGE: nearest_index,
    Mode.REFLECT: _mirrored,
    Mode.WRAP: _repeated,
}


def _padded(attributes: Attributes, shapes: Sequence[tuple[int, ...]]) -> Batch | None:
    match attributes, shapes:
        case {"before": (*before,), "after": (*after,)}, (x,) if len(before) == len(after) == len(x):
            padded = (at for at in range(len(x)) if (before[at], after[at]) != (0, 0))
            return Batch(all_but(tuple(padded), len(x)), attributes, keeps=True)
        case _:
            return None


@operator("Pad", FusionKind.INJECTIVE, Trait.RELOCATES, batched=_padded)
def pad(
    x: Tensor,
    value: Tensor | None = None,
    *,
    before: Sequence[int | Expr],
    after: Sequence[int | Expr],
    mode: str = "constant",
) -> Tensor:
    """``before`` and ``after`` elements added to each dimension; negative numbers first crop, and no
    expression is negative.

    ``mode``: a value of ``Mode``: pad with ``value`` (or 0), or with elements of the cropped tensor.
    """
    if len(before) != x.ndim or len(after) != x.ndim:
        raise BadProgram(f"Pad of {x}: {len(before)} and {len(after)} pads for {x.ndim} dimensions")
    kind = choice(Mode, mode, "Pad: the mode")
    cores = [simplified(e + _cropped(b) + _cropped(a)) for e, b, a in zip(x.shape, before, after, strict=True)]
    _check_cores(x, cores, before, after, kind)
    shape = tuple(simplified(e + b + a) for e, b, a in zip(x.shape, before, after, strict=True))
    if kind is Mode.CONSTANT:
        return _with_constant(x, value, before, after, shape)
    return _with_own_elements(x, before, after, shape, cores, _SOURCES[kind])


def _cropped(pad: int | Expr) -> int:
    """The elements taken off, as a negative number."""
    return min(pad, 0) if isinstance(pad, int) else 0


def _adds(pad: int | Expr) -> bool:
    """Whether elements may be added."""
    return not isinstance(pad, int) or pad > 0


def _dims(before: Sequence[int | Expr]) -> frozenset[Var]:
    return vars_in(pad for pad in before if isinstance(pad, Expr))


def _check_cores(
    x: Tensor, cores: Sequence[Expr], before: Sequence[int | Expr], after: Sequence[int | Expr], mode: Mode
) -> None:
    for axis, core in enumerate(cores):
        if isinstance(core, Const) and core.value < 0:
            raise BadProgram(
                f"Pad takes {-_cropped(before[axis]) - _cropped(after[axis])} elements off axis {axis} of {x}"
            )
        if core == ZERO and mode is not Mode.CONSTANT and (_adds(before[axis]) or _adds(after[axis])):
            raise BadProgram(f"Pad ({mode.value}) repeats elements of axis {axis}, which has none: {show(x.shape)}")


def _with_constant(
    x: Tensor, value: Tensor | None, before: Sequence[int | Expr], after: Sequence[int | Expr], shape: Sequence[Expr]
) -> Tensor:
    if value is not None and (value.dtype != x.dtype or any(extent != const(1) for extent in value.shape)):
        raise BadProgram(f"Pad of {x}: the value {value} is no scalar of its dtype")
    around: Expr = const(0, x.dtype) if value is None else value[(ZERO,) * value.ndim]

    def body(index: Index) -> Expr:
        position = [i - b for i, b in zip(index, before, strict=True)]
        low = [p >= ZERO for p, b in zip(position, before, strict=True) if _adds(b)]
        high = [p < e for p, e, a in zip(position, x.shape, after, strict=True) if _adds(a)]
        return select(all_of(*low, *high), x[tuple(position)], around)

    return tensor(tuple(shape), body, dims=_dims(before))


def _with_own_elements(
    x: Tensor,
    before: Sequence[int | Expr],
    after: Sequence[int | Expr],
    shape: Sequence[Expr],
    cores: Sequence[Expr],
    source: Callable[[Expr, Expr], Expr],
) -> Tensor:
    padded = [_adds(b) or _adds(a) for b, a in zip(before, after, strict=True)]
    # A run-time extent may be 0: then there is nothing to repeat.
    inhabited = all_of(
        *(core > ZERO for core, p in zip(cores, padded, strict=True) if p and not isinstance(core, Const))
    )

    def body(index: Index) -> Expr:
        position = [
            source(i - b + _cropped(b), core) - _cropped(b) if p else i - b
            for i, b, core, p in zip(index, before, cores, padded, strict=True)
        ]
        return select(inhabited, x[tuple(position)], const(0, x.dtype))

    return tensor(tuple(shape), body, dims=_dims(before))
