"""Tensor expressions and their schedules, in the notation of the literature (TVM, OSDI 2018).

Enters: tensors made by ``placeholder``, ``compute``, ``sum`` ... Leaves: a loop program. The schedule is eager: every
line rewrites the program, which ``print(s)`` shows, and what can't be done is refused at that line. A new primitive is
one method of ``schedule.Schedule``, and, if the literature has a notation for it, one method of ``Stage``. ::

    A, B = te.placeholder((1024, 1024), name="A"), te.placeholder((1024, 1024), name="B")
    k = te.reduce_axis((0, 1024), name="k")
    C = te.compute((1024, 1024), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")
    s = te.create_schedule(C)
    yo, xo, yi, xi = s[C].tile(C.op.axis[0], C.op.axis[1], 8, 8)
    s[C].reorder(yo, xo, k, yi, xi)
    s[C].vectorize(xi)
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tilewright.backend.cpu.register_code import check_implementations
from tilewright.backend.reference import Report, run_reference
from tilewright.base.arguments import checked
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, BadProgram, ScheduleError
from tilewright.base.names import fresh_name, identifier
from tilewright.kernels.dot_products import dot_products as _dot_products
from tilewright.loops.extern import extern as _extern
from tilewright.loops.ir import Block
from tilewright.loops.lower import Lowered, lower_named
from tilewright.loops.memory import MEMORIES, Memory
from tilewright.loops.positions import refuse_outside
from tilewright.loops.program import Program
from tilewright.loops.reader import format_loops as _format_loops
from tilewright.schedule.intrinsics import IntrinsicSet, TensorIntrinsic
from tilewright.schedule.intrinsics import decl_tensor_intrin as _decl_tensor_intrin
from tilewright.schedule.schedule import FactorLike, Schedule
from tilewright.schedule.trace import Argument, Trace
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, block_at, variable_names
from tilewright.schedule.user_primitive import UserPrimitive
from tilewright.symbolic.check import checked_index as _checked_index
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import Expr, Extent
from tilewright.symbolic.traversal import free_vars
from tilewright.tensor import build, functions, reducers
from tilewright.tensor import scan as recurrences
from tilewright.tensor.ir import MARK, Compute, Tensor

__all__ = [
    "IntrinsicSet",
    "Stage",
    "TeSchedule",
    "Tensor",
    "TensorIntrinsic",
    "abs",
    "argmax",
    "argmin",
    "cast",
    "ceil",
    "checked_index",
    "comm_reducer",
    "compute",
    "const",
    "cos",
    "create_schedule",
    "decl_tensor_intrin",
    "dot_products",
    "erf",
    "exp",
    "extern",
    "floor",
    "format_loops",
    "if_then_else",
    "log",
    "lower",
    "max",
    "max_value",
    "min",
    "min_value",
    "placeholder",
    "power",
    "prod",
    "reduce_axis",
    "round",
    "run_on_reference",
    "scan",
    "select",
    "sigmoid",
    "sin",
    "sqrt",
    "sum",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
    "var",
]

# What is called here comes from users; inside of the compiler the same functions are called unchecked.
_public = checked(BadProgram)
_primitive = checked(ScheduleError)

argmax, argmin = _public(build.argmax), _public(build.argmin)
cast = _public(build.cast)
checked_index = _public(_checked_index)
comm_reducer = _public(build.comm_reducer)
compute = _public(build.compute)
const = _public(build.const)
dot_products = _public(_dot_products)
extern = _public(_extern)
if_then_else = _public(build.if_then_else)
max, min = _public(reducers.max), _public(reducers.min)
max_value, min_value = _public(build.max_value), _public(build.min_value)
placeholder = _public(build.placeholder)
prod = _public(build.prod)
reduce_axis = _public(build.reduce_axis)
scan = _public(recurrences.scan)
select = _public(build.select)
sum = _public(reducers.sum)
var = _public(build.var)
format_loops = _public(_format_loops)

abs, ceil, cos, erf, exp = map(_public, (functions.abs, functions.ceil, functions.cos, functions.erf, functions.exp))
floor, log, round, sigmoid = map(_public, (functions.floor, functions.log, functions.round, functions.sigmoid))
sin, sqrt, tanh, trunc = map(_public, (functions.sin, functions.sqrt, functions.tanh, functions.trunc))
power, truncdiv, truncmod = map(_public, (functions.power, functions.truncdiv, functions.truncmod))

Axis: TypeAlias = IterVar | LoopRef
"""A loop: the axis of an operation, before it is split or fused, or what a primitive returned."""


@_public
def decl_tensor_intrin(
    output: Tensor,
    name: str,
    *,
    reset: str | None = None,
    update: str | None = None,
    implementations: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
) -> TensorIntrinsic:
    """Declare the intrinsic that computes ``output`` from its placeholders: see ``schedule.intrinsics``.

    Raises ``BadProgram``, also for implementations that are no LLVM IR, or of other types than the declaration.
    """
    declared = _decl_tensor_intrin(
        output, name, reset=reset, update=update, implementations=implementations, features=features
    )
    check_implementations(declared)
    return declared


@_public
def create_schedule(
    outputs: Tensor | Sequence[Tensor],
    name: str = "main",
    *,
    inputs: Sequence[Tensor] | None = None,
    dims: Mapping[str, int] | None = None,
    intrinsics: IntrinsicSet | None = None,
) -> "TeSchedule":
    """The schedule of the naive program that computes ``outputs``; the arguments are those of ``loops.lower``.

    Raises ``BadProgram`` for an access that is provably outside of its tensor.
    """
    lowered = lower_named(outputs, name, inputs=inputs, dims=dims)
    refuse_outside(lowered.program)
    return TeSchedule(Schedule(lowered.program, intrinsics), lowered)


@_public
def lower(schedule: "TeSchedule") -> Program:
    """The loop program that ``schedule`` has come to."""
    return schedule.program


@_public
def run_on_reference(
    schedule: "TeSchedule | Program", inputs: Mapping[str, object], dims: Mapping[str, int] | None = None
) -> tuple[dict[str, Array], Report]:
    """What ``schedule`` makes of NumPy arrays on the reference back end, by name, and what the run was like.

    The report counts bytes by memory, operations and barriers, and has races and wrong accesses, which its ``check``
    raises. ``dims`` gives run-time extents that no shape tells. Raises ``BadFeed`` for inputs that do not fit.
    """
    arrays: dict[str, Array] = {}
    for name, value in inputs.items():
        if not isinstance(value, np.ndarray):
            raise BadFeed(f"{name} is {type(value).__name__}; give a NumPy array")
        arrays[name] = value
    return run_reference(schedule if isinstance(schedule, Program) else schedule.program, arrays, dims)


class TeSchedule:
    """A schedule with one ``Stage`` for each operation: ``s[C]``. ``print(s)`` shows the loops."""

    def __init__(self, schedule: Schedule, lowered: Lowered) -> None:
        self.schedule = schedule
        self._blocks: dict[object, BlockRef] = {op: BlockRef(name) for op, name in lowered.blocks.items()}
        self._buffers = lowered.buffers
        self._axes: dict[BlockRef, tuple[IterVar, ...]] = {}
        self._loops: dict[tuple[BlockRef, int], LoopRef] = {}
        blocks = {block.name: block for block in all_blocks(self.program.body)}
        for op, block in self._blocks.items():
            self._follow(block, blocks[block.name].bindings)
            if isinstance(op, Compute):
                self._axes[block] = (*op.axis, *op.reduce_axis)

    @property
    def program(self) -> Program:
        """The loop program so far."""
        return self.schedule.program

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return self.schedule.trace

    def __str__(self) -> str:
        return _format_loops(self.program)

    @_primitive
    def __getitem__(self, tensor: "Tensor | Stage") -> "Stage":
        """The stage that computes ``tensor``. Raises ``ScheduleError`` for inputs, and tensors of other programs."""
        if isinstance(tensor, Stage):
            return tensor
        block = self._blocks.get(tensor.op)
        if block is None:
            raise ScheduleError(f"{tensor!r} is not computed in this schedule; inputs have no stage (use cache_read)")
        return Stage(self, block)

    @_primitive
    def cache_read(self, tensor: "Tensor | Stage", scope: str | Memory, readers: Sequence["Tensor | Stage"]) -> "Stage":
        """``readers`` read a copy of ``tensor`` in ``scope``; returns the stage of the copy.

        So far for one reader at a time: raises ``ScheduleError`` for more or fewer.
        """
        if len(readers) != 1:
            raise ScheduleError(f"cache_read makes a copy for one reader, not {len(readers)}; call it for each")
        copy = self.schedule.cache_read(self[readers[0]].block, self._buffer_of(tensor), _scope(scope))
        self.follow(copy)
        return Stage(self, copy)

    @_primitive
    def cache_write(self, tensor: "Tensor | Stage", scope: str | Memory) -> "Stage":
        """Compute ``tensor`` in ``scope``; returns the stage that does, and ``s[tensor]`` becomes the copy to it.

        The spatial axes of the operation then stand for the loops of the copy, and its reduction axes for those of the
        computation, as in TVM.
        """
        stage = self[tensor]
        copy = self.schedule.cache_write(stage.block, self._buffer_of(tensor), _scope(scope))
        if isinstance(tensor, Tensor):
            self._blocks[tensor.op] = copy
            if isinstance(tensor.op, Compute):
                self._axes[copy] = tensor.op.axis
        self.follow(copy)
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
        """Let the threads of each block wait for each other wherever they have to; the last step of a schedule."""
        self.schedule.place_barriers()

    def loop(self, block: BlockRef, axis: Axis) -> LoopRef:
        """The loop that ``axis`` of ``block`` stands for, if it is around it. Raises ``ScheduleError`` if not."""
        found = axis
        if isinstance(axis, IterVar):
            own = self._axes.get(block, ())
            found = self._loops.get((block, own.index(axis))) if axis in own else None
        if isinstance(found, LoopRef) and found in self.schedule.get_loops(block):
            return found
        raise ScheduleError(f"`{axis.name}` is no loop of stage {block} (any more)\n\n{self.program}")

    def loops(self, block: BlockRef, kinds: Container[IterKind]) -> tuple[LoopRef, ...]:
        """The loops over the axes of ``block`` that are of one of ``kinds``, as they were before any split or fuse."""
        wanted = (i for i, axis in enumerate(self.block(block).axes) if axis.kind in kinds)
        return tuple(self._loops[block, i] for i in wanted if (block, i) in self._loops)

    def _buffer_of(self, tensor: "Tensor | Stage") -> str:
        if isinstance(tensor, Tensor):
            key = (tensor.op, tensor.output)
            if key not in self._buffers:
                raise ScheduleError(f"{tensor!r} does not occur in this schedule")
            return self._buffers[key]
        return self.block(tensor.block).writes[0].buffer.name

    def block(self, block: BlockRef) -> Block:
        """The block as it is now."""
        return block_at(self.program, self.schedule.get_block(block.name)).stmt

    def follow(self, block: BlockRef, loops: Sequence[LoopRef] | None = None) -> None:
        """Note which loops run over the axes of ``block``; only ``loops`` are new, if these are given."""
        self._follow(block, self.block(block).bindings, loops)

    def _follow(self, block: BlockRef, bindings: Sequence[Expr], loops: Sequence[LoopRef] | None = None) -> None:
        for position, binding in enumerate(bindings):
            driving = [LoopRef(v.name) for v in free_vars(binding) if not isinstance(v, Extent)]
            found = [loop for loop in driving if loops is None or loop in loops]
            if len(found) == 1:
                self._loops[block, position] = found[0]


@dataclass(frozen=True, slots=True)
class StageAxes:
    """The loops that drive a stage's axes, where each has one of its own (the literature's ``CL.op``)."""

    axis: tuple[LoopRef, ...]
    reduce_axis: tuple[LoopRef, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """The block of one operation in a schedule; its methods are the primitives, in the literature's notation."""

    schedule: TeSchedule
    block: BlockRef

    @property
    def op(self) -> StageAxes:
        """The loops of the stage, as ``axis`` and ``reduce_axis``."""
        spatial = self.schedule.loops(self.block, (IterKind.SPATIAL, IterKind.ORDERED))
        return StageAxes(spatial, self.schedule.loops(self.block, (IterKind.REDUCE,)))

    @_primitive
    def split(self, axis: Axis, factor: FactorLike = None, nparts: FactorLike = None) -> tuple[LoopRef, LoopRef]:
        """``(outer, inner)``: ``factor`` iterations inside, or ``nparts`` outside; give one of the two.

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
        """One loop over all of ``axes``, which are directly in one another."""
        return self._primitives.fuse(*map(self.loop, axes))

    @_primitive
    def reorder(self, *axes: Axis) -> None:
        """Put ``axes`` in this order, outermost first."""
        self._primitives.reorder(*map(self.loop, axes))

    @_primitive
    def unroll(self, axis: Axis) -> None:
        """Copy the body for each iteration."""
        self._primitives.unroll(self.loop(axis))

    @_primitive
    def vectorize(self, axis: Axis) -> None:
        """Make the iterations lanes."""
        self._primitives.vectorize(self.loop(axis))

    @_primitive
    def parallel(self, axis: Axis) -> None:
        """Spread the iterations over workers."""
        self._primitives.parallel(self.loop(axis))

    @_primitive
    def bind(self, axis: Axis, thread: str) -> None:
        """Make the iterations blocks (``"blockIdx.x"``), threads (``"threadIdx.x"``) or ``"vthread"`` of a grid."""
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
        """Compute this stage where it is read."""
        self._primitives.compute_inline(self.block)

    def reverse_compute_inline(self) -> None:
        """Compute this stage where what it reads is made."""
        self._primitives.reverse_compute_inline(self.block)

    @_primitive
    def set_scope(self, scope: str | Memory) -> None:
        """Keep the result in ``scope`` (``"local"``, ``"global"`` ...)."""
        for region in self.schedule.block(self.block).writes:
            self._primitives.set_scope(region.buffer.name, _scope(scope))

    @_primitive
    def tensorize(self, axis: Axis, intrinsic: TensorIntrinsic | str) -> None:
        """Replace ``axis`` and what is inside by ``intrinsic``."""
        self._primitives.tensorize(self.loop(axis), intrinsic)

    def double_buffer(self) -> None:
        """Compute the stage one iteration ahead, in the other half of a buffer twice as large."""
        self._primitives.double_buffer(self.block)

    def apply(self, primitive: UserPrimitive | str, *arguments: Axis | Argument) -> None:
        """Somebody else's primitive; axes of this stage stand for their loops."""
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
    def lower_virtual_thread(self, axis: Axis) -> None:
        """Run the virtual threads of ``axis`` in step."""
        self._primitives.lower_virtual_thread(self.loop(axis))

    @_primitive
    def pragma(self, key: str, value: int | str) -> None:
        """Note ``key = value`` on the stage."""
        self._primitives.annotate(self.block, key, value)

    def loop(self, axis: Axis) -> LoopRef:
        """The loop of this stage that ``axis`` stands for. Raises ``ScheduleError`` if there is none."""
        return self.schedule.loop(self.block, axis)

    @property
    def _primitives(self) -> Schedule:
        return self.schedule.schedule

    def _names(self, *axes: Axis) -> tuple[str, ...]:
        """``yo, xo, yi, xi`` for the axes ``y, x``; numbered where that is taken."""
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
