"""``Schedule``: a program, and the primitives that rewrite it.

Each method checks its precondition first and raises ``ScheduleError``, which leaves the schedule unchanged; a success
adds one step to the trace. Handles are names, and survive all rewrites that keep the loop or block; methods accept the
names themselves, too. The function of the same name documents a primitive.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias, TypeVar

from tilewright.base.arguments import checked
from tilewright.base.errors import BadInput, ScheduleError
from tilewright.base.plugins import installed
from tilewright.loops.memory import Memory
from tilewright.loops.program import Program
from tilewright.schedule import loop_kinds
from tilewright.schedule.annotate import annotate, unannotate
from tilewright.schedule.bind import bind, require_launches
from tilewright.schedule.bind_factors import bind_factors
from tilewright.schedule.cache import cache_read, cache_write
from tilewright.schedule.compute_at import compute_at
from tilewright.schedule.compute_inline import compute_inline, reverse_compute_inline
from tilewright.schedule.decompose_reduction import decompose_reduction
from tilewright.schedule.double_buffer import double_buffer
from tilewright.schedule.fuse import fuse
from tilewright.schedule.index_map import IndexMap
from tilewright.schedule.intrinsics import IntrinsicSet, TensorIntrinsic
from tilewright.schedule.lower_virtual_thread import lower_virtual_thread
from tilewright.schedule.pad import pad
from tilewright.schedule.place_barriers import place_barriers
from tilewright.schedule.prefetch import prefetch
from tilewright.schedule.reorder import reorder
from tilewright.schedule.reverse_compute_at import reverse_compute_at
from tilewright.schedule.rfactor import rfactor
from tilewright.schedule.sampling import check_perfect_tile, sample_categorical, sample_perfect_tile
from tilewright.schedule.set_scope import set_scope
from tilewright.schedule.skip_padding import skip_padding
from tilewright.schedule.skip_zeros import skip_zeros
from tilewright.schedule.split import Factor, split, tile
from tilewright.schedule.storage_align import storage_align
from tilewright.schedule.tensorize import tensorize
from tilewright.schedule.trace import Argument, Primitive, Result, Sampled, Step, Trace, UserStep
from tilewright.schedule.transform_layout import transform_layout
from tilewright.schedule.tree import BlockRef, Handle, LoopRef, Refusal, block_at, loops_of, refuse
from tilewright.schedule.user_primitive import GROUP, UserPrimitive

LoopLike: TypeAlias = LoopRef | str
BlockLike: TypeAlias = BlockRef | str
FactorLike: TypeAlias = Factor | Sampled

_primitive = checked(ScheduleError)

Made = TypeVar("Made", bound=Result | tuple[Result, ...] | None)
Found = TypeVar("Found")


class Schedule:
    """A program, rewritten step by step, with the trace of its steps.

    ``intrinsics``: those that ``tensorize`` finds by name; ``primitives``: those that ``apply`` finds by name, besides
    the installed ones; ``seed``: that of the sampling methods.
    """

    def __init__(
        self,
        program: Program,
        intrinsics: IntrinsicSet | None = None,
        seed: int = 0,
        primitives: Sequence[UserPrimitive] = (),
    ) -> None:
        self.program = program
        self.trace = Trace()
        self.intrinsics = intrinsics or IntrinsicSet()
        self._primitives = {one.name: one for one in reversed(primitives)}
        self._random = Random(seed)
        self._has_launches = False

    def __str__(self) -> str:
        return str(self.program)

    def copy(self) -> "Schedule":
        """A copy of this schedule, including the state of random choices."""
        other = Schedule(self.program, self.intrinsics, primitives=[*self._primitives.values()])
        other.trace = self.trace
        other._has_launches = self._has_launches
        other._random.setstate(self._random.getstate())
        return other

    # --- queries ------------------------------------------------------------------------------------------------

    @_primitive
    def get_block(self, name: str) -> BlockRef:
        """The block ``name``. Raises ``ScheduleError`` if there is none."""
        return self._look(lambda: BlockRef(block_at(self.program, BlockRef(name)).stmt.name))

    @_primitive
    def get_loops(self, block: BlockLike) -> tuple[LoopRef, ...]:
        """The loops around ``block``, outermost first. Raises ``ScheduleError`` if there is no such block."""
        return self._look(lambda: tuple(LoopRef(loop.var.name) for loop in loops_of(self.program, _block(block))))

    # --- loops --------------------------------------------------------------------------------------------------

    @_primitive
    def split(
        self, loop: LoopLike, factors: Sequence[FactorLike], names: Sequence[str] | None = None
    ) -> tuple[LoopRef, ...]:
        """Split a loop into several nested loops; at most one factor is None, and is derived."""
        call = _call(Primitive.SPLIT, _loop(loop), tuple(factors), names=_names(names))
        return self._apply(call, lambda: split(self.program, _loop(loop), _numbers(factors), names))

    @_primitive
    def tile(
        self, loops: Sequence[LoopLike], factors: Sequence[FactorLike], names: Sequence[str] | None = None
    ) -> tuple[LoopRef, ...]:
        """Split perfectly nested loops, and put all outer ones outside; returns the outer ones, then the inner ones."""
        handles = tuple(map(_loop, loops))
        call = _call(Primitive.TILE, handles, tuple(factors), names=_names(names))
        return self._apply(call, lambda: tile(self.program, handles, _numbers(factors), names))

    @_primitive
    def fuse(self, *loops: LoopLike, name: str | None = None) -> LoopRef:
        """Merge perfectly nested loops into one."""
        handles = tuple(map(_loop, loops))
        return self._apply(_call(Primitive.FUSE, *handles, name=name), lambda: fuse(self.program, handles, name))

    @_primitive
    def reorder(self, *loops: LoopLike) -> None:
        """Permute nested loops, outermost first; loops that are not listed keep their positions."""
        handles = tuple(map(_loop, loops))
        self._apply(_call(Primitive.REORDER, *handles), lambda: reorder(self.program, handles))

    @_primitive
    def serial(self, loop: LoopLike) -> None:
        """Run iterations in order."""
        self._apply(_call(Primitive.SERIAL, _loop(loop)), lambda: loop_kinds.serial(self.program, _loop(loop)))

    @_primitive
    def unroll(self, loop: LoopLike) -> None:
        """Unroll a loop."""
        self._apply(_call(Primitive.UNROLL, _loop(loop)), lambda: loop_kinds.unroll(self.program, _loop(loop)))

    @_primitive
    def vectorize(self, loop: LoopLike) -> None:
        """Run iterations as lanes of vectors."""
        self._apply(_call(Primitive.VECTORIZE, _loop(loop)), lambda: loop_kinds.vectorize(self.program, _loop(loop)))

    @_primitive
    def parallel(self, loop: LoopLike) -> None:
        """Distribute iterations over workers."""
        self._apply(_call(Primitive.PARALLEL, _loop(loop)), lambda: loop_kinds.parallel(self.program, _loop(loop)))

    @_primitive
    def bind(self, loop: LoopLike, thread: str) -> None:
        """Map iterations to blocks (``"blockIdx.x"``), threads (``"threadIdx.x"``) or virtual ones (``"vthread"``)."""
        self._apply(_call(Primitive.BIND, _loop(loop), thread), lambda: bind(self.program, _loop(loop), thread))

    @_primitive
    def lower_virtual_thread(self, loop: LoopLike) -> None:
        """Interleave the virtual threads of ``loop``: the loop moves around each block, unrolled."""
        call = _call(Primitive.LOWER_VIRTUAL_THREAD, _loop(loop))
        self._apply(call, lambda: lower_virtual_thread(self.program, _loop(loop)))

    @_primitive
    def place_barriers(self) -> None:
        """Insert barriers where threads need them; the last step of a schedule with threads."""
        self._apply(_call(Primitive.PLACE_BARRIERS), lambda: place_barriers(self.program))

    # --- places of computation ----------------------------------------------------------------------------------

    @_primitive
    def compute_at(self, block: BlockLike, loop: LoopLike) -> tuple[LoopRef, ...]:
        """Compute a producer inside ``loop`` of its consumer, as needed there; returns its new loops."""
        call = _call(Primitive.COMPUTE_AT, _block(block), _loop(loop))
        return self._apply(call, lambda: compute_at(self.program, _block(block), _loop(loop)))

    @_primitive
    def reverse_compute_at(self, block: BlockLike, loop: LoopLike) -> tuple[LoopRef, ...]:
        """Compute a consumer inside ``loop`` of its producer, on each completed part; returns its new loops."""
        call = _call(Primitive.REVERSE_COMPUTE_AT, _block(block), _loop(loop))
        return self._apply(call, lambda: reverse_compute_at(self.program, _block(block), _loop(loop)))

    @_primitive
    def compute_inline(self, block: BlockLike) -> None:
        """Replace every read of ``block``'s result by the value that it computes."""
        self._apply(_call(Primitive.COMPUTE_INLINE, _block(block)), lambda: compute_inline(self.program, _block(block)))

    @_primitive
    def reverse_compute_inline(self, block: BlockLike) -> None:
        """Let the producer of ``block`` store the value that ``block`` computes."""
        call = _call(Primitive.REVERSE_COMPUTE_INLINE, _block(block))
        self._apply(call, lambda: reverse_compute_inline(self.program, _block(block)))

    @_primitive
    def rfactor(self, loop: LoopLike, axis: int = 0) -> BlockRef:
        """Factor ``loop`` out of its reduction; returns the block of the partial results."""
        return self._apply(
            _call(Primitive.RFACTOR, _loop(loop), axis), lambda: rfactor(self.program, _loop(loop), axis)
        )

    @_primitive
    def decompose_reduction(self, block: BlockLike, loop: LoopLike) -> BlockRef:
        """Move the init of ``block`` to just before ``loop``; returns the new block."""
        call = _call(Primitive.DECOMPOSE_REDUCTION, _block(block), _loop(loop))
        return self._apply(call, lambda: decompose_reduction(self.program, _block(block), _loop(loop)))

    @_primitive
    def skip_zeros(self, block: BlockLike) -> None:
        """Leave out the terms of a sum in which a constant factor is zero."""
        self._apply(_call(Primitive.SKIP_ZEROS, _block(block)), lambda: skip_zeros(self.program, _block(block)))

    @_primitive
    def skip_padding(self, block: BlockLike, groups: Sequence[int | Sampled]) -> None:
        """Leave out the terms of a sum that read only padding, for groups of neighbours along each axis at once."""
        call = _call(Primitive.SKIP_PADDING, _block(block), tuple(groups))
        self._apply(call, lambda: skip_padding(self.program, _block(block), tuple(map(int, groups))))

    # --- buffers ------------------------------------------------------------------------------------------------

    @_primitive
    def cache_read(self, readers: BlockLike | Sequence[BlockLike], buffer: str, scope: Memory) -> BlockRef:
        """One or several blocks read a copy of ``buffer`` in ``scope``; returns the block that copies."""
        blocks = tuple(map(_block, (readers,) if isinstance(readers, BlockRef | str) else readers))
        call = _call(Primitive.CACHE_READ, blocks[0] if len(blocks) == 1 else blocks, buffer, scope)
        return self._apply(call, lambda: cache_read(self.program, blocks, buffer, scope))

    @_primitive
    def cache_write(self, block: BlockLike, buffer: str, scope: Memory) -> BlockRef:
        """``block`` writes to a buffer in ``scope``, which is then copied; returns the block that copies."""
        call = _call(Primitive.CACHE_WRITE, _block(block), buffer, scope)
        return self._apply(call, lambda: cache_write(self.program, _block(block), buffer, scope))

    @_primitive
    def set_scope(self, buffer: str, scope: Memory) -> None:
        """Allocate ``buffer`` in ``scope``."""
        self._apply(_call(Primitive.SET_SCOPE, buffer, scope), lambda: set_scope(self.program, buffer, scope))

    @_primitive
    def prefetch(
        self,
        buffer: str,
        distance: int | Sampled,
        cache: int = 1,
        along: Sequence[tuple[LoopLike, int]] = (),
    ) -> None:
        """Each vector load from the parameter ``buffer`` prefetches the data ``distance`` bytes ahead.

        It is loaded into the cache of level ``cache``, 1 or 2, and those beyond. ``along``: bytes that each iteration
        of a loop adds to the distance; then a load prefetches one line.
        """
        steps = tuple((_loop(loop), step) for loop, step in along)
        call = _call(Primitive.PREFETCH, buffer, distance, cache=None if cache == 1 else cache, along=steps or None)
        self._apply(call, lambda: prefetch(self.program, buffer, int(distance), cache, dict(steps)))

    @_primitive
    def transform_layout(self, block: BlockLike, buffer: str, index_map: IndexMap | str) -> tuple[LoopRef, ...]:
        """Store ``buffer`` packed, as in ``"k, n -> n // 16, k, n % 16"``; returns the new loops of a plain writer.

        Of the parameters, only constants may be stored otherwise.
        """
        packing = self._look(lambda: IndexMap.parse(index_map) if isinstance(index_map, str) else index_map)
        call = _call(Primitive.TRANSFORM_LAYOUT, _block(block), buffer, packing)
        return self._apply(call, lambda: transform_layout(self.program, _block(block), buffer, packing))

    @_primitive
    def pad(self, block: BlockLike, multiples: Sequence[int | Sampled]) -> tuple[BlockRef, ...]:
        """Round the extent of each axis of ``block`` up to a multiple; returns the blocks that copy."""
        call = _call(Primitive.PAD, _block(block), tuple(multiples))
        return self._apply(call, lambda: pad(self.program, _block(block), tuple(map(int, multiples))))

    @_primitive
    def storage_align(self, block: BlockLike, buffer: str, axis: int, factor: int, offset: int = 0) -> None:
        """Make the stride of a dimension ``offset`` modulo ``factor`` elements."""
        call = _call(Primitive.STORAGE_ALIGN, _block(block), buffer, axis, factor, offset)
        self._apply(call, lambda: storage_align(self.program, _block(block), buffer, axis, factor, offset))

    @_primitive
    def double_buffer(self, block: BlockLike) -> None:
        """Compute the result of ``block`` one iteration ahead, into the other half of a doubled buffer."""
        call = _call(Primitive.DOUBLE_BUFFER, _block(block))
        self._apply(call, lambda: double_buffer(self.program, _block(block)))

    # --- hardware, annotations, symbols -------------------------------------------------------------------------

    @_primitive
    def tensorize(self, loop: LoopLike, intrinsic: TensorIntrinsic | str) -> BlockRef:
        """Replace ``loop`` and its contents by a call of ``intrinsic``; returns the block that calls it."""
        known = self.intrinsics if isinstance(intrinsic, str) else self.intrinsics.with_intrinsic(intrinsic)
        name = intrinsic if isinstance(intrinsic, str) else intrinsic.name

        def run() -> tuple[Program, BlockRef]:
            found = known.get(name)
            if found is None:
                raise refuse(f"no intrinsic is called {name}; pass its declaration, or a set that has it to Schedule")
            return tensorize(self.program, _loop(loop), found)

        result = self._apply(_call(Primitive.TENSORIZE, _loop(loop), name), run)
        self.intrinsics = known
        return result

    @_primitive
    def annotate(self, block: BlockLike, key: str, value: int | str | Sampled) -> None:
        """Set the annotation ``key = value`` on ``block``."""
        call = _call(Primitive.ANNOTATE, _block(block), key, value)
        noted = int(value) if isinstance(value, Sampled) else value
        self._apply(call, lambda: annotate(self.program, _block(block), key, noted))

    @_primitive
    def unannotate(self, block: BlockLike, key: str) -> None:
        """Remove the annotation ``key`` from ``block``."""
        call = _call(Primitive.UNANNOTATE, _block(block), key)
        self._apply(call, lambda: unannotate(self.program, _block(block), key))

    @_primitive
    def bind_factors(self, **values: int | Sampled) -> None:
        """Replace symbolic split factors by numbers, by name."""
        numbers = {name: int(value) for name, value in values.items()}
        self._apply(_call(Primitive.BIND_FACTORS, **values), lambda: bind_factors(self.program, numbers))

    @_primitive
    def apply(self, primitive: UserPrimitive | str, *arguments: Argument, **options: Argument) -> tuple[Handle, ...]:
        """Apply a user-defined primitive, given as an object or by name; returns the handles that it made."""
        known = self._look(lambda: self._found(primitive))
        call = self._look(lambda: known.called(self.program, arguments, options))
        step = Step(UserStep(known.name), call.arguments, tuple(call.options.items()))
        made = self._apply(step, lambda: call.run(self.program))
        self._primitives = {**self._primitives, known.name: known}
        return made

    def _found(self, primitive: UserPrimitive | str) -> UserPrimitive:
        if isinstance(primitive, UserPrimitive):
            return primitive
        offered = {one.name: one for one in installed(GROUP, UserPrimitive).values()}
        found = (offered | self._primitives).get(primitive)
        if found is None:
            raise refuse(f"no primitive is called {primitive}: give it by primitives=, or install its package")
        return found

    # --- random choices -----------------------------------------------------------------------------------------

    @_primitive
    def sample_perfect_tile(
        self, loop: LoopLike, parts: int, max_innermost: int = 16, decision: Sequence[int] | None = None
    ) -> tuple[Sampled, ...]:
        """Random factors of the extent of ``loop``, for ``split``; ``decision`` gives fixed ones."""

        def run() -> tuple[Program, tuple[Sampled, ...]]:
            chosen = decision
            if chosen is None:
                chosen = sample_perfect_tile(self.program, _loop(loop), parts, max_innermost, self._random)
            check_perfect_tile(self.program, _loop(loop), parts, chosen)
            return self.program, self._sampled(chosen)

        return self._apply(_call(Primitive.SAMPLE_PERFECT_TILE, _loop(loop), parts, max_innermost), run)

    @_primitive
    def sample_categorical(
        self, candidates: Sequence[int], weights: Sequence[float] | None = None, decision: int | None = None
    ) -> Sampled:
        """One of ``candidates``, with probabilities proportional to ``weights``; ``decision`` fixes the position."""
        likely = tuple(weights) if weights is not None else (1.0,) * len(candidates)

        def run() -> tuple[Program, Sampled]:
            if len(likely) != len(candidates):
                raise refuse(f"{len(candidates)} candidates need as many weights, not {len(likely)}")
            chosen = candidates[sample_categorical(likely, self._random)] if decision is None else decision
            if chosen not in candidates:
                raise refuse(f"the decision {chosen} is none of the candidates {tuple(candidates)}")
            return self.program, self._sampled((chosen,))[0]

        return self._apply(_call(Primitive.SAMPLE_CATEGORICAL, tuple(candidates), likely), run)

    def _sampled(self, values: Sequence[int]) -> tuple[Sampled, ...]:
        count = sum(isinstance(result, Sampled) for step in self.trace.steps for result in step.results)
        return tuple(Sampled(f"d{count + i}", value) for i, value in enumerate(values))

    # --- all primitives -----------------------------------------------------------------------------------------

    def _apply(self, call: Step, run: Callable[[], tuple[Program, Made]]) -> Made:
        """Run a primitive: store its program and record the step, or raise ``ScheduleError`` and change nothing."""
        try:
            program, made = run()
            bound = self._has_launches or call.primitive is Primitive.BIND
            if bound:
                require_launches(program)
        except Refusal as refusal:
            raise ScheduleError(explain(call, refusal.reason, refusal.place, self.program)) from refusal
        except BadInput as error:
            raise ScheduleError(explain(call, str(error), None, self.program)) from error
        self.program, self._has_launches = program, bound
        self.trace = self.trace.then(Step(call.primitive, call.arguments, call.options, _results(made)))
        return made

    def _look(self, find: Callable[[], Found]) -> Found:
        try:
            return find()
        except (Refusal, BadInput) as error:
            raise ScheduleError(f"{error}\n\n{self.program}") from error


def explain(call: Step, reason: str, place: Handle | None, program: Program) -> str:
    """The text of a ``ScheduleError``: the primitive, the reason, and the program with the place marked."""
    word = "block" if isinstance(place, BlockRef) else "for"
    head = None if place is None else f"{word} {place.name}"
    lines = [f"{'>' if _starts(line, head) else ' '} {line}".rstrip() for line in str(program).splitlines()]
    return "\n".join([f"{call.call()} is refused: {reason}", "", *lines])


def _starts(line: str, head: str | None) -> bool:
    text = line.lstrip()
    return head is not None and text.startswith(head) and not text[len(head) : len(head) + 1].isidentifier()


def _loop(loop: LoopLike) -> LoopRef:
    return LoopRef(loop) if isinstance(loop, str) else loop


def _block(block: BlockLike) -> BlockRef:
    return BlockRef(block) if isinstance(block, str) else block


def _numbers(factors: Sequence[FactorLike]) -> tuple[Factor, ...]:
    return tuple(factor.value if isinstance(factor, Sampled) else factor for factor in factors)


def _names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _call(primitive: Primitive, *arguments: Argument, **options: Argument) -> Step:
    given = {name: value for name, value in options.items() if value is not None}
    return Step(primitive, arguments, tuple(given.items()))


def _results(made: Result | tuple[Result, ...] | None) -> tuple[Result, ...]:
    return made if isinstance(made, tuple) else () if made is None else (made,)
