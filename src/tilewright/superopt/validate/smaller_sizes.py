"""Finds smaller extents for a region at which its operators are still valid.

Equal extents are replaced by equal ones, and different ones by different ones, so that errors at the old extents (a
wrong axis, a wrong bound of a slice) remain errors. ``extent_relations`` are the constraints of operators: a reshape
keeps a product, a concatenation is a sum, the number of windows is kept. Backtracking finds small numbers that satisfy
them. The operators' shape rules then decide whether the region is well-typed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tilewright.base.errors import BadProgram
from tilewright.base.exact import Exact
from tilewright.ops.operator import map_expressions
from tilewright.ops.shapes import number_at, static
from tilewright.superopt.validate.congruence import Attributes, Type
from tilewright.superopt.validate.extent_relations import Relation, Shape, Sizes, Use, counts, relations, resized
from tilewright.superopt.validate.regions import Region, Step
from tilewright.symbolic.expr import Expr, Var, const

_TRIALS = 4000
"""Maximum number of trials of the search."""
_LARGEST = 40
"""The largest number tried for an extent that no relation determines."""
_RUN_TIME = (5, 7, 11, 13, 17, 19, 23, 29)
"""Numbers for run-time extents, in the order of their names; none is a multiple of another."""


def smaller(region: Region) -> Iterator[tuple[Region, Sizes]]:
    """``region`` at smaller extents, with these extents, if there are any; finally at its own.

    The smallest ones first; then those that keep the number of elements of means, as literals may equal it. Run-time
    extents are replaced by numbers in all of them.
    """
    known = _without_symbols(region)
    uses = list(_uses(known))
    asked = [relation for use in uses for relation in relations(use)]
    counted = [relation for use in uses for relation in counts(use)]
    for additional in [[], counted] if counted else [[]]:
        sizes = _Search.of(known, [*asked, *additional]).found()
        if sizes is not None and any(new != old for old, new in sizes.items()):
            yield _resized(known, uses, sizes), {old: new for old, new in sizes.items() if old > 1}
    yield known, {}


# Run-time extents


def _without_symbols(region: Region) -> Region:
    """``region`` with numbers for run-time extents. Raises ``BadProgram`` if there are too many of them."""
    symbols = {symbol for leaf in region.leaves for extent in leaf.type.shape for symbol in extent.variables}
    symbols |= {symbol for step in region.steps for symbol in _named(step.attributes.value)}
    if not symbols:
        return region
    if len(symbols) > len(_RUN_TIME):
        raise BadProgram(f"{len(symbols)} run-time extents are more than {len(_RUN_TIME)}")
    ordered = sorted(symbols, key=lambda symbol: symbol.name)
    values = dict(zip(ordered, _RUN_TIME, strict=False))
    return Region(
        tuple(replace(leaf, type=_typed(leaf.type, values)) for leaf in region.leaves),
        tuple(_stepped(step, values) for step in region.steps),
        region.left,
        region.right,
    )


def _named(attributes: Attributes) -> Iterator[Var]:
    for _, value in attributes:
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Expr):
                yield from item.variables


def _typed(kind: Type, values: Mapping[Var, int]) -> Type:
    return Type(kind.dtype, tuple(const(number_at(extent, values)) for extent in kind.shape))


def _stepped(step: Step, values: Mapping[Var, int]) -> Step:
    numbers = partial(number_at, values=values)
    attributes = tuple((name, map_expressions(value, numbers)) for name, value in step.attributes.value)
    types = tuple(_typed(kind, values) for kind in step.types)
    return Step(step.op, step.operands, Exact(attributes), types)


# Smaller extents


def _uses(region: Region) -> Iterator[Use]:
    """The use of extents by each step."""
    shapes = [_shape(leaf.type) for leaf in region.leaves]
    for step in region.steps:
        operands = tuple(None if operand is None else shapes[operand] for operand in step.operands)
        results = [_shape(kind) for kind in step.types]
        shapes += results
        yield Use(step.op, step.attributes.value, operands, tuple(results))


def _shape(kind: Type) -> Shape:
    extents = static(kind.shape)
    if extents is None:
        raise BadProgram(f"the shape {kind.shape} is not known")
    return extents


def _resized(region: Region, uses: Sequence[Use], sizes: Sizes) -> Region:
    def of(kind: Type) -> Type:
        return Type(kind.dtype, tuple(const(sizes[extent]) for extent in _shape(kind)))

    leaves = tuple(replace(leaf, type=of(leaf.type)) for leaf in region.leaves)
    steps = tuple(
        Step(step.op, step.operands, Exact(resized(use, sizes)), tuple(map(of, step.types)))
        for step, use in zip(region.steps, uses, strict=True)
    )
    return Region(leaves, steps, region.left, region.right)


@dataclass(slots=True)
class _Search:
    """A search for numbers of extents, smallest extent first, that satisfy the relations."""

    extents: Sequence[int]
    relations: Mapping[int, Sequence[Relation]]
    """Relations by their largest extent: once its number is chosen, they are decided."""
    sizes: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 1})
    trials: int = 0

    @staticmethod
    def of(region: Region, found: Sequence[Relation]) -> "_Search":
        values = {extent for leaf in region.leaves for extent in _shape(leaf.type)}
        values |= {extent for step in region.steps for kind in step.types for extent in _shape(kind)}
        values = values.union(*(relation.extents for relation in found))
        extents = sorted(extent for extent in values if extent > 1)
        decided: dict[int, list[Relation]] = {extent: [] for extent in extents}
        for relation in dict.fromkeys(found):
            last = max(relation.extents, default=0)
            if last > 1:
                decided[last].append(relation)
        return _Search(extents, decided)

    def found(self) -> Sizes | None:
        """Numbers for all extents; None if there are none, or after too many trials."""
        return dict(self.sizes) if self._assigned(0) else None

    def _assigned(self, position: int) -> bool:
        if position == len(self.extents):
            return True
        extent = self.extents[position]
        for number in self._candidates(extent):
            self.trials += 1
            if self.trials > _TRIALS:
                return False
            self.sizes[extent] = number
            if all(one.holds(self.sizes) for one in self.relations[extent]) and self._assigned(position + 1):
                return True
            del self.sizes[extent]
        return False

    def _candidates(self, extent: int) -> list[int]:
        """Numbers to try for ``extent``, other than those of smaller extents."""
        forced = [one.follows(extent, self.sizes) for one in self.relations[extent]]
        numbers = {number for number in forced if number is not None}
        taken = set(self.sizes.values())
        if numbers:
            return [number for number in sorted(numbers) if number not in taken and number > 1]
        tried = [*range(2, min(extent, _LARGEST) + 1), extent]
        return [number for number in dict.fromkeys(tried) if number not in taken]
