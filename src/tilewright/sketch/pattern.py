"""Patterns: what the candidates of a sketch that differ in numbers only have in common, with symbols for these numbers.

One candidate of a pattern is scheduled up to ``annotate.place``, with numbers that note what is done with them
(``sizes.Size``), so rules need not know of patterns. Its trace is then replayed with a symbol for each number that
loops are split by, on the naive program in which the extent of a tiled axis is the product of its symbols: no tile has
a tail, as for numbers. Candidates are of one pattern if all questions that were asked about numbers have one answer.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import mul

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array
from tilewright.base.errors import ScheduleError, Unsupported
from tilewright.loops import visit
from tilewright.loops.ir import Block, Buffer, Loop, Stmt
from tilewright.loops.program import Dim, Program
from tilewright.schedule.intrinsics import IntrinsicSet
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import FactorLike, LoopLike, Schedule
from tilewright.schedule.trace import Primitive, Step, Trace
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, loops_of
from tilewright.sketch.annotate import MOST_REPEATED, Decided, place
from tilewright.sketch.derive import OfSketch
from tilewright.sketch.finishing import Finishing, finishing
from tilewright.sketch.packing import NOT
from tilewright.sketch.rule import Asked, Draft
from tilewright.sketch.sizes import Noted, Notes, Size, part_of
from tilewright.space.knobs import Knob, Value
from tilewright.space.space import Digits, Mask, Space
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import Expr, Factor, Var


class _Noting(Schedule):
    """A schedule that knows the factors of its splits as they were given: the trace has plain numbers."""

    def __init__(self, program: Program, intrinsics: IntrinsicSet) -> None:
        super().__init__(program, intrinsics)
        self.given: dict[int, tuple[FactorLike, ...]] = {}
        """By the position in the trace."""

    def split(
        self, loop: LoopLike, factors: Sequence[FactorLike], names: Sequence[str] | None = None
    ) -> tuple[LoopRef, ...]:
        """See ``Schedule``."""
        self.given[len(self.trace.steps)] = tuple(factors)
        return super().split(loop, factors, names)


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """What a symbol is of a candidate: the number at ``part`` of what ``knob`` decides."""

    extent: Factor
    knob: int
    part: int
    numbers: NDArray[np.int64]
    """For each value of the knob."""


@dataclass(frozen=True, slots=True)
class _Condition:
    """Whether the product of ``extents`` is at most ``factor`` times that of ``most``: ``answer``."""

    extents: tuple[Expr, ...]
    most: tuple[Expr, ...]
    factor: int
    answer: bool


@dataclass(frozen=True)
class Pattern:
    """``program``: the schedule before ``finish``, over ``symbols``. ``options``: for each knob on which it
    depends how the schedule is made, which of its values make this one, if ``conditions`` hold."""

    program: Program
    symbols: tuple[Symbol, ...]
    options: Mapping[int, Mask]
    finishing: Finishing
    conditions: tuple[_Condition, ...]

    def matches(self, digits: Digits) -> Mask:
        """Which of (candidates, knobs) are of the pattern."""
        found = chosen(self.options, digits)
        if self.conditions and found.any():
            found[found] = self._hold(digits[found])
        return found

    def numbers(self, digits: Digits) -> list[NDArray[np.int64]]:
        """What ``symbols`` are, (candidates,) each."""
        return [symbol.numbers[digits[:, symbol.knob]] for symbol in self.symbols]

    @cached_property
    def _extents(self) -> Callable[..., list[Array]]:
        """Of all conditions."""
        extents = [extent for condition in self.conditions for extent in (*condition.extents, *condition.most)]
        return compile_exprs(extents, tuple(symbol.extent for symbol in self.symbols))

    def _hold(self, digits: Digits) -> Mask:
        found = np.ones(len(digits), np.bool_)
        known = iter(self._extents(*self.numbers(digits)))
        for condition in self.conditions:
            number = _product([next(known) for _ in condition.extents], len(digits))
            most = _product([next(known) for _ in condition.most], len(digits)) * condition.factor
            found &= (number <= most) == condition.answer
        return found


def _product(numbers: Sequence[Array], count: int) -> NDArray[np.int64]:
    """(candidates,)."""
    product = np.ones(count, np.int64)
    for number in numbers:
        product = product * np.asarray(number, np.int64)
    return product


def chosen(options: Mapping[int, Mask], digits: Digits) -> Mask:
    """Which of (candidates, knobs) have one of the values that are in ``options``, for each of its knobs."""
    found = np.ones(len(digits), np.bool_)
    for knob, allowed in options.items():
        found &= allowed[digits[:, knob]]
    return found


class NoPattern(Unsupported):
    """A candidate has none, nor have all others with one of the values in ``options`` for each of its knobs."""

    def __init__(self, reason: str, options: Mapping[int, Mask]) -> None:
        super().__init__(reason)
        self.options = options


def pattern_of(space: Space, digits: Digits, *, tiles_only: bool = False) -> Pattern:
    """The pattern of a candidate.

    ``tiles_only``: only sizes of tiles are open, and not the other numbers that loops are split by: there are more
    patterns of fewer candidates then. Raises ``ScheduleError`` if there is no such candidate, ``Unsupported`` if the
    space is not of a sketch for cores, and ``NoPattern`` if the structure can't be replayed with symbols.
    """
    generator = space.generator
    if not isinstance(generator, OfSketch) or generator.sketch.structure.has_threads:
        raise Unsupported("only sketches for cores have patterns")
    scheduled, config = _Noting(space.naive, space.opened.intrinsics), Noted(space.knobs, tuple(digits.tolist()))
    draft = generator.sketch.draft(scheduled, config, generator.target)
    decided = place(draft)
    config.check_finished()
    if any(tile.instruction is not None for tile in draft.tiles.values()):
        raise NoPattern("instructions are not looked at with symbols", {})
    if draft.written:
        raise NoPattern("sums that are written out are not looked at with symbols", {})
    _refuse_packing(decided, space.knobs)
    # How often parts of what is read overlap, and whether parts are whole, depends on the size.
    config.notes.used |= {size.knob for size in decided.parts.values() if isinstance(size, Size)}
    symbols = _Symbols(space.knobs, config.notes, tiles_only=tiles_only)
    try:
        return _opened_pattern(space, digits, draft, decided, config, symbols)
    except Unsupported as error:
        _use_others(config, decided, symbols)
        raise NoPattern(str(error), config.notes.options(space.knobs, digits)) from error


def _refuse_packing(decided: Decided, knobs: Sequence[Knob[Value]]) -> None:
    for operand, packed in decided.packed.items():
        if isinstance(packed, Size) and int(packed) != NOT:
            mask = np.array([value != NOT for value in knobs[packed.knob].values])
            raise NoPattern(f"{operand.buffer} is packed for {operand.block}", {packed.knob: mask})


def _opened_pattern(
    space: Space, digits: Digits, draft: Draft, decided: Decided, config: Noted, symbols: "_Symbols"
) -> Pattern:
    scheduled = draft.schedule
    given = scheduled.given if isinstance(scheduled, _Noting) else {}
    trace = Trace(
        tuple(symbols.put(step, given.get(position, ())) for position, step in enumerate(scheduled.trace.steps))
    )
    naive = _opened(space.naive, scheduled.program, symbols)
    opened = _replayed(trace, naive, scheduled)
    conditions = tuple(_conditions(draft.asked, trace, naive, scheduled))
    _use_others(config, decided, symbols)
    plan = finishing(dataclasses.replace(draft, schedule=opened), decided)
    known = tuple(symbols.known.values())
    pattern = Pattern(opened.program, known, config.notes.options(space.knobs, digits), plan, conditions)
    if not pattern.matches(digits[None])[0]:
        raise Unsupported("with symbols, loops have other lengths")
    return pattern


def _use_others(config: Noted, decided: Decided, symbols: "_Symbols") -> None:
    """What is done with others can't be seen, such as that they select an item of a list: so their values matter."""
    left = (decided.vectors, decided.unrolled, decided.parallel, decided.rows)
    followed = {size.knob for sizes in left for size in sizes.values() if isinstance(size, Size)}
    followed |= {symbol.knob for symbol in symbols.known.values()}
    config.notes.used |= set(range(len(symbols.knobs))) - followed - config.notes.compared


def _conditions(asked: Sequence[Asked], trace: Trace, naive: Program, scheduled: Schedule) -> Iterator[_Condition]:
    """What must hold for the sizes of a candidate, so that ``asked`` has the same answers."""
    known: dict[int, Schedule] = {}
    for one in dict.fromkeys(asked):
        try:
            if one.after not in known:
                known[one.after] = replay(Trace(trace.steps[: one.after]), naive, intrinsics=scheduled.intrinsics)
            opened = known[one.after].copy()
            if one.block is None:
                yield _Condition(_extents(opened, [one.loop]), (), 1, one.answer)
                continue
            once = _extents(opened, opened.get_loops(one.block))
            opened.compute_at(one.block, one.loop)
        except ScheduleError as error:
            raise Unsupported(f"what fits can't be seen with symbols: {error}") from error
        yield _Condition(_extents(opened, opened.get_loops(one.block)), once, MOST_REPEATED, one.answer)


def _extents(schedule: Schedule, loops: Sequence[LoopRef]) -> tuple[Expr, ...]:
    names = {loop.name for loop in loops}
    return tuple(
        node.extent for node in visit.walk(schedule.program.body) if isinstance(node, Loop) and node.var.name in names
    )


def _replayed(trace: Trace, naive: Program, scheduled: Schedule) -> Schedule:
    """The schedule of ``trace``, in which all loops and blocks are called as in ``scheduled``."""
    try:
        opened = replay(trace, naive, intrinsics=scheduled.intrinsics)
    except ScheduleError as error:
        raise Unsupported(f"there is no such schedule with symbols: {error}") from error
    if [step.results for step in opened.trace.steps] != [step.results for step in scheduled.trace.steps]:
        raise Unsupported("with symbols, there are other loops")
    return opened


# --- symbols -----------------------------------------------------------------------------------------------------


class _Symbols:
    """The symbols that splits are by: not by numbers that matter by ``notes``.

    With ``tiles_only``, so do those that are not sizes of tiles, which is noted.
    """

    def __init__(self, knobs: Sequence[Knob[Value]], notes: Notes, *, tiles_only: bool) -> None:
        self.known: dict[tuple[int, int], Symbol] = {}
        self.tiled: dict[str, int] = {}
        """The knob by whose sizes a loop is split, all of them."""
        self.knobs = knobs
        self._notes = notes
        self._tiles_only = tiles_only

    def put(self, step: Step, given: Sequence[FactorLike]) -> Step:
        """``step`` with symbols for the factors that knobs decided."""
        sizes = [factor for factor in given if isinstance(factor, Size)]
        if step.primitive is not Primitive.SPLIT or not sizes or any(size.knob in self._notes.used for size in sizes):
            return step
        knob = sizes[0].knob
        value = self.knobs[knob].values[0]
        if isinstance(value, tuple):
            parts = [factor.part if isinstance(factor, Size) and factor.knob == knob else factor for factor in given]
            if any(part not in (None, place) for place, part in enumerate(parts)) or len(parts) != len(value):
                raise Unsupported(f"{step} is not by the sizes that one knob decides")
            self.tiled[str(step.arguments[0])] = knob
            for part in range(len(value)):
                self._symbol(knob, part)
        elif self._tiles_only:
            self._notes.used |= {size.knob for size in sizes}
            return step
        factors = tuple(
            self._symbol(factor.knob, factor.part) if isinstance(factor, Size) else factor for factor in given
        )
        return dataclasses.replace(step, arguments=(step.arguments[0], factors))

    def of(self, knob: int) -> list[Expr]:
        """Those of one knob, outermost first."""
        return [symbol.extent for (own, _), symbol in sorted(self.known.items()) if own == knob]

    def most(self, symbol: Symbol) -> int:
        """The largest number that a symbol may be."""
        return int(symbol.numbers.max())

    def _symbol(self, knob: int, part: int) -> Factor:
        name = f"{self.knobs[knob].name}.{part}"
        if (knob, part) not in self.known:
            numbers = np.array([part_of(value, part) for value in self.knobs[knob].values], np.int64)
            self.known[knob, part] = Symbol(Factor(name), knob, part, numbers)
        return self.known[knob, part].extent


# --- the naive program -------------------------------------------------------------------------------------------


def _opened(naive: Program, scheduled: Program, symbols: _Symbols) -> Program:
    """The naive program, in which axes that are tiled, and those that move along with them, have symbols as extents."""
    blocks = {block.name: block for block in all_blocks(naive.body)}
    inlined = blocks.keys() - {block.name for block in all_blocks(scheduled.body)}
    extents: dict[str, Expr] = {}
    shapes: dict[tuple[str, int], Expr] = {}
    for host, loops in _hosts(naive, symbols.tiled).items():
        group = [blocks[name] for name in sorted({host, *inlined, *_guests(scheduled, loops)} & blocks.keys())]
        products = {loop: reduce(mul, symbols.of(symbols.tiled[loop])) for loop in loops}
        for node, value in _spread(group, host, products).items():
            if isinstance(node, str):
                extents.setdefault(node, value)
            else:
                shapes.setdefault(node, value)
    return _with_extents(naive, extents, shapes, symbols)


def _hosts(naive: Program, tiled: Mapping[str, int]) -> dict[str, list[str]]:
    """The loops of each block that are tiled."""
    found: dict[str, list[str]] = {}
    for block in all_blocks(naive.body):
        for loop in loops_of(naive, BlockRef(block.name)):
            if loop.var.name in tiled:
                found.setdefault(block.name, []).append(loop.var.name)
    missing = tiled.keys() - {name for names in found.values() for name in names}
    if missing:
        raise Unsupported(f"loops that are made by the schedule are tiled: {', '.join(sorted(missing))}")
    return found


def _guests(scheduled: Program, loops: Sequence[str]) -> Iterator[str]:
    """The blocks that are computed inside of the loops that ``loops`` are split into."""
    for block in all_blocks(scheduled.body):
        around = [loop.var.name for loop in loops_of(scheduled, BlockRef(block.name))]
        if any(name.startswith(f"{loop}_") for name in around for loop in loops):
            yield block.name


def _spread(group: Sequence[Block], host: str, products: Mapping[str, Expr]) -> dict[str | tuple[str, int], Expr]:
    """The extents of loops (by name) and of dimensions (of a buffer) that are as long as tiled loops of ``host``."""
    written = {region.buffer.name for block in group for region in block.writes}
    links: list[tuple[str, tuple[str, int]]] = []
    for block in group:
        loops = {axis.var: str(binding) for axis, binding in zip(block.axes, block.bindings, strict=True)}
        sizes = {axis.var: axis.extent for axis in block.axes}
        for region in (*block.reads, *block.writes):
            for dimension, (start, _) in enumerate(region.ranges):
                if not isinstance(start, Var) or region.buffer.name not in written:
                    continue
                if sizes.get(start) == region.buffer.shape[dimension]:
                    links.append((loops[start], (region.buffer.name, dimension)))
    found: dict[str | tuple[str, int], Expr] = {**products}
    while True:
        before = len(found)
        for loop, dimension in links:
            for one, other in ((loop, dimension), (dimension, loop)):
                if one in found:
                    known = found.setdefault(other, found[one])
                    if known != found[one]:
                        raise Unsupported(f"two axes of {host} that are tiled are one dimension of {dimension[0]}")
        if len(found) == before:
            return found


def _with_extents(
    naive: Program,
    extents: Mapping[str, Expr],
    shapes: Mapping[tuple[str, int], Expr],
    symbols: _Symbols,
) -> Program:
    def changed(buffer: Buffer) -> Buffer:
        shape = tuple(shapes.get((buffer.name, k), extent) for k, extent in enumerate(buffer.shape))
        return buffer if shape == buffer.shape else dataclasses.replace(buffer, shape=shape)

    def leave(stmt: Stmt) -> Stmt | None:
        match stmt:
            case Loop() if stmt.var.name in extents:
                return dataclasses.replace(stmt, extent=extents[stmt.var.name])
            case Block():
                axes = tuple(
                    IterVar(axis.var, extents.get(str(binding), axis.extent), axis.kind)
                    for axis, binding in zip(stmt.axes, stmt.bindings, strict=True)
                )
                return dataclasses.replace(stmt, axes=axes)
            case _:
                return None

    mentioned = (*naive.params, *visit.buffers(naive.body))
    replacements = {buffer: changed(buffer) for buffer in mentioned if changed(buffer) is not buffer}
    body = visit.transform_stmts(visit.replace_buffers(naive.body, replacements), leave)
    dims = tuple(Dim(symbol.extent, symbols.most(symbol)) for symbol in symbols.known.values())
    return dataclasses.replace(naive, params=tuple(map(changed, naive.params)), body=body, dims=dims)
