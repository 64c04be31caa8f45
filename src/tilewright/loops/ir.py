"""Loop IR: statements over buffers, for kernels and for the main program of a network.

Grammar
-------
::

    statement = Loop(var, extent, kind, body)
              | Block(name, axes, bindings, predicate, init, body, reads, writes, annotations)
              | Seq(statements) | If(condition, then, otherwise)
              | Alloc(buffer, body)
              | Store(buffer, indices, value) | Stores(stores)      one element; several at once
              | Call(callee, args)            an intrinsic on regions, or a kernel on those in one piece
              | Barrier()                     all threads of a block meet
    buffer    = Buffer(name, dtype, shape, memory)
    region    = Region(buffer, ranges)        ranges: (start, extent) for each dimension

Meaning
-------
- Statements run in order; a ``Loop`` runs its body for ``var`` = 0 .. extent - 1 (not at all if the extent is <= 0).
  Its kind never changes the result: ``PARALLEL`` iterations may run at once on several workers (with a join at the
  end), ``VECTORIZED`` ones are lanes, ``UNROLLED`` ones are copies of the body; those over blocks, threads and virtual
  threads are a launch's (``launch.py`` has their rules, and those of ``Barrier``).
- ``Block`` is the unit of scheduling. On entry its axes take the values of ``bindings`` (over the loops outside). If
  ``predicate`` (over the loops outside) is false, nothing happens. Otherwise, if there is an ``init`` and all reduction
  axes are 0, ``init`` runs; then ``body``. If a reduction axis is empty, only ``init`` runs, once for each spatial
  point: an empty reduction is the identity. Inside, only the block's own axes and run-time extents are visible. Each
  point of the axes' box is executed exactly once (for ``REDUCE`` with init: the zero point of the reduction axes before
  all others with the same spatial point; ``ORDERED`` axes ascending). The verifier and the interpreter check it. "Once"
  holds per lifetime of the written buffers: in a loop around their ``Alloc``, points may be computed again, and points
  whose elements are not read may be left out (with all their reduction points).
- Names of loops and axes are never shadowed: an axis has another name than all loops, extents and axes around it.
  Run-time extents have their own class of variables (``Extent``).
- ``Alloc`` gives ``buffer`` undefined contents for the duration of its body: in a parallel loop, one for each worker.
- ``reads`` and ``writes`` are the regions, over the block's axes, that ``init`` and ``body`` may touch.
- Buffers are dense and row-major, and never alias.
- A program (``program.py``) adds the parameters and the run-time extents, which are never negative.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.loops.memory import GLOBAL, Memory
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import TRUE, Expr, ExprLike, Read, Source, Var, as_expr
from tilewright.symbolic.sizes import check_size
from tilewright.tensor.ir import Opaque


class LoopKind(Enum):
    """The execution of a loop's iterations."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    BLOCK_X = "blockIdx.x"
    BLOCK_Y = "blockIdx.y"
    BLOCK_Z = "blockIdx.z"
    THREAD_X = "threadIdx.x"
    THREAD_Y = "threadIdx.y"
    THREAD_Z = "threadIdx.z"
    VIRTUAL_THREAD = "vthread"

    def __init__(self, word: str) -> None:
        # Attributes, as every pass reads them for each loop.
        self.is_block = word.startswith("block")
        """Whether the iterations are blocks of a grid."""
        self.is_thread = word.startswith("thread")
        """Whether the iterations are threads of a block."""
        self.is_of_device = self.is_block or self.is_thread or word == "vthread"
        """Whether it needs a device with a grid of threads."""


@dataclass(frozen=True, slots=True, repr=False)
class Buffer(Source):
    """A dense row-major array. Names are unique within a program."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    memory: Memory = GLOBAL

    def __post_init__(self) -> None:
        check_size(self.name, self.dtype, self.shape)

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Expr:
        """The element at ``indices`` (of rank 0: ``b[()]``)."""
        listed = indices if isinstance(indices, tuple) else (indices,)
        if len(listed) != len(self.shape):
            raise BadProgram(f"{self.name} has {len(self.shape)} dimensions, but is read with {len(listed)} indices")
        return Read(self, tuple(map(as_expr, listed)))

    def __hash__(self) -> int:
        return hash(self.name)


Range: TypeAlias = tuple[Expr, Expr]
Annotations: TypeAlias = tuple[tuple[str, int | str], ...]


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a buffer: ``(start, extent)`` for each dimension."""

    buffer: Buffer
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Store(Opaque):
    """``buffer[indices] = value``."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Stores(Opaque):
    """Simultaneous assignment: all values are evaluated before the first store (for tuple reducers)."""

    stores: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class Seq(Opaque):
    """Statements in sequence. ``Seq(())`` does nothing."""

    statements: tuple["Stmt", ...]


@dataclass(frozen=True, slots=True)
class If(Opaque):
    """``then`` where ``condition`` holds, else ``otherwise``."""

    condition: Expr
    then: "Stmt"
    otherwise: "Stmt | None" = None


@dataclass(frozen=True, slots=True)
class Loop(Opaque):
    """``for var in range(extent)``, executed by ``kind``."""

    var: Var
    extent: Expr
    body: "Stmt"
    kind: LoopKind = LoopKind.SERIAL


@dataclass(frozen=True, slots=True)
class Alloc(Opaque):
    """``buffer`` exists within ``body``."""

    buffer: Buffer
    body: "Stmt"


@dataclass(frozen=True, slots=True)
class Block(Opaque):
    """The unit of scheduling (see the module's notes)."""

    name: str
    axes: tuple[IterVar, ...]
    bindings: tuple[Expr, ...]
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    body: "Stmt"
    init: "Stmt | None" = None
    predicate: Expr = TRUE
    annotations: Annotations = ()


class Callee(Enum):
    """Kinds of callees."""

    INTRINSIC = "intrinsic"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class Call(Opaque):
    """``callee(args)``: an intrinsic on regions, or a kernel (another program, by name) on regions in one piece: all
    dimensions but the first are whole.

    The callee may see such a region in another shape with as many elements, in the same row-major order. The last
    ``outputs`` arguments may be written, the others are only read.
    """

    kind: Callee
    callee: str
    args: tuple[Region, ...]
    outputs: int = 1


@dataclass(frozen=True, slots=True)
class Barrier(Opaque):
    """All threads of a block wait for each other, and then see each other's stores (``launch.py``)."""


Stmt: TypeAlias = Store | Stores | Seq | If | Loop | Alloc | Block | Call | Barrier

NOTHING = Seq(())
