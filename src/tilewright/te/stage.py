"""Schedules in TVM's notation: ``s[C].split(...)``.

Primitives of one loop or block are methods of ``Stage``; those of the whole program are methods of ``TeSchedule``.
"""

import copy
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilewright.base.arguments import checked
from tilewright.base.errors import BadProgram, ScheduleError
from tilewright.base.names import fresh_name, identifier
from tilewright.loops.ir import Block
from tilewright.loops.lower import Lowered, lower_named
from tilewright.loops.memory import MEMORIES, Memory
from tilewright.loops.positions import refuse_outside
from tilewright.loops.program import Program, with_constants
from tilewright.loops.reader import format_loops
from tilewright.schedule.index_map import IndexMap
from tilewright.schedule.intrinsics import IntrinsicSet, TensorIntrinsic
from tilewright.schedule.schedule import FactorLike, Schedule
from tilewright.schedule.trace import Argument, Sampled, Trace
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, block_at, variable_names
from tilewright.schedule.user_primitive import UserPrimitive
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import Expr, Extent
from tilewright.symbolic.traversal import free_vars
from tilewright.tensor.ir import MARK, Compute, Scan, Tensor

_primitive = checked(ScheduleError)

Axis: TypeAlias = IterVar | LoopRef
"""A loop: the axis of an operation, before it is split or fused, or the result of a primitive."""


@checked(BadProgram)
def create_schedule(
    outputs: Tensor | Sequence[Tensor],
    name: str = "main",
    *,
    inputs: Sequence[Tensor] | None = None,
    constants: Sequence[Tensor] = (),
    dims: Mapping[str, int] | None = None,
    intrinsics: IntrinsicSet | None = None,
) -> "TeSchedule":
    """The schedule of the naive program that computes ``outputs``; the arguments are those of ``loops.lower``.

    ``constants``: inputs whose values are known before all calls, such as weights, so that a schedule may store them in
    another layout; ``te.build`` is given their values. Raises ``BadProgram`` for an access that is provably outside of
    its tensor, and for constants that are no inputs.
    """
    lowered = lower_named(outputs, name, inputs=inputs, dims=dims)
    refuse_outside(lowered.program)
    lowered = replace(lowered, program=with_constants(lowered.program, _names(constants, lowered)))
    listed = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    return TeSchedule(Schedule(lowered.program, intrinsics), lowered, listed)


def _names(constants: Sequence[Tensor], lowered: Lowered) -> list[str]:
    known = {buffer.name for buffer in lowered.program.inputs}
    names = [lowered.buffers.get((tensor.op, tensor.output), "") for tensor in constants]
    for tensor, name in zip(constants, names, strict=True):
        if name not in known:
            raise BadProgram(f"{tensor!r} is no input of the program, so it can't be one of its constants")
    return list(dict.fromkeys(names))


class TeSchedule:
    """A schedule with one ``Stage`` for each operation: ``s[C]``. ``print(s)`` shows the loops.

    ``outputs``: the tensors that ``lowered`` computes, the reference of the program.
    """

    def __init__(self, schedule: Schedule, lowered: Lowered, outputs: Sequence[Tensor]) -> None:
        self.schedule = schedule
        self.naive = lowered.program
        self.outputs = tuple(outputs)
        self._blocks: dict[object, BlockRef] = {op: BlockRef(name) for op, name in lowered.blocks.items()}
        self._buffers = lowered.buffers
        self._axes: dict[BlockRef, tuple[IterVar, ...]] = {}
        self._loops: dict[tuple[BlockRef, int], LoopRef] = {}
        blocks = {block.name: block for block in all_blocks(self.program.body)}
        for op, block in self._blocks.items():
            self._follow(block, blocks[block.name].bindings)
            if isinstance(op, Compute):
                self._axes[block] = (*op.axis, *op.reduce_axis)

    def scheduled(self, schedule: Schedule) -> "TeSchedule":
        """The same operations in another schedule, which began with their naive program; axes denote no loops."""
        other = copy.copy(self)
        other.schedule, other._axes, other._loops = schedule, {}, {}
        return other

    def copy(self) -> "TeSchedule":
        """A copy of this schedule."""
        other = copy.copy(self)
        other.schedule = self.schedule.copy()
        other._blocks, other._axes, other._loops = {**self._blocks}, {**self._axes}, {**self._loops}
        return other

    @property
    def program(self) -> Program:
        """The loop program so far."""
        return self.schedule.program

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return self.schedule.trace

    def __str__(self) -> str:
        return format_loops(self.program)

    @_primitive
    def __getitem__(self, tensor: "Tensor | Stage") -> "Stage":
        """The stage that computes ``tensor``; for a scan, the one that computes its rows.

        The computes of a scan's steps have stages of their own. Raises ``ScheduleError`` for inputs, and tensors of
        other programs.
        """
        if isinstance(tensor, Stage):
            return tensor
        op = tensor.op.update[tensor.output].op if isinstance(tensor.op, Scan) else tensor.op
        block = self._blocks.get(op)
        if block is None:
            raise ScheduleError(f"{tensor!r} is not computed in this schedule; inputs have no stage (use cache_read)")
        return Stage(self, block)

    @_primitive
    def cache_read(self, tensor: "Tensor | Stage", scope: str | Memory, readers: Sequence["Tensor | Stage"]) -> "Stage":
        """Let ``readers`` read one copy of ``tensor`` in ``scope``; returns the stage of the copy.

        Raises ``ScheduleError`` for tensors that do not read it, or none.
        """
        blocks = [self[reader].block for reader in readers]
        copied = self.schedule.cache_read(blocks, self.buffer(tensor), _scope(scope))
        self.follow(copied)
        return Stage(self, copied)

    @_primitive
    def cache_write(self, tensor: "Tensor | Stage", scope: str | Memory) -> "Stage":
        """Compute ``tensor`` in ``scope``; returns the computing stage, and ``s[tensor]`` becomes the copy from it.

        The spatial axes of the operation then denote the loops of the copy, and its reduction axes for those of the
        computation, as in TVM.
        """
        stage = self[tensor]
        copied = self.schedule.cache_write(stage.block, self.buffer(tensor), _scope(scope))
        if isinstance(tensor, Tensor):
            self._blocks[tensor.op] = copied
            if isinstance(tensor.op, Compute):
                self._axes[copied] = tensor.op.axis
        self.follow(copied)
        return stage

    @_primitive
    def rfactor(self, tensor: "Tensor | Stage", axis: Axis, factor_axis: int = 0) -> "Stage":
        """Factor the reduction loop ``axis`` out of ``tensor``; returns the stage of the partial results."""
        stage = self[tensor]
        partial = self.schedule.rfactor(stage.loop(axis), factor_axis)
        self.follow(partial)
        self.follow(stage.block)
        return Stage(self, partial)

    @_primitive
    def place_barriers(self) -> None:
        """Insert barriers where threads need them; the last step of a schedule."""
        self.schedule.place_barriers()

    def bind_factors(self, **values: int | Sampled) -> None:
        """Replace symbolic split factors by numbers, by name."""
        self.schedule.bind_factors(**values)

    def sample_categorical(
        self, candidates: Sequence[int], weights: Sequence[float] | None = None, decision: int | None = None
    ) -> Sampled:
        """One of ``candidates``, with probabilities proportional to ``weights``; ``decision`` fixes the position."""
        return self.schedule.sample_categorical(candidates, weights, decision)

    @_primitive
    def prefetch(self, tensor: Tensor, distance: int | Sampled, cache: int = 1) -> None:
        """Each vector load from the input ``tensor`` prefetches the data ``distance`` bytes ahead.

        It is loaded into the cache of level ``cache``, 1 or 2, and those beyond.
        """
        self.schedule.prefetch(self.buffer(tensor), distance, cache)

    @_primitive
    def transform_layout(self, constant: Tensor, index_map: IndexMap | str) -> None:
        """Take a constant packed, as in ``"k, n -> n // 16, k, n % 16"``; ``te.build`` packs the value that it gets.

        A result is stored otherwise by its stage (``Stage.transform_layout``).
        """
        name, blocks = self.buffer(constant), all_blocks(self.program.body)
        reader = next((one for one in blocks if name in {region.buffer.name for region in one.reads}), None)
        if reader is None:
            raise ScheduleError(f"nothing reads {constant!r}\n\n{self.program}")
        self.schedule.transform_layout(BlockRef(reader.name), name, index_map)

    def loop(self, block: BlockRef, axis: Axis) -> LoopRef:
        """The loop that ``axis`` denotes, if it is around ``block``. Raises ``ScheduleError`` if not."""
        found = axis
        if isinstance(axis, IterVar):
            own = self._axes.get(block, ())
            found = self._loops.get((block, own.index(axis))) if axis in own else None
        if isinstance(found, LoopRef) and found in self.schedule.get_loops(block):
            return found
        raise ScheduleError(f"`{axis.name}` is no loop of stage {block} (any more)\n\n{self.program}")

    def loops(self, block: BlockRef, kinds: Container[IterKind]) -> tuple[LoopRef, ...]:
        """The loops over the axes of ``block`` of one of ``kinds``, before any split or fuse."""
        wanted = (i for i, axis in enumerate(self.block(block).axes) if axis.kind in kinds)
        return tuple(self._loops[block, i] for i in wanted if (block, i) in self._loops)

    def buffer(self, tensor: "Tensor | Stage") -> str:
        """The name of the buffer of ``tensor``, or of the result of a stage. Raises ``ScheduleError``."""
        if isinstance(tensor, Tensor):
            key = (tensor.op, tensor.output)
            if key not in self._buffers:
                raise ScheduleError(f"{tensor!r} does not occur in this schedule")
            return self._buffers[key]
        return self.block(tensor.block).writes[0].buffer.name

    def block(self, block: BlockRef) -> Block:
        """The block in its present form."""
        return block_at(self.program, self.schedule.get_block(block.name)).stmt

    def follow(self, block: BlockRef, loops: Sequence[LoopRef] | None = None) -> None:
        """Record which loops run over the axes of ``block``; only ``loops`` are new, if given."""
        self._follow(block, self.block(block).bindings, loops)

    def _follow(self, block: BlockRef, bindings: Sequence[Expr], loops: Sequence[LoopRef] | None = None) -> None:
        for position, binding in enumerate(bindings):
            driving = [LoopRef(v.name) for v in free_vars(binding) if not isinstance(v, Extent)]
            found = [loop for loop in driving if loops is None or loop in loops]
            if len(found) == 1:
                self._loops[block, position] = found[0]


@dataclass(frozen=True, slots=True)
class StageAxes:
    """The loops that drive a stage's axes, if each has its own (TVM's ``CL.op``)."""

    axis: tuple[LoopRef, ...]
    reduce_axis: tuple[LoopRef, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """The block of one operation in a schedule; its methods are the primitives, in TVM's notation."""

    schedule: TeSchedule
    block: BlockRef

    @property
    def op(self) -> StageAxes:
        """The loops of the stage, as ``axis`` and ``reduce_axis``."""
        spatial = self.schedule.loops(self.block, (IterKind.SPATIAL, IterKind.ORDERED))
        return StageAxes(spatial, self.schedule.loops(self.block, (IterKind.REDUCE,)))

    @_primitive
    def split(self, axis: Axis, factor: FactorLike = None, nparts: FactorLike = None) -> tuple[LoopRef, LoopRef]:
        """``(outer, inner)``: ``factor`` iterations inside, or ``nparts`` outside; pass exactly one of them.

        Raises ``ScheduleError`` if both or none are given, or the loop can't be split.
        """
        if (factor is None) == (nparts is None):
            raise ScheduleError("split takes either factor= (iterations inside) or nparts= (iterations outside)")
        loop = self.loop(axis)
        names = self._names(axis)
        outer, inner = self._primitives.split(loop, (nparts, factor), names)
        return outer, inner

    @_primitive
    def tile(
        self, y: Axis, x: Axis, y_factor: FactorLike, x_factor: FactorLike
    ) -> tuple[LoopRef, LoopRef, LoopRef, LoopRef]:
        """``(yo, xo, yi, xi)``: tiles of ``y_factor`` by ``x_factor``."""
        loops = (self.loop(y), self.loop(x))
        names = self._names(y, x)
        yo, xo, yi, xi = self._primitives.tile(loops, (y_factor, x_factor), names)
        return yo, xo, yi, xi

    @_primitive
    def fuse(self, *axes: Axis) -> LoopRef:
        """Fuse ``axes``, which are perfectly nested, into one loop."""
        return self._primitives.fuse(*map(self.loop, axes))

    @_primitive
    def reorder(self, *axes: Axis) -> None:
        """Permute ``axes`` into this order, outermost first."""
        self._primitives.reorder(*map(self.loop, axes))

    @_primitive
    def serial(self, axis: Axis) -> None:
        """Run iterations in order again."""
        self._primitives.serial(self.loop(axis))

    @_primitive
    def unroll(self, axis: Axis) -> None:
        """Unroll the loop."""
        self._primitives.unroll(self.loop(axis))

    @_primitive
    def vectorize(self, axis: Axis) -> None:
        """Vectorize the loop: iterations become lanes."""
        self._primitives.vectorize(self.loop(axis))

    @_primitive
    def parallel(self, axis: Axis) -> None:
        """Distribute iterations over workers."""
        self._primitives.parallel(self.loop(axis))

    @_primitive
    def bind(self, axis: Axis, thread: str) -> None:
        """Map iterations to blocks (``"blockIdx.x"``), threads (``"threadIdx.x"``) or ``"vthread"`` of a grid."""
        self._primitives.bind(self.loop(axis), thread)

    @_primitive
    def compute_at(self, parent: "Stage", axis: Axis) -> None:
        """Compute this stage inside ``axis`` of ``parent``, which reads it."""
        self.schedule.follow(self.block, self._primitives.compute_at(self.block, parent.loop(axis)))

    @_primitive
    def reverse_compute_at(self, parent: "Stage", axis: Axis) -> None:
        """Compute this stage inside ``axis`` of ``parent``, which it reads."""
        self.schedule.follow(self.block, self._primitives.reverse_compute_at(self.block, parent.loop(axis)))

    def compute_inline(self) -> None:
        """Inline this stage into its consumers."""
        self._primitives.compute_inline(self.block)

    def reverse_compute_inline(self) -> None:
        """Inline this stage into its producer."""
        self._primitives.reverse_compute_inline(self.block)

    @_primitive
    def decompose_reduction(self, axis: Axis) -> "Stage":
        """Move the initialization of the result to just before ``axis``; returns the new stage."""
        init = self._primitives.decompose_reduction(self.block, self.loop(axis))
        self.schedule.follow(init)
        return Stage(self.schedule, init)

    @_primitive
    def set_scope(self, scope: str | Memory) -> None:
        """Store the result in ``scope`` (``"local"``, ``"global"`` ...)."""
        for region in self.schedule.block(self.block).writes:
            self._primitives.set_scope(region.buffer.name, _scope(scope))

    @_primitive
    def skip_zeros(self) -> None:
        """Leave out the terms of a sum in which a constant factor is zero."""
        self._primitives.skip_zeros(self.block)

    @_primitive
    def skip_padding(self, groups: Sequence[int | Sampled]) -> None:
        """Leave out the terms of a sum that read only padding, for ``groups`` of neighbours along each axis at once."""
        self._primitives.skip_padding(self.block, groups)

    @_primitive
    def tensorize(self, axis: Axis, intrinsic: TensorIntrinsic | str) -> None:
        """Replace ``axis`` and its contents by ``intrinsic``."""
        self._primitives.tensorize(self.loop(axis), intrinsic)

    def double_buffer(self) -> None:
        """Compute the stage one iteration ahead, into the other half of a doubled buffer."""
        self._primitives.double_buffer(self.block)

    def apply(self, primitive: UserPrimitive | str, *arguments: Axis | Argument) -> None:
        """Apply a user-defined primitive; axes of this stage denote their loops."""
        loops = [self.loop(one) if isinstance(one, IterVar) else one for one in arguments]
        made = self._primitives.apply(primitive, *loops)
        new = [one for one in made if isinstance(one, LoopRef)]
        if new:
            self.schedule.follow(self.block, new)

    @_primitive
    def storage_align(self, axis: int, factor: int, offset: int = 0) -> None:
        """Make the stride of dimension ``axis`` of the result ``offset`` modulo ``factor`` elements."""
        for region in self.schedule.block(self.block).writes:
            self._primitives.storage_align(self.block, region.buffer.name, axis, factor, offset)

    @_primitive
    def transform_layout(self, index_map: IndexMap | str) -> tuple[LoopRef, ...]:
        """Store the result packed, as in ``"k, n -> n // 16, k, n % 16"``; returns its new loops."""
        made: tuple[LoopRef, ...] = ()
        for region in self.schedule.block(self.block).writes:
            made += self._primitives.transform_layout(self.block, region.buffer.name, index_map)
        self.schedule.follow(self.block, made)
        return made

    @_primitive
    def pad(self, multiples: Sequence[int | Sampled]) -> tuple["Stage", ...]:
        """Round the extent of each axis up to a multiple; returns the stages that copy."""
        made = self._primitives.pad(self.block, multiples)
        for block in (self.block, *made):
            self.schedule.follow(block)
        return tuple(Stage(self.schedule, block) for block in made)

    @_primitive
    def sample_perfect_tile(
        self, axis: Axis, parts: int, max_innermost: int = 16, decision: Sequence[int] | None = None
    ) -> tuple[Sampled, ...]:
        """Random factors of the extent of ``axis``, for ``split``; ``decision`` gives fixed ones."""
        return self._primitives.sample_perfect_tile(self.loop(axis), parts, max_innermost, decision)

    @_primitive
    def lower_virtual_thread(self, axis: Axis) -> None:
        """Interleave the virtual threads of ``axis``."""
        self._primitives.lower_virtual_thread(self.loop(axis))

    @_primitive
    def annotate(self, key: str, value: int | str | Sampled) -> None:
        """Set the annotation ``key = value`` on the stage."""
        self._primitives.annotate(self.block, key, value)

    @_primitive
    def unannotate(self, key: str) -> None:
        """Remove the annotation ``key`` from the stage."""
        self._primitives.unannotate(self.block, key)

    def loop(self, axis: Axis) -> LoopRef:
        """The loop of this stage that ``axis`` denotes. Raises ``ScheduleError`` if there is none."""
        return self.schedule.loop(self.block, axis)

    @property
    def _primitives(self) -> Schedule:
        return self.schedule.schedule

    def _names(self, *axes: Axis) -> tuple[str, ...]:
        """``yo, xo, yi, xi`` for the axes ``y, x``; numbered if a name is taken."""
        taken = variable_names(self.schedule.program)
        names: list[str] = []
        for suffix in "oi":
            for axis in axes:
                own = identifier(axis.name.partition(MARK)[0])
                names.append(fresh_name(f"{own}{suffix}", taken))
                taken.add(names[-1])
        return tuple(names)


def _scope(scope: str | Memory) -> Memory:
    if isinstance(scope, Memory):
        return scope
    if scope not in MEMORIES:
        raise ScheduleError(f"there is no memory {scope!r}; known: {', '.join(MEMORIES)}; or give a Memory")
    return MEMORIES[scope]
