"""A block as the compiler sees it: what it stores, over the loops around it, and under which conditions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.backend.vta.compiler.forms import Form, conditions_of, constant, flat
from tilewright.backend.vta.compiler.tiles import Lanes, Tiled
from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.memories import memories
from tilewright.base.errors import Unsupported
from tilewright.loops import visit
from tilewright.loops.ir import Block, Buffer, Call, If, Loop, Region, Stmt, Store
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import TRUE, Expr, Read, equal
from tilewright.symbolic.traversal import all_of

Effect = Store | Call


@dataclass(frozen=True, slots=True)
class Site:
    """A block and the loops around it."""

    block: Block
    loops: Mapping[str, int]
    """The extents of all loops around, outermost first."""
    bounds: Bounds
    config: Config

    @staticmethod
    def of(block: Block, around: Sequence[Loop], config: Config) -> "Site":
        """The site of ``block``. Raises ``Unsupported`` for run-time extents."""
        loops = {loop.var.name: constant(loop.extent, f"`{loop.var}` has the extent") for loop in around}
        return Site(block, loops, Bounds({loop.var: loop.extent for loop in around}), config)

    def pad(self, buffer: Buffer) -> Scratchpad | None:
        """The memory on the chip of a buffer; None in device memory."""
        return memories(self.config).pad(buffer.memory)

    def body(self) -> tuple[Effect, Expr]:
        """What an iteration does, over the loops around, and where."""
        return self._effect(self.block.body, self.block.predicate)

    def init(self) -> tuple[Effect, Expr] | None:
        """What the first iteration of a reduction does before, and where; None for what is no reduction."""
        if self.block.init is None:
            return None
        pairs = zip(self.block.axes, self.block.bindings, strict=True)
        first = all_of(*(equal(binding, 0) for axis, binding in pairs if axis.kind is IterKind.REDUCE))
        return self._effect(self.block.init, all_of(self.block.predicate, first))

    def _effect(self, stmt: Stmt, condition: Expr) -> tuple[Effect, Expr]:
        axes = zip(self.block.axes, self.block.bindings, strict=True)
        inner = visit.substitute(stmt, {axis.var: binding for axis, binding in axes})
        while isinstance(inner, If) and inner.otherwise is None:
            condition, inner = all_of(condition, inner.condition), inner.then
        if not isinstance(inner, Store | Call):
            raise Unsupported("its body is not one store or one call")
        return inner, condition

    def conditions(self, condition: Expr) -> tuple[Form, ...]:
        """A condition as forms that are at least 0."""
        return () if condition == TRUE else conditions_of(condition, self.bounds)

    def form(self, access: Read | Store) -> Form:
        """The position of an element."""
        buffer = buffer_of(access)
        return flat(buffer, access.indices, self.bounds)

    def tiled(self, access: Read | Store, lanes: Lanes, size: int) -> Tiled:
        """An access in tiles. Raises ``Unsupported`` if its loops over elements of tiles are not ``lanes``."""
        form, buffer = self.form(access), buffer_of(access)
        steps = dict(form.loops)
        if any(steps.get(name) != step for name, step in lanes.items()):
            raise Unsupported(f"it moves elements of {buffer.name} to other places of their tiles")
        return Tiled(buffer, form, size, lanes)

    def region(self, region: Region, size: int) -> Tiled:
        """An operand of GEMM: one tile."""
        starts = [start for start, _ in region.ranges]
        return Tiled(region.buffer, flat(region.buffer, starts, self.bounds), size, {})


def buffer_of(access: Read | Store) -> Buffer:
    """The buffer of an access."""
    buffer = access.buffer if isinstance(access, Store) else access.source
    assert isinstance(buffer, Buffer), "loop programs read buffers"
    return buffer
