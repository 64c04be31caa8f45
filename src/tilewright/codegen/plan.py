"""Memory of a main program: where each intermediate lives in the workspace, by liveness.

Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the largest
buffer first, each at the lowest offset where it overlaps nothing that is alive at the same time.
"""

from dataclasses import dataclass

from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Alloc, Buffer, Call, If, Loop, Seq, Stmt
from tilewright.loops.program import Program
from tilewright.runtime.abi import ALIGNMENT
from tilewright.symbolic.bounds import Bounds, interval


@dataclass(slots=True)
class _Lifetime:
    buffer: Buffer
    first: int
    last: int
    size: int


def plan_memory(program: Program) -> tuple[dict[str, int], int]:
    """The offset of every allocation of ``program``, and the bytes of all.

    Sizes are taken at the upper bounds of the run-time extents. Raises ``Unsupported`` if one has no bound.
    """
    lifetimes = _Liveness(program).lifetimes()
    placed: list[tuple[int, _Lifetime]] = []
    for lifetime in sorted(lifetimes, key=lambda item: (-item.size, item.first, item.buffer.name)):
        others = [(at, other) for at, other in placed if other.first <= lifetime.last and lifetime.first <= other.last]
        placed.append((_lowest_gap(lifetime.size, others), lifetime))
    offsets = {lifetime.buffer.name: at for at, lifetime in placed}
    return offsets, max((at + lifetime.size for at, lifetime in placed), default=0)


def _lowest_gap(size: int, others: list[tuple[int, _Lifetime]]) -> int:
    offset = 0
    for at, other in sorted(others, key=lambda item: item[0]):
        if offset + size <= at:
            break
        offset = max(offset, at + other.size)
    return offset


class _Liveness:
    """First and last use of every allocated buffer, in the order of the statements."""

    def __init__(self, program: Program) -> None:
        self._bounds = Bounds({}, {dim.var: dim.bound for dim in program.dims})
        self._found: dict[str, _Lifetime] = {}
        self._unused: dict[str, Buffer] = {}
        self._clock = 0
        self._visit(program.body)

    def lifetimes(self) -> list[_Lifetime]:
        return list(self._found.values())

    def _visit(self, stmt: Stmt) -> None:
        while isinstance(stmt, Alloc):  # a loop, as a main program has one for each of its calls
            self._unused[stmt.buffer.name] = stmt.buffer
            stmt = stmt.body
        match stmt:
            case Seq(statements):
                for inner in statements:
                    self._visit(inner)
            case Call():
                self._clock += 1
                for region in stmt.args:
                    self._use(region.buffer, self._clock, self._clock)
            case Loop() | If():
                self._visit_whole(stmt)
            case _:
                pass

    def _visit_whole(self, stmt: Loop | If) -> None:
        """What is used in a loop or branch lives as long as all of it: iterations come back."""
        first = self._clock + 1
        before = set(self._found)
        inner = (stmt.body,) if isinstance(stmt, Loop) else (stmt.then, stmt.otherwise)
        for body in inner:
            if body is not None:
                self._visit(body)
        for name, lifetime in self._found.items():
            if name not in before or lifetime.last >= first:
                lifetime.first = min(lifetime.first, first)
                lifetime.last = self._clock

    def _use(self, buffer: Buffer, first: int, last: int) -> None:
        known = self._found.get(buffer.name)
        if known is not None:
            known.last = last
        elif buffer.name in self._unused:
            self._found[buffer.name] = _Lifetime(buffer, first, last, self._size(buffer))

    def _size(self, buffer: Buffer) -> int:
        size = buffer.dtype.itemsize
        for extent in buffer.shape:
            bound = interval(extent, self._bounds).hi
            if bound is None:
                raise Unsupported(f"`{buffer.name}` has extent {extent} without an upper bound; give one for its dims")
            size *= bound
        return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
