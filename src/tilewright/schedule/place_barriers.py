"""``place_barriers``: inserts barriers where threads of a block depend on each other.

Accesses of a phase (a nest of loops over threads, or statements of thread 0 alone) to shared memory are pending until a
barrier. A phase that conflicts with pending accesses, of the same iteration of the loops around or of the one before,
gets a barrier in front. Conflicts are decided by regions: the two halves of a double buffer do not conflict.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.loops.access import region_over, regions
from tilewright.loops.ir import NOTHING, Alloc, Barrier, Block, Buffer, If, Loop, Range, Region, Seq, Stmt
from tilewright.loops.launch import nests
from tilewright.loops.memory import Sharing
from tilewright.loops.program import Program
from tilewright.loops.visit import seq, seq_items, transform_stmts, walk
from tilewright.schedule.bind import require_launches
from tilewright.schedule.ownership import require_own_elements
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE, Binary, Const, Expr, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.traversal import free_vars, substitute


def place_barriers(program: Program) -> tuple[Program, None]:
    """Insert barriers into all launches where threads need them, in place of all existing ones.

    Refuses if a buffer is allocated where its memory does not exist, or if threads access each other's elements. Call
    it last: further steps may need other barriers.
    """
    bare = transform_stmts(program.body, lambda stmt: NOTHING if isinstance(stmt, Barrier) else None)
    without = dataclasses.replace(program, body=bare)
    require_launches(without, finished=True)
    require_own_elements(without)
    launches = list(nests(bare))

    def leave(stmt: Stmt) -> Stmt | None:
        return _Placing(program.bounds).launch(stmt) if any(stmt is nest for nest in launches) else None

    return dataclasses.replace(program, body=transform_stmts(bare, leave)), None


@dataclass(frozen=True, slots=True)
class _Touch:
    """A read or write of a region in memory that threads share."""

    region: Region
    is_write: bool
    is_alone: bool
    """By thread 0 only."""

    def moved(self, values: Mapping[Var, Expr]) -> "_Touch":
        """With ``values`` in place of variables."""
        ranges = tuple((substitute(start, values), substitute(size, values)) for start, size in self.region.ranges)
        return dataclasses.replace(self, region=Region(self.region.buffer, ranges))

    def over(self, variables: Sequence[Var], bounds: Bounds) -> "_Touch":
        """With the accesses for all values of ``variables``."""
        return dataclasses.replace(self, region=region_over(self.region, bounds, variables))


class _Placing:
    """Traverses a launch in order of execution; ``_pending``: the accesses since the last barrier."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds: Bounds = bounds
        self._pending: list[_Touch] = []
        self._known: dict[Stmt, list[_Touch]] = {}
        """Cache of the phases' accesses; each is used several times."""

    def launch(self, stmt: Stmt) -> Stmt:
        """``stmt`` with barriers."""
        if isinstance(stmt, Loop) and stmt.kind.is_block:
            self._bounds = self._bounds.extended({stmt.var: stmt.extent})
            return dataclasses.replace(stmt, body=self.launch(stmt.body))
        return self._visit(stmt)

    def _visit(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Barrier():
                self._pending = []
                return stmt
            case Alloc(buffer, body):
                return Alloc(buffer, self._visit(body))
            case Seq():
                return seq(*map(self._visit, seq_items(stmt)))
            case Loop() if not stmt.kind.is_thread and _has_phases(stmt.body):
                return self._loop(stmt)
            case If() if _has_phases(stmt):
                return self._if(stmt)
            case _:
                return self._phase(stmt)

    def _phase(self, stmt: Stmt) -> Stmt:
        if stmt in self._known:
            return self._after_pending(stmt, self._known[stmt])
        found = regions(stmt, self._bounds)
        alone = not any(isinstance(node, Loop) and node.kind.is_thread for node in walk(stmt))
        touches = [_Touch(region, False, alone) for region in found.reads]
        touches += [_Touch(region, True, alone) for region in found.writes]
        touches = [t for t in touches if t.region.buffer.memory.sharing is not Sharing.THREAD]
        self._known[stmt] = touches
        return self._after_pending(stmt, touches)

    def _after_pending(self, stmt: Stmt, touches: Sequence[_Touch]) -> Stmt:
        """``stmt``, which begins with ``touches``, with a barrier before it if needed."""
        if any(self._conflict(before, after) for before in self._pending for after in touches):
            self._pending = list(touches)
            return seq(Barrier(), stmt)
        self._pending += (touch for touch in touches if touch not in self._pending)
        return stmt

    def _if(self, stmt: If) -> Stmt:
        before = self._pending
        then, after = self._visit(stmt.then), self._pending
        self._pending = list(before)
        otherwise = None if stmt.otherwise is None else self._visit(stmt.otherwise)
        self._pending += (touch for touch in (*after, *before) if touch not in self._pending)
        return If(stmt.condition, then, otherwise)

    def _loop(self, loop: Loop) -> Stmt:
        """Insert barriers inside for dependences between iterations, and one before for pending accesses."""
        outside = self._bounds
        if loop.extent == ONE:  # no dependences between iterations: loops in one another are visited many times
            self._bounds = outside.extended({loop.var: ONE})
            body = self._visit(loop.body)
            self._bounds = outside
            return dataclasses.replace(loop, body=body)
        waits = any(self._conflict(before, after) for before in self._pending for after in self._starts(loop))
        entered: list[_Touch] = [] if waits else self._pending
        ago = Var(f"{loop.var.name}.ago")
        self._bounds = outside.extended({loop.var: loop.extent, ago: loop.extent})
        self._pending = []
        body = self._visit(loop.body)
        for before in (loop.var - 1, loop.var - 1 - ago):
            if before != loop.var - 1 and _always_meets(body):
                break
            self._pending = [touch.moved({loop.var: before}) for touch in self._pending]
            body = self._visit(body)
        left = [touch.over((loop.var, ago), self._bounds) for touch in self._pending]
        self._pending = list(entered)
        waits = waits or self._visit(body) != body
        self._bounds = outside
        if waits or (_always_meets(body) and prove(loop.extent >= ONE, outside)):
            entered = []
        self._pending = [*left, *(touch for touch in entered if touch not in left)]
        changed = dataclasses.replace(loop, body=body)
        return seq(Barrier(), changed) if waits else changed

    def _starts(self, loop: Loop) -> list[_Touch]:
        """The inits of reductions over ``loop``: when blocks are dissolved, they go before the loop."""
        starting: set[Buffer] = set()
        for block in (node for node in walk(loop) if isinstance(node, Block) and node.init is not None):
            reduced = [b for axis, b in zip(block.axes, block.bindings, strict=True) if axis.kind is IterKind.REDUCE]
            if any(loop.var in free_vars(binding) for binding in reduced):
                starting.update(region.buffer for region in block.writes)
        shared = {buffer for buffer in starting if buffer.memory.sharing is not Sharing.THREAD}
        found = regions(loop, self._bounds, wanted=shared).writes if shared else ()
        return [_Touch(region, True, False) for region in found]

    def _conflict(self, a: _Touch, b: _Touch) -> bool:
        if (
            a.region.buffer.name != b.region.buffer.name
            or not (a.is_write or b.is_write)
            or (a.is_alone and b.is_alone)
        ):
            return False
        return not any(map(self._apart, a.region.ranges, b.region.ranges))

    def _apart(self, a: Range, b: Range) -> bool:
        """Whether two ranges of a dimension are disjoint."""
        match a, b:
            case (Binary(BinaryOp.MOD, x, Const(int(m))), ext), (Binary(BinaryOp.MOD, y, Const(int(n))), other):
                step = simplify(x - y, self._bounds)
                if m == n and ext == other == ONE and isinstance(step, Const):
                    return int(step.value) % m != 0
            case _:
                pass
        return self._below(a, b) or self._below(b, a)

    def _below(self, a: Range, b: Range) -> bool:
        return prove(a[0] + a[1] <= b[0], self._bounds)


def _has_phases(stmt: Stmt) -> bool:
    """Whether ``stmt`` contains loops over threads inside of other loops, so that it is more than one phase."""
    return any(isinstance(node, Loop) and node.kind.is_thread for node in walk(stmt))


def _always_meets(stmt: Stmt) -> bool:
    """Whether each run of ``stmt`` reaches a barrier."""
    match stmt:
        case Barrier():
            return True
        case Alloc(_, body):
            return _always_meets(body)
        case Seq(statements):
            return any(map(_always_meets, statements))
        case Loop(extent=Const(int(times)), body=body):
            return times > 0 and _always_meets(body)
        case _:
            return False
