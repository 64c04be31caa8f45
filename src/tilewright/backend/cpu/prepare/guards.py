"""The conditions in statements, and what is known of the loops between: what ``partition`` cuts loops for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from tilewright.base.identity import ByIdentity
from tilewright.loops.ir import If, Loop, Stmt, Store
from tilewright.loops.visit import children
from tilewright.symbolic.expr import ZERO, Binary, Const, Expr, Select, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import conjuncts, substitute, walk


@dataclass(frozen=True, slots=True)
class Guard:
    """Conditions met inside a statement."""

    source: Expr
    """A condition by which a statement runs; or, of dtype index, what is left of a value but for what it selects by."""
    selects: bool = False
    """It chooses between values, rather than whether a statement runs."""
    between: tuple[tuple[Var, Expr], ...] = ()
    """Those of the loops between that tell something about the conditions, outermost first, with their extents."""

    def within(self, loop: Loop) -> "Guard":
        """The guard as it is met inside ``loop``; a loop of which it says nothing is left out."""
        concerns = loop.var in self.source.variables or any(loop.var in e.variables for _, e in self.between)
        if isinstance(loop.extent, Const) and not concerns:
            return self
        return Guard(self.source, self.selects, ((loop.var, loop.extent), *self.between))

    def conditions(self, values: Mapping[Var, Expr]) -> tuple[Expr, ...]:
        """What is tested where variables have ``values``, each once; what is never evaluated there is not tested."""
        source = substitute(self.source, values)
        if not self.selects:
            return conjuncts(source)
        tests = [node.condition for node in walk(source) if isinstance(node, Select)]
        return tuple(dict.fromkeys([part for test in tests for part in conjuncts(test)]))


class Guards:
    """The guards in statements; those of a statement that is met again are known."""

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


def _choices(value: Expr) -> Expr:
    """The selections by places, rather than data, in ``value``, with zeros for all that is selected."""
    if isinstance(value, Select) and not value.condition.has_reads:
        return Select(value.condition, _choices(value.a), _choices(value.b))
    inside = [found for operand in value.operands() if (found := _choices(operand)) != ZERO]
    return reduce(lambda one, other: Binary(BinaryOp.MAX, one, other), inside) if inside else ZERO
