"""What an alternative is: an algorithm for nodes, which says when it applies, what it costs, how exact it is, and what
it makes.

    class TwoProducts:                              # an Alternative
        name = "two products"

        def ways(self, node: Node, facts: Facts) -> Iterable[Way]:
            if node.op.name == "MatMul" and ...:
                yield Way(self.name, make=two_products, errors=OTHER_TERMS)

A *way* is one of the forms in which an algorithm computes a node: in blocks of channels or plain, with tiles of one
size or another. Who has numbers to choose offers a way for each that is worth trying. Choosing among ways is
``passes.choose``'s, by estimates, or by times that ``tilewright tune`` measured; schedules of the kernels that a way
makes are found as for any others.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Protocol, TypeAlias, runtime_checkable

from tilewright.base.errors import InternalError, TilewrightError
from tilewright.base.names import Names
from tilewright.base.numerics import Math
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops import Attribute, Operator
from tilewright.passes.blocks import Reads
from tilewright.passes.layout import Computed
from tilewright.symbolic.expr import const
from tilewright.target.target import Target


@dataclass(frozen=True, slots=True)
class Errors:
    """How exact an algorithm is, and how much faster it must be for that: its cycles are multiplied by a number before
    they are compared.

    ``has_own_terms``: sums have the operator's terms, in whatever order; ``math="strict"`` permits nothing else. The
    numbers: ``estimated`` where cycles are an estimate, which is rough, ``measured`` where they are known; ``fast``
    under ``math="fast"``.
    """

    has_own_terms: bool = True
    estimated: float = 1.0
    measured: float = 1.0
    fast: float = 1.0

    def are_permitted(self, math: Math) -> bool:
        """Whether ``math`` permits them."""
        return self.has_own_terms or math is not Math.STRICT

    def handicap(self, math: Math, *, is_measured: bool) -> float:
        """What cycles are multiplied by."""
        return self.fast if math is Math.FAST else self.measured if is_measured else self.estimated


OWN_TERMS = Errors()
"""Nothing is computed but in another order."""
OTHER_TERMS = Errors(has_own_terms=False, estimated=1.1, measured=1.05)
"""Errors are a few times as large."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute a node.

    ``cycles``: on one core; NaN if the analytic model is to estimate the kernels that it makes. ``is_blocked``: how its
    result is stored; ``reads``: how its data must be. ``make``: adds the nodes that compute it; None: it stays as it
    is. ``more_bytes``: by which weights grow; ``measured_us``: what it took, if ``cycles`` are not just estimated.
    """

    algorithm: str
    cycles: float = nan
    is_blocked: bool = False
    reads: Reads = Reads.PLAIN
    make: "Make | None" = None
    more_bytes: int = 0
    errors: Errors = OWN_TERMS
    measured_us: float | None = None

    @property
    def name(self) -> str:
        """Which one it is of those that a node has."""
        return f"{self.algorithm}, {'in blocks' if self.is_blocked else 'plain'}"

    def __str__(self) -> str:
        measured = "" if self.measured_us is None else f" (measured: {self.measured_us:.1f} us)"
        return f"{self.name}, {self.cycles:.3g} cycles{measured}"


@runtime_checkable
class Alternative(Protocol):
    """An algorithm for some nodes. See ``docs/extending.md``."""

    @property
    def name(self) -> str:
        """What ``explain`` calls it. One that is given takes the place of another of its name."""
        ...

    def ways(self, node: Node, facts: "Facts") -> Iterable[Way]:
        """In which it computes ``node``; none if it does not apply."""
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known where a node is to be computed. ``names``: for values that are added."""

    constants: Mapping[Value, Array]
    names: Names
    target: Target
    math: Math
    alternatives: Sequence[Alternative]
    may_be_blocked: set[Value] = field(default_factory=set[Value])
    """Those values before the node that might be stored in blocks."""

    def ways(self, node: Node) -> tuple[Way, ...]:
        """All in which ``node`` may be computed."""
        found = tuple(way for alternative in self.alternatives for way in _ways(alternative, node, self))
        return tuple(way for way in found if way.errors.are_permitted(self.math)) or (Way(AS_IT_IS),)


AS_IT_IS = "direct"
"""The algorithm that is the operator's own te program."""


def _ways(alternative: Alternative, node: Node, facts: Facts) -> tuple[Way, ...]:
    """Raises ``InternalError`` that names ``alternative`` if that fails."""
    try:
        return tuple(alternative.ways(node, facts))
    except TilewrightError:
        raise
    except Exception as error:
        raise _failed(alternative.name, node, f"{type(error).__name__}: {error}") from error


def _failed(name: str, node: Node, why: str) -> InternalError:
    return InternalError(f"{node.source or node.op.name}: the alternative {name}: {why}")


@dataclass(slots=True)
class Building:
    """A graph as it is computed, while it is made: its nodes, and how they read and store."""

    constants: dict[Value, Array]
    names: Names
    nodes: list[Node] = field(default_factory=list[Node])
    reads: dict[Value, Reads] = field(default_factory=dict[Value, Reads])
    """How the node needs its data, by its first result."""
    in_blocks: set[Value] = field(default_factory=set[Value])
    weights: dict[Hashable, Value] = field(default_factory=dict[Hashable, Value])

    def compute(self, node: Node, way: Way) -> None:
        """Add what computes ``node``. Raises ``InternalError`` if ``way`` makes something else."""
        if way.is_blocked:
            self.in_blocks.add(node.outputs[0])
        if way.make is None:
            self.append(node, way.reads)
            return
        way.make(node, self)
        if self.nodes[-1].outputs != node.outputs:
            raise _failed(way.algorithm, node, f"it makes {self.nodes[-1].outputs}, not {node.outputs}")

    def append(self, node: Node, reads: Reads = Reads.PLAIN) -> None:
        """Add a node. ``reads``: how it needs its data."""
        self.nodes.append(node)
        self.reads[node.outputs[0]] = reads

    def add(
        self,
        op: Operator,
        inputs: Sequence[Value | None],
        like: Node,
        suffix: str = "",
        attributes: Mapping[str, Attribute] | None = None,
        reads: Reads = Reads.PLAIN,
    ) -> Value:
        """The result of a node of ``op``, one of those that compute ``like``: the last one has no ``suffix``, and makes
        the result of ``like`` itself."""
        result = like.outputs[0].name
        name = self.names.fresh(f"{result}.{suffix}") if suffix else result
        self.append(make_node(op, inputs, [name], attributes or {}, like.source), reads)
        return self.nodes[-1].outputs[0]

    def weight(self, like: Value, kind: Hashable, make: Callable[[Array], Array]) -> Value:
        """What ``make`` computes of the constant ``like``, made once for all who ask for the same ``kind`` of it."""
        known = self.weights.get((like, kind))
        if known is None:
            array = make(self.constants[like])
            name = self.names.fresh(f"{like.name}.{kind[0] if isinstance(kind, tuple) else kind}")
            known = self.weights[like, kind] = Value(name, like.dtype, tuple(map(const, array.shape)))
            self.constants[known] = array
        return known


Make: TypeAlias = Callable[[Node, Building], None]
"""Adds the nodes that compute a node, as ``Building.add`` does; the last one makes its results."""


def computed(graph: Graph, chosen: Mapping[Value, Way], names: Names) -> Computed:
    """``graph`` with its nodes computed as ``chosen``, by their first results."""
    building = Building(dict(graph.constants), names)
    for node in graph.nodes:
        building.compute(node, chosen[node.outputs[0]])
    made = replace(graph, nodes=tuple(building.nodes), constants=building.constants)
    return Computed(made, frozenset(building.in_blocks), building.reads)
