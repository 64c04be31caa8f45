"""What is assumed of run-time extents: as little as possible, and more only if a model's shapes do not fit otherwise.

1. Nothing: also extents of 0 are taken.
2. Extents are not 0. Some slices (the last ``n``) and quotients (``b * n // b``) are only then what the model means.
3. Extents that must be equal are (``rules.aligning``), even if this does not follow from what they are computed from.

Each under bounds of extents, if need be: with which slices of tables (such as positions) are not clipped, and from
which on all windows fit (convolutions over samples of sound). Whatever is assumed is part of the graph, and the runtime
refuses other inputs. So an extent is assumed not to be 0 only if the model does not fit otherwise: the length of a
cache of keys starts at 0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.errors import InvalidModel, UnsupportedModel, UnsupportedOperator
from tilewright.frontend.onnx.read.symbolic_values import Assumed, SymbolicValues
from tilewright.graph import Graph
from tilewright.graph.control import Control
from tilewright.symbolic.expr import Binary, Const, Expr
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import walk

Import = Callable[[SymbolicValues], Graph]

MOST_RELAXED = 8
"""Maximum extents that are looked at one by one."""
_ROUNDS = 4
"""Maximum imports under bounds that the one before found: what follows a window may have windows, too."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An import under assumptions, and with upper bounds that the model's tables imply."""

    import_within: Import
    most: Mapping[str, int]
    assumed: Assumed
    tables: Mapping[str, int] = field(default_factory=dict[str, int])

    def graph(self, rounds: int = _ROUNDS) -> Graph:
        """The graph. Raises ``InvalidModel`` or ``UnsupportedModel``."""
        given = SymbolicValues({**self.most, **self.tables}, self.assumed)
        try:
            graph = self.import_within(given)
        except UnsupportedOperator:
            raise
        except (InvalidModel, UnsupportedModel):
            tables = {**self.tables, **{extent.given: cap for extent, cap in given.caps.items()}}
            least = {**self.assumed.least, **given.least()}
            if rounds == 1 or (tables == self.tables and least == self.assumed.least):
                raise
            return replace(self, tables=tables, assumed=replace(self.assumed, least=least)).graph(rounds - 1)
        return replace(graph, bounds={e: self.tables[e.given] for e in graph.extents if e.given in self.tables})

    def graph_if_it_fits(self) -> Graph | None:
        """The graph, or None. Raises ``UnsupportedOperator``, which no assumption changes."""
        try:
            return self.graph()
        except UnsupportedOperator:
            raise
        except (InvalidModel, UnsupportedModel):
            return None

    def relaxed(self, graph: Graph) -> Graph:
        """``graph`` without the assumption that an extent is not 0, for each where this changes no shape."""
        attempt = self
        for name in list(self.assumed.least)[:MOST_RELAXED]:
            least = {other: least for other, least in attempt.assumed.least.items() if other != name}
            weaker = replace(attempt, assumed=replace(attempt.assumed, least=least))
            found = weaker.graph_if_it_fits()
            if found is not None and _operations(found) <= _operations(graph):
                attempt, graph = weaker, found
        return graph


def import_assuming_least(import_within: Import, most: Mapping[str, int], extents: Sequence[str]) -> Graph:
    """The graph under the fewest assumptions about ``extents``, the names of the run-time extents.

    ``most``: their upper bounds. Raises the error of the last attempt.
    """
    inhabited = dict.fromkeys(extents, 1)
    assumptions = [Assumed(), *([Assumed(inhabited), Assumed(inhabited, aligned=True)] if extents else [])]
    attempts = [_Attempt(import_within, most, assumed) for assumed in assumptions]
    found: Graph | None = None
    for attempt in attempts[:-1]:
        graph = attempt.graph_if_it_fits()
        if graph is not None and not _divides(graph) and not _branches(graph):
            return attempt.relaxed(graph)
        found = found or graph
    return found or attempts[-1].relaxed(attempts[-1].graph())


def _extents(graph: Graph) -> Iterator[Expr]:
    return (extent for node in graph.nodes for value in node.outputs for extent in value.shape)


def _operations(graph: Graph) -> int:
    """The operations in all shapes."""
    return sum(1 for extent in _extents(graph) for _ in walk(extent))


def _branches(graph: Graph) -> bool:
    """Whether a run decides between bodies: perhaps on sizes, of which more assumptions decide it."""
    return any(isinstance(node.op, Control) for node in graph.nodes)


def _divides(graph: Graph) -> bool:
    """Whether an extent is divided by one that may be 0: then ``b * n // b`` is not known to be ``n``."""
    return any(
        isinstance(part, Binary) and part.op in (BinaryOp.FLOORDIV, BinaryOp.MOD) and not isinstance(part.b, Const)
        for extent in _extents(graph)
        for part in walk(extent)
    )
