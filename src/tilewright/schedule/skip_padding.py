"""``skip_padding``: leaves out the terms of a sum in which a factor is padding, an element that is known to be zero.

``P`` is ``A`` with zeros around, ``P[j] = select(p <= j and j < p + n, A[j - p], 0)``. Then ``C[i] += P[i + 12*k] *
W[k]`` becomes ``if p <= i + 12*k and i + 12*k < p + n: C[i] += ...``: a tap that is outside for many ``i`` is not
computed for these. Neighbours that are computed together, in registers or lanes, keep or leave a term together: with
groups of 4 along ``i``, the condition is that of the first or the last of a group, and one test serves all four.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.loops.ir import Block, Buffer, Store
from tilewright.loops.program import Program
from tilewright.schedule.blocks import bounds_within
from tilewright.schedule.crop import Kept, cropped, whole
from tilewright.schedule.skip_zeros import factors
from tilewright.schedule.tree import BlockRef, all_blocks, block_at, buffers_written, refuse, rewrite
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.conditions import inequalities
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import TRUE, Binary, Cast, Const, Expr, Read, Select, Var, const, select
from tilewright.symbolic.linear import Polynomial, polynomial, shifted, to_expr
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.traversal import all_of, free_vars, substitute


def skip_padding(program: Program, block: BlockRef, groups: Sequence[int]) -> tuple[Program, None]:
    """Add up only those terms of ``block``'s sum that read no padding. ``groups``: for each axis, how many neighbours,
    from a multiple of that number on, keep or leave a term together (1: each on its own).

    Products with padding count as zero, also those of an infinite number or NaN; a result of -0 may be 0. Padded
    buffers are cropped to what is still read, if nothing else reads them, and each dimension still has its own loop.
    Refuses if the block is no plain sum of products, or if none of its factors is ever padding.
    """
    place = block_at(program, block)
    stmt = place.stmt
    if len(groups) != len(stmt.axes) or any(group < 1 for group in groups):
        raise refuse(f"`{block}` has {len(stmt.axes)} axes; give a group of at least 1 for each", block)
    store = stmt.body
    if stmt.init is None or not isinstance(store, Store):
        raise refuse(f"`{block}` is no sum", block)
    old = Read(store.buffer, store.indices)
    if not (isinstance(store.value, Binary) and store.value.op is BinaryOp.ADD and store.value.a == old):
        raise refuse(f"`{block}` adds nothing to what it has, or only where a condition holds", block)
    bounds = bounds_within(program, stmt.axes)
    sizes = dict(zip(stmt.axes, groups, strict=True))
    kept = (_of_groups(inequality, sizes) >= 0 for inequality in inside(program, stmt))
    condition = all_of(*(simplify(one, bounds) for one in kept if not prove(one, bounds)))
    if condition == TRUE:
        raise refuse(f"no group of terms of `{block}` is known to read only padding", block)
    body = dataclasses.replace(store, value=select(condition, store.value, old))
    result = rewrite(program, place, dataclasses.replace(stmt, body=body))
    for padded in _padded_factors(program, stmt):
        kept = _kept(padded, sizes)
        if kept is not None:
            result = cropped(result, padded.buffer, kept)
    return result, None


def inside(program: Program, block: Block) -> tuple[Polynomial, ...]:
    """Polynomials over the axes of ``block``, a sum of products, that are not negative where no factor is padding."""
    if not isinstance(block.body, Store) or not isinstance(block.body.value, Binary):
        return ()
    bounds = bounds_within(program, block.axes)
    conditions = (padded.condition_of_reader for padded in _padded_factors(program, block))
    found = (inequality for condition in conditions for inequality in inequalities(condition, bounds))
    return tuple(one for one in found if not prove(to_expr(one) >= 0, bounds))


@dataclass(frozen=True, slots=True)
class _Padded:
    """A factor that is an element of a padded ``buffer``, at ``indices``; the ``condition`` over the variables
    ``places`` of the buffer's dimensions says where there is no padding."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    places: tuple[Var, ...]
    condition: Expr

    @property
    def condition_of_reader(self) -> Expr:
        """Where the factor is not padding."""
        return substitute(self.condition, dict(zip(self.places, self.indices, strict=True)))


def _padded_factors(program: Program, block: Block) -> tuple[_Padded, ...]:
    """The factors of ``block``, a sum of products, that may be padding."""
    if not isinstance(block.body, Store) or not isinstance(block.body.value, Binary):
        return ()
    return tuple(found for factor in factors(block.body.value.b) if (found := _padded(program, factor)) is not None)


def _padded(program: Program, factor: Expr) -> _Padded | None:
    while isinstance(factor, Cast):
        factor = factor.a
    if not isinstance(factor, Read) or not isinstance(factor.source, Buffer):
        return None
    writers = [one for one in all_blocks(program.body) if factor.source in buffers_written(one)]
    match writers:
        case [Block(axes=axes, body=Store(_, places, Select(condition, _, Const(0))))] if not condition.has_reads:
            own = tuple(axis.var for axis in axes)
            return _Padded(factor.source, factor.indices, own, condition) if places == own else None
        case _:
            return None


def _kept(padded: _Padded, sizes: dict[IterVar, int]) -> Kept | None:
    """What is read of the padded buffer: what is no padding, and what neighbours in a group of such an element read."""
    kept = whole(padded.buffer)
    if kept is None:
        return None
    found: list[tuple[int, int]] = []
    for place, index, (start, end) in zip(padded.places, padded.indices, kept, strict=True):
        spread = _spread(index, sizes)
        for inequality in inequalities(padded.condition, Bounds({})):
            rest = inequality.get((), 0)
            match inequality.get((place,)), spread:
                case int(step), int(more) if step > 0 and len(inequality) <= 2:
                    start = max(start, -(rest // step) - more)
                case int(step), int(more) if step < 0 and len(inequality) <= 2:
                    end = min(end, rest // -step + 1 + more)
                case _:
                    pass
        found.append((start, end))
    return tuple(found)


def _spread(index: Expr, sizes: dict[IterVar, int]) -> int | None:
    """How far apart neighbours in a group read; None if that is unknown."""
    terms, total = polynomial(index), 0
    for axis, size in sizes.items():
        if size > 1:
            if any(axis.var in free_vars(atom) for monomial in terms if monomial != (axis.var,) for atom in monomial):
                return None
            total += abs(terms.get((axis.var,), 0)) * (size - 1)
    return total


def _of_groups(inequality: Polynomial, sizes: dict[IterVar, int]) -> Expr:
    """An expression that is not negative if the polynomial is not negative for some point of a group."""
    groups = {axis.var: size for axis, size in sizes.items() if size > 1}
    most, firsts = inequality, dict[Var, Expr]()
    for var, size in groups.items():
        factor = inequality.get((var,), 0)
        if any(var in free_vars(atom) for monomial in inequality if monomial != (var,) for atom in monomial):
            return const(0)
        most = shifted(most, max(factor, 0) * (size - 1))
        firsts[var] = var // size * size
    return substitute(to_expr(most), firsts)
