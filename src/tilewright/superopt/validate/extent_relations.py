"""What operators ask of extents, and which attributes name extents.

Extents are replaced by value: ``sizes[n]`` stands for ``n`` wherever it is an extent, or a place along a dimension.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from tilewright.ops import Attribute
from tilewright.superopt.validate.congruence import Attributes

Shape: TypeAlias = tuple[int, ...]
Sizes: TypeAlias = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Sum:
    """``total`` is the sum of ``parts``."""

    total: int
    parts: tuple[int, ...]

    @property
    def extents(self) -> frozenset[int]:
        return frozenset((self.total, *self.parts))

    def holds(self, sizes: Sizes) -> bool:
        """Whether it does for ``sizes``, which know all of ``extents``."""
        return sizes[self.total] == sum(sizes[part] for part in self.parts)

    def follows(self, extent: int, sizes: Sizes) -> int | None:
        """The only number that ``extent`` can be if ``sizes`` know all others; None: there is none, or not one."""
        known = sum(sizes[part] for part in self.parts if part != extent)
        if extent == self.total:
            return None if extent in self.parts else known
        return (sizes[self.total] - known) // self.parts.count(extent)


@dataclass(frozen=True, slots=True)
class Product:
    """The product of ``left`` is that of ``right``."""

    left: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def extents(self) -> frozenset[int]:
        return frozenset((*self.left, *self.right))

    def holds(self, sizes: Sizes) -> bool:
        """Whether it does for ``sizes``, which know all of ``extents``."""
        return prod(sizes[extent] for extent in self.left) == prod(sizes[extent] for extent in self.right)

    def follows(self, extent: int, sizes: Sizes) -> int | None:
        """The only number that ``extent`` can be if ``sizes`` know all others; None: there is none, or not one."""
        for own, other in ((self.left, self.right), (self.right, self.left)):
            if own.count(extent) == 1 and extent not in other:
                divisor = prod(sizes[factor] for factor in own if factor != extent)
                return prod(sizes[factor] for factor in other) // divisor if divisor else None
        return None


@dataclass(frozen=True, slots=True)
class Kept:
    """``extent`` stays what it is."""

    extent: int

    @property
    def extents(self) -> frozenset[int]:
        return frozenset((self.extent,))

    def holds(self, sizes: Sizes) -> bool:
        """Whether it does for ``sizes``, which know all of ``extents``."""
        return sizes[self.extent] == self.extent

    def follows(self, extent: int, sizes: Sizes) -> int | None:
        """The only number that ``extent`` can be."""
        return extent


@dataclass(frozen=True, slots=True)
class Windows:
    """So many windows (``result``) as fit into ``source``; ``reach``: elements under one, ``padding``: at both ends."""

    source: int
    result: int
    reach: int
    stride: int
    padding: int

    @property
    def extents(self) -> frozenset[int]:
        return frozenset((self.source, self.result))

    def holds(self, sizes: Sizes) -> bool:
        """Whether it does for ``sizes``, which know all of ``extents``."""
        room = sizes[self.source] + self.padding - self.reach
        return room >= 0 and sizes[self.result] == room // self.stride + 1

    def follows(self, extent: int, sizes: Sizes) -> int | None:
        """The only number that the result can be if ``sizes`` know the source; None: there are several, or none."""
        if extent == self.source:
            return None
        return max(0, (sizes[self.source] + self.padding - self.reach) // self.stride + 1)


Relation: TypeAlias = Sum | Product | Kept | Windows


@dataclass(frozen=True, slots=True)
class Use:
    """How a step uses extents: those of its operands (None: left out) and results, and its attributes."""

    op: str
    attributes: Attributes
    operands: tuple[Shape | None, ...]
    results: tuple[Shape, ...]

    @property
    def source(self) -> Shape:
        """The shape of the first operand."""
        return self.operand(0)

    def operand(self, position: int) -> Shape:
        """The shape of an operand that is there."""
        shape = self.operands[position]
        assert shape is not None, f"{self.op} needs it"
        return shape

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        value = dict(self.attributes).get(name)
        if not isinstance(value, tuple):
            return default
        return tuple(item for item in value if isinstance(item, int))

    def integer(self, name: str, default: int) -> int:
        """An attribute that is an integer."""
        value = dict(self.attributes).get(name)
        return value if isinstance(value, int) else default


def relations(use: Use) -> list[Relation]:
    """What a step asks of extents, as far as it is known; what is not known shows when the operator is applied."""
    found = _RELATIONS.get(use.op)
    return [] if found is None else list(found(use))


def counts(use: Use) -> list[Relation]:
    """The extents whose number of elements is a number of the step: a literal elsewhere may stand for the same."""
    if use.op != "ReduceMean":
        return []
    return [Kept(use.source[axis]) for axis in use.integers("axes", tuple(range(len(use.source))))]


def resized(use: Use, sizes: Sizes) -> Attributes:
    """The attributes, those replaced that name extents."""
    changed = _ATTRIBUTES.get(use.op)
    new = {} if changed is None else changed(use, sizes)
    return tuple((name, new.get(name, value)) for name, value in use.attributes)


# Relations of operators


def _regrouped(use: Use) -> Iterator[Relation]:
    """Groups of dimensions with equally many elements, as small as they can be."""
    old, new = ([extent for extent in shape if extent != 1] for shape in (use.source, use.results[0]))
    if 0 in old:
        yield from map(Kept, {*old, *new})
        return
    while old and new:
        left, right = [old.pop(0)], [new.pop(0)]
        while prod(left) != prod(right):
            if prod(left) < prod(right):
                left.append(old.pop(0))
            else:
                right.append(new.pop(0))
        if left != right:
            yield Product(tuple(left), tuple(right))


def _joined(use: Use) -> Iterator[Relation]:
    axis = use.integer("axis", 0)
    yield Sum(use.results[0][axis], tuple(shape[axis] for shape in use.operands if shape is not None))


def _cut(use: Use) -> Iterator[Relation]:
    for axis, start, end, step in _cuts(use):
        extent = use.source[axis]
        if step == 1 and start < end:
            yield Sum(end, (start, end - start))
            yield Sum(extent, (end, extent - end))
        else:
            yield from (Kept(extent), Kept(use.results[0][axis]))


def _cuts(use: Use) -> Iterator[tuple[int, int, int, int]]:
    """Each dimension that is cut, in the order of the attributes: which, the start, the end and the step."""
    starts, ends = use.integers("starts"), use.integers("ends")
    axes = use.integers("axes", tuple(range(len(starts))))
    for axis, start, end, step in zip(axes, starts, ends, use.integers("steps", (1,) * len(starts)), strict=True):
        yield axis, *slice(start, end, step).indices(use.source[axis])


def _padded(use: Use) -> Iterator[Relation]:
    sides = zip(use.source, use.results[0], use.integers("before"), use.integers("after"), strict=True)
    for extent, total, before, after in sides:
        if before < 0 or after < 0:
            yield from (Kept(extent), Kept(total))
        else:
            yield Sum(total, (before, extent, after))


def _repeated(use: Use) -> Iterator[Relation]:
    for extent, total, times in zip(use.source, use.results[0], use.integers("repeats"), strict=True):
        if times != 1:
            yield Product((total,), (extent, times))


def _convolved(use: Use) -> Iterator[Relation]:
    weight = use.operand(1)
    yield from _grouped(use, weight[0], weight[1])
    yield from map(Kept, weight[2:])
    yield from _windows(use, weight[2:])


def _convolved_by_phases(use: Use) -> Iterator[Relation]:
    """Filters: ``[outputs, strides..., inputs, taps...]``. Only channels vary."""
    filters, rank = use.operand(1), len(use.source) - 2
    yield from _grouped(use, filters[0], filters[rank + 1])
    for shape in (use.source[2:], filters[1 : rank + 1], filters[rank + 2 :], use.results[0][2:]):
        yield from map(Kept, shape)


def _grouped(use: Use, outputs: int, inputs: int) -> Iterator[Relation]:
    """``inputs``: of each group."""
    group = use.integer("group", 1)
    if group > 1:
        yield Product((use.source[1],), (group, inputs))
        yield Product((outputs,), (group, outputs // group))


def _pooled(use: Use) -> Iterator[Relation]:
    if dict(use.attributes).get("ceil_mode"):
        yield from map(Kept, (*use.source[2:], *use.results[0][2:]))
    else:
        yield from _windows(use, use.integers("kernel_shape"))


def _windows(use: Use, kernel: Sequence[int]) -> Iterator[Relation]:
    rank = len(kernel)
    strides, dilations = use.integers("strides", (1,) * rank), use.integers("dilations", (1,) * rank)
    pads = use.integers("pads", (0,) * (2 * rank))
    for dim, (source, result) in enumerate(zip(use.source[2:], use.results[0][2:], strict=True)):
        reach = (kernel[dim] - 1) * dilations[dim] + 1
        yield Windows(source, result, reach, strides[dim], pads[dim] + pads[rank + dim])


_RELATIONS: Mapping[str, Callable[[Use], Iterator[Relation]]] = {
    "AveragePool": _pooled,
    "Concat": _joined,
    "Conv": _convolved,
    "Flatten": _regrouped,
    "LpPool": _pooled,
    "MaxPool": _pooled,
    "Pad": _padded,
    "PhaseConv": _convolved_by_phases,
    "Reshape": _regrouped,
    "Slice": _cut,
    "Tile": _repeated,
}


# Attributes that name extents


def _new_shape(use: Use, sizes: Sizes) -> dict[str, Attribute]:
    return {"shape": tuple(sizes[extent] for extent in use.results[0])}


def _expanded(use: Use, sizes: Sizes) -> dict[str, Attribute]:
    return {"shape": tuple(sizes[extent] for extent in use.integers("shape"))}


def _new_cuts(use: Use, sizes: Sizes) -> dict[str, Attribute]:
    old = zip(_cuts(use), use.integers("starts"), use.integers("ends"), strict=True)
    new = [
        (sizes[start], sizes[end]) if step == 1 and start < end else written for (_, start, end, step), *written in old
    ]
    return {"starts": tuple(start for start, _ in new), "ends": tuple(end for _, end in new)}


def _new_pads(use: Use, sizes: Sizes) -> dict[str, Attribute]:
    return {name: tuple(sizes.get(pad, pad) for pad in use.integers(name)) for name in ("before", "after")}


def _new_repeats(use: Use, sizes: Sizes) -> dict[str, Attribute]:
    return {"repeats": tuple(sizes.get(times, times) for times in use.integers("repeats"))}


def _new_group(use: Use, sizes: Sizes) -> dict[str, Attribute]:
    group = use.integer("group", 1)
    return {"group": sizes.get(group, group)}


_ATTRIBUTES: Mapping[str, Callable[[Use, Sizes], dict[str, Attribute]]] = {
    "Conv": _new_group,
    "Expand": _expanded,
    "Pad": _new_pads,
    "PhaseConv": _new_group,
    "Reshape": _new_shape,
    "Slice": _new_cuts,
    "Tile": _new_repeats,
}
