"""Rules of images for volumes: each window, image and filter gets one more dimension, after its last.

A rule of two spatial dimensions says nothing of three; but nearly all such rules hold there in the same form. Whoever
tests and proves them keeps those that do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tilewright.ops import Attribute
from tilewright.passes.rules.terms import Apply, Rule, Variable, subterms
from tilewright.superopt.generate.rewriting import Attributes, rebuilt
from tilewright.superopt.generate.windows import has_windows
from tilewright.symbolic.expr import Const, Expr, Symbol
from tilewright.symbolic.traversal import substitute

_IMAGE, _PLACES = 4, 2
"""The rank of images and filters, and how many of their dimensions are spatial."""
_CHANNEL = 3
"""The rank of numbers for each channel: ``[c, 1, 1]``."""


def of_volumes(rule: Rule) -> Rule | None:
    """``rule``, of images, for volumes; None if it has none, or concerns one of their dimensions alone."""
    applied = [part for part in subterms((*rule.sources, *rule.targets)) if isinstance(part, Apply)]
    changes = {part: _attributes(part) for part in applied}
    if not has_windows(rule) or any(change is None for change in changes.values()):
        return None
    deeper = rebuilt(
        rule,
        {variable.name: replace(variable, shape=_extents(variable)) for variable in rule.variables},
        {term: change for term, change in changes.items() if change is not None},
    )
    needs = [other for other in map(_another, rule.needs) if other.variables <= deeper.symbols]
    return replace(deeper, name=f"{rule.name}-of-volumes", needs=(*rule.needs, *needs))


def _another(extent: Expr) -> Expr:
    """An extent as the last one, along another dimension."""
    return substitute(extent, {symbol: Symbol(f"{symbol.name}'") for symbol in extent.variables})


def _extents(variable: Variable) -> tuple[Expr, ...]:
    shape = variable.shape
    is_by_channel = len(shape) == _CHANNEL and all(isinstance(extent, Const) for extent in shape[1:])
    return (*shape, _another(shape[-1])) if len(shape) == _IMAGE or is_by_channel else shape


def _attributes(term: Apply) -> Attributes | None:
    """Those of the same operator with one more dimension; None if that is not known."""
    written: list[tuple[str, Attribute]] = []
    for name, value in term.attributes:
        change = _CHANGES.get(name)
        made = value if change is None or not isinstance(value, tuple) else change(_integers(value))
        if made is None:
            return None
        written.append((name, made))
    return Attributes(tuple(written), term.rest)


_Integers = tuple[int | Expr, ...]


def _integers(value: Sequence[object]) -> _Integers:
    return tuple(part for part in value if isinstance(part, int | Expr))


def _last(value: int | Expr) -> int | Expr:
    return _another(value) if isinstance(value, Expr) else value


def _longer(value: _Integers) -> _Integers:
    return (*value, _last(value[-1]))


def _both_sides(value: _Integers) -> _Integers:
    """Padding: of all dimensions before them, then after them."""
    half = len(value) // 2
    return (*_longer(value[:half]), *_longer(value[half:]))


def _order(value: _Integers) -> _Integers | None:
    return (*value, len(value)) if len(value) == _IMAGE else None


def _all_places(value: _Integers) -> _Integers | None:
    """Axes that are all places of an image, or all of a filter but the first; those of channels stay."""
    axes = [axis for axis in value if isinstance(axis, int)]
    if len(axes) >= _PLACES and axes == list(range(-len(axes), 0)):
        return tuple(range(-len(axes) - 1, 0))
    return value if all(0 <= axis < _PLACES for axis in axes) else None


def _column(value: _Integers) -> _Integers | None:
    """A shape of numbers by channel, or of an image or filter; others (of vectors, numbers) stay."""
    return _longer(value) if len(value) in (_CHANNEL, _IMAGE) else value


_CHANGES: Mapping[str, Callable[[_Integers], _Integers | None]] = {
    "strides": _longer,
    "dilations": _longer,
    "kernel_shape": _longer,
    "pads": _both_sides,
    "before": _longer,
    "after": _longer,
    "perm": _order,
    "axes": _all_places,
    "shape": _column,
}
"""What becomes of attributes that are lists; those of other names stay."""
