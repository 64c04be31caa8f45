"""Counts the work of a naive loop program: operations on values, and bytes of its arguments.

The count is independent of the schedule: recomputed values are counted once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

from tilewright.loops.ir import Alloc, Barrier, Block, Buffer, Call, If, Loop, Seq, Stmt, Store, Stores
from tilewright.loops.program import Program
from tilewright.symbolic.expr import Binary, Const, Expr, Extent, Read, Select, Unary, Var, const
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import free_vars, substitute


@dataclass(frozen=True, slots=True)
class Work:
    """Multiply-adds, all other operations, and bytes of arguments that are read or written at least once.

    ``functions``: those of the other operations that take many instructions (``exp``). ``touched``: the bytes, by
    argument.
    """

    multiply_adds: int
    others: int
    bytes: int
    functions: int = 0
    touched: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)

    @property
    def operations(self) -> int:
        """All operations; a multiply-add is two."""
        return 2 * self.multiply_adds + self.others


def count(program: Program, dims: Mapping[str, int]) -> Work | None:
    """The work of ``program``, naive, for run-time extents by name; None if a loop's length depends on data.

    An arithmetic operation, comparison, selection or function (``exp``) on data counts as one operation; conversions
    and index arithmetic are free. Both sides of branches count, and of selections by data; of a selection by indices,
    as of the parts of a concatenation, the side with more operations: loops are cut where it changes. The bytes of an
    argument are limited by the number of accesses and by its size.
    """
    counter = _Counter({Extent(name): const(size) for name, size in dims.items()})
    try:
        counter.statement(program.body, 1)
        touched = {buffer.name: counter.bytes_of(buffer) for buffer in program.params}
    except _DependsOnDataError:
        return None
    return Work(counter.multiply_adds, counter.others, sum(touched.values()), counter.functions, touched)


_MOST = 4096
"""Iterations of loops around another one, for each of which its extent is looked at."""


class _DependsOnDataError(Exception):
    """An extent is known only at run time."""


class _Counter:
    """Sums over the statements of one program."""

    def __init__(self, dims: Mapping[Var, Expr]) -> None:
        self.multiply_adds = 0
        self.others = 0
        self.functions = 0
        self._dims = dims
        self._accesses: dict[str, int] = {}
        self._loops: dict[Var, int] = {}
        """The loops around, and how often each runs, on average."""

    def bytes_of(self, buffer: Buffer) -> int:
        """The accessed elements of ``buffer``."""
        elements = prod(self._extent(extent) for extent in buffer.shape)
        return buffer.dtype.itemsize * min(elements, self._accesses.get(buffer.name, 0))

    def statement(self, stmt: Stmt, times: int) -> None:
        """Count ``stmt``, which runs ``times`` times."""
        match stmt:
            case Loop(var=var, extent=extent, body=body):
                runs, of_loops = self._runs(extent)
                self._loops[var] = -(-runs // of_loops)
                self.statement(body, times * runs // of_loops)
                del self._loops[var]
            case Block(body=body) | Alloc(body=body):
                self.statement(body, times)
            case Seq(statements):
                for inner in statements:
                    self.statement(inner, times)
            case If(condition, then, otherwise):
                self._value(condition, times)
                self.statement(then, times)
                if otherwise is not None:
                    self.statement(otherwise, times)
            case Store(buffer, indices, value):
                self._accesses[buffer.name] = self._accesses.get(buffer.name, 0) + times
                for expr in (*indices, value):
                    self._value(expr, times)
            case Stores(stores):
                for store in stores:
                    self.statement(store, times)
            case Call() | Barrier():
                pass

    def _value(self, expr: Expr, times: int) -> None:
        """Count ``expr``, if it depends on data."""
        if not expr.has_reads:
            return
        parts = expr.operands()
        if isinstance(expr, Select) and not expr.condition.has_reads:
            self.others += times
            self._larger(expr.a, expr.b, times)
            return
        if isinstance(expr, Read):
            self._accesses[expr.source.name] = self._accesses.get(expr.source.name, 0) + times
        elif _is_multiply_add(expr):
            self.multiply_adds += times
            parts = tuple(factor for part in parts for factor in _factors(part))
        elif isinstance(expr, Binary | Unary | Select):
            self.others += times
            self.functions += times * _is_function(expr)
        for part in parts:
            self._value(part, times)

    def _larger(self, one: Expr, other: Expr, times: int) -> None:
        """Count the operations of the expression that has more, and the accesses of both."""
        before = self._operations
        self._value(one, times)
        first, self._operations = self._operations, before
        self._value(other, times)
        self._operations = max(first, self._operations, key=lambda done: 2 * done[0] + done[1])

    @property
    def _operations(self) -> tuple[int, int, int]:
        return self.multiply_adds, self.others, self.functions

    @_operations.setter
    def _operations(self, done: tuple[int, int, int]) -> None:
        self.multiply_adds, self.others, self.functions = done

    def _runs(self, extent: Expr) -> tuple[int, int]:
        """How often a loop runs in all iterations of the loops around that its extent depends on, and their number."""
        known = substitute(extent, self._dims)
        around = [var for var in free_vars(known) if var in self._loops]
        count = prod(self._loops[var] for var in around)
        if count > _MOST:
            raise _DependsOnDataError
        places = product(*(range(self._loops[var]) for var in around))
        inner = ({var: const(at) for var, at in zip(around, place, strict=True)} for place in places)
        return sum(max(0, self._extent(substitute(known, at))) for at in inner), max(1, count)

    def _extent(self, extent: Expr) -> int:
        known = substitute(extent, self._dims)
        if not isinstance(known, Const):
            raise _DependsOnDataError
        return int(known.value)


_PLAIN = frozenset(
    {
        UnaryOp.NEG,
        UnaryOp.NOT,
        UnaryOp.ABS,
        UnaryOp.FLOOR,
        UnaryOp.CEIL,
        UnaryOp.ROUND,
        UnaryOp.TRUNC,
        UnaryOp.FLUSH,
        UnaryOp.ISNAN,
        UnaryOp.ISINF,
    }
)
"""Unary operations of one or two instructions."""


def _is_function(expr: Expr) -> bool:
    if isinstance(expr, Unary):
        return expr.op not in _PLAIN
    return isinstance(expr, Binary) and expr.op is BinaryOp.POW


def _is_multiply_add(expr: Expr) -> bool:
    """Whether ``expr`` is a sum with exactly one product."""
    if not isinstance(expr, Binary) or expr.op is not BinaryOp.ADD:
        return False
    return sum(len(_factors(operand)) == 2 for operand in (expr.a, expr.b)) == 1


def _factors(expr: Expr) -> tuple[Expr, ...]:
    return (expr.a, expr.b) if isinstance(expr, Binary) and expr.op is BinaryOp.MUL else (expr,)
