"""Collects the guards in statements, with facts about the loops between, for ``partition``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from tilewright.base.identity import ByIdentity
from tilewright.loops.ir import If, Loop, Stmt, Store
from tilewright.loops.visit import children
from tilewright.symbolic.expr import ZERO, Binary, Const, Expr, Read, Select, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import conjuncts, substitute, walk

LIMITS = frozenset({BinaryOp.MIN, BinaryOp.MAX})
"""Operations that limit a position to an interval."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Guards inside a statement."""

    source: Expr
    """A condition under which a statement runs; or, with dtype index, a value reduced to its selections."""
    selects: bool = False
    """Whether it selects between values, rather than guarding a statement."""
    between: tuple[tuple[Var, Expr], ...] = ()
    """The loops between that restrict the variables of the conditions, outermost first, with their extents."""

    def within(self, loop: Loop) -> "Guard":
        """The guard as seen inside ``loop``; a loop without relevant variables is left out."""
        concerns = loop.var in self.source.variables or any(loop.var in e.variables for _, e in self.between)
        if isinstance(loop.extent, Const) and not concerns:
            return self
        return Guard(self.source, self.selects, ((loop.var, loop.extent), *self.between))

    def conditions(self, values: Mapping[Var, Expr]) -> tuple[Expr, ...]:
        """The tested conditions where variables have ``values``, each once; unevaluated ones are left out."""
        source = substitute(self.source, values)
        if not self.selects:
            return conjuncts(source)
        tests = [node.condition for node in walk(source) if isinstance(node, Select)]
        return tuple(dict.fromkeys([part for test in tests for part in conjuncts(test)]))


class Guards:
    """The guards in statements, cached per statement."""

    def __init__(self) -> None:
        self._known = ByIdentity[tuple[Guard, ...]]()

    def of(self, stmt: Stmt) -> tuple[Guard, ...]:
        """The guards in ``stmt``, each once, in program order."""
        return self._known.of(lambda: tuple(dict.fromkeys(self._found(stmt))), stmt)

    def _found(self, stmt: Stmt) -> Iterator[Guard]:
        match stmt:
            case If(condition):
                yield Guard(condition)
            case Store(_, _, value):
                choices = _choices(value)
                if choices != ZERO:
                    yield Guard(choices, selects=True)
            case _:
                pass
        for child in children(stmt):
            inside = self.of(child)
            yield from (guard.within(stmt) for guard in inside) if isinstance(stmt, Loop) else inside


def _choices(value: Expr, *, is_index: bool = False) -> Expr:
    """The position-dependent (not data-dependent) selections in ``value``, with zeros for all selected values.

    A limit of the index of a read (``is_index``) selects, too: the nearest element at the end of a row.
    """
    if isinstance(value, Select) and not value.condition.has_reads:
        return Select(value.condition, _choices(value.a), _choices(value.b))
    inside = [_choices(operand, is_index=is_index or isinstance(value, Read)) for operand in value.operands()]
    if is_index and isinstance(value, Binary) and value.op in LIMITS and not value.has_reads:
        inside.append(Select(value.a <= value.b, ZERO, ZERO))
    found = [choices for choices in inside if choices != ZERO]
    return reduce(lambda one, other: Binary(BinaryOp.MAX, one, other), found) if found else ZERO
