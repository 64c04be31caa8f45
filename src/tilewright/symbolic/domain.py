"""Iteration domains: named axes with an extent and a kind."""

from dataclasses import dataclass
from enum import Enum

from tilewright.symbolic.expr import Arithmetic, Expr, Var


class IterKind(Enum):
    """The kind of an axis, which decides the order of its iterations."""

    SPATIAL = "spatial"
    """Iterations write different elements: any order, in parallel, as vector lanes."""
    REDUCE = "reduce"
    """Iterations combine into the same elements, with an associative and commutative reducer: any order."""
    ORDERED = "ordered"
    """Iterations depend on earlier ones (a scan): ascending order only."""


@dataclass(frozen=True, slots=True, eq=False)
class IterVar(Arithmetic):
    """The axis ``0 <= var < extent``. In arithmetic it denotes its variable."""

    var: Var
    extent: Expr
    kind: IterKind

    def as_expr(self) -> Expr:
        return self.var

    def _key(self) -> tuple[Var, Expr, IterKind]:
        return (self.var, self.extent, self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IterVar) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def name(self) -> str:
        return self.var.name
