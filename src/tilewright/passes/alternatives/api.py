"""The interface of alternatives: algorithms for nodes, with applicability, cost, errors and the resulting nodes.

    class TwoProducts:                              # an Alternative
        name = "two products"

        def ways(self, node: Node, facts: Facts) -> Iterable[Way]:
            if node.op.name == "MatMul" and ...:
                yield Way(self.name, make=two_products, errors=OTHER_TERMS)

A *way* is one variant of an algorithm for a node: in blocks of channels or plain, with tiles of some size. An algorithm
with parameters offers a way for each promising value. ``passes.choose`` chooses among ways, by estimates, or by times
that ``tilewright tune`` measured; the resulting kernels are scheduled like any others.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Protocol, TypeAlias, runtime_checkable

from tilewright.base.dtypes import from_numpy
from tilewright.base.errors import InternalError, TilewrightError
from tilewright.base.exact import Exact
from tilewright.base.names import Names
from tilewright.base.numerics import Math
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops import Attribute, Operator
from tilewright.ops.operator import require
from tilewright.passes.blocks import Blocks, Reads
from tilewright.passes.layout import Computed
from tilewright.passes.precision import WIDE, Narrow
from tilewright.symbolic.expr import const
from tilewright.target.target import Target


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of an algorithm, and the speedup required in exchange: its cycles are multiplied by a factor before
    comparison.

    ``has_own_terms``: sums have the operator's terms, in any order, as ``Math.keeps_terms`` requires. The factors:
    ``estimated`` for estimated cycles, ``measured`` for measured ones; ``fast`` under ``math="fast"``.
    """

    has_own_terms: bool = True
    estimated: float = 1.0
    measured: float = 1.0
    fast: float = 1.0

    def are_permitted(self, math: Math) -> bool:
        """Whether ``math`` permits these errors."""
        return self.has_own_terms or not math.keeps_terms

    def handicap(self, math: Math, *, is_measured: bool) -> float:
        """The factor for cycles."""
        return self.fast if math is Math.FAST else self.measured if is_measured else self.estimated


OWN_TERMS = Errors()
"""The same terms, possibly in another order."""
OTHER_TERMS = Errors(has_own_terms=False, estimated=1.1, measured=1.05)
"""Errors are a few times as large."""


@dataclass(frozen=True, slots=True)
class FirstStep:
    """A step on a node's data that nodes of the same data have in common if their ``kind`` is equal: it runs once, as
    ``Building.common`` adds it once. ``cycles``: those it takes, included in the cycles of the way."""

    kind: Hashable
    cycles: float


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute a node.

    ``cycles``: on one core; NaN to use the analytic model's estimate of its kernels. ``is_blocked``: the layout of its
    result; ``reads``: that of its data. ``make``: adds the replacement nodes; None: the node is unchanged.
    ``more_bytes``: growth of the weights; ``measured_us``: its measured time, if there is one. ``first``: what it does
    to the data first, if other nodes can use that, too.
    """

    algorithm: str
    cycles: float = nan
    is_blocked: bool = False
    reads: Reads = Reads.PLAIN
    make: "Make | None" = None
    more_bytes: int = 0
    errors: Errors = OWN_TERMS
    measured_us: float | None = None
    first: FirstStep | None = None

    @property
    def name(self) -> str:
        """The key of this way among those of a node."""
        return f"{self.algorithm}, {'in blocks' if self.is_blocked else 'plain'}"

    def __str__(self) -> str:
        measured = "" if self.measured_us is None else f" (measured: {self.measured_us:.1f} us)"
        return f"{self.name}, {self.cycles:.3g} cycles{measured}"


@runtime_checkable
class Alternative(Protocol):
    """An algorithm for some nodes. See ``docs/extending.md``."""

    @property
    def name(self) -> str:
        """Its name in ``explain``. A given alternative replaces another one of the same name."""
        ...

    def ways(self, node: Node, facts: "Facts") -> Iterable[Way]:
        """The ways to compute ``node``; none if it does not apply."""
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """The context of a node. ``names``: for added values."""

    constants: Mapping[Value, Array]
    names: Names
    target: Target
    math: Math
    alternatives: Sequence[Alternative]
    narrow: Narrow = WIDE
    may_be_blocked: set[Value] = field(default_factory=set[Value])
    """The preceding values that might be stored in blocks."""
    cut_off: frozenset[Value] = frozenset()
    """Floats that become integers: they may be exact, and an error of one bit would make another integer of them."""
    outside: frozenset[Value] = frozenset()
    """What comes into the graph or leaves it: it is plain."""
    wide: Blocks | None = None
    """How wide blocks of channels are, if not all are as wide as a register."""

    @property
    def blocks(self) -> Blocks:
        """How wide blocks of channels are."""
        return Blocks(self.target) if self.wide is None else self.wide

    def ways(self, node: Node) -> tuple[Way, ...]:
        """All ways to compute ``node``."""
        facts = replace(self, math=Math.STRICT) if node.outputs[0] in self.cut_off else self
        found = tuple(way for alternative in facts.alternatives for way in _ways(alternative, node, facts))
        return tuple(way for way in found if way.errors.are_permitted(facts.math)) or (Way(AS_IT_IS),)


_COPY = require("Copy")
AS_IT_IS = "direct"
"""The alternative that is the operator's own te program."""


def _ways(alternative: Alternative, node: Node, facts: Facts) -> tuple[Way, ...]:
    """Raises ``InternalError``, which names ``alternative``, if the block fails."""
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
    """A graph under construction, with its ways: its nodes, and their layouts of inputs and outputs."""

    constants: dict[Value, Array]
    names: Names
    nodes: list[Node] = field(default_factory=list[Node])
    reads: dict[Value, Reads] = field(default_factory=dict[Value, Reads])
    """The layout of data that the node needs, by its first result."""
    in_blocks: set[Value] = field(default_factory=set[Value])
    weights: dict[Hashable, Value] = field(default_factory=dict[Hashable, Value])
    known: dict[Hashable, Value] = field(default_factory=dict[Hashable, Value])
    """Results of the steps that several nodes have in common."""
    narrow: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Right operands of new products whose operands are rounded, by the first results of their nodes, all by name
    (``Narrow.weights``)."""
    rounded: set[str] = field(default_factory=set[str])
    """New values that are stored in 16 bits, by name (``Narrow.values``)."""

    def compute(self, node: Node, way: Way) -> None:
        """Add the nodes that compute ``node``. Raises ``InternalError`` if the results of ``way`` do not fit."""
        if way.is_blocked:
            self.in_blocks.add(node.outputs[0])
        if way.make is None:
            self.append(node, way.reads)
            return
        way.make(node, self)
        if self.nodes[-1].outputs != node.outputs:
            raise _failed(way.algorithm, node, f"it makes {self.nodes[-1].outputs}, not {node.outputs}")

    def plain(self, result: Value, way: Way) -> Value:
        """The ``result`` of ``way``, or a copy without blocks."""
        if not way.is_blocked:
            return result
        name = self.names.fresh(f"{result.name}.plain")
        self.append(make_node(_COPY, [result], [name], {}), Reads.AS_THEY_ARE)
        return self.nodes[-1].outputs[0]

    def append(self, node: Node, reads: Reads = Reads.PLAIN) -> None:
        """Add a node. ``reads``: the layout of data that it needs."""
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
        """The result of a node of ``op``, one of those that replace the node of ``like``: the last one has no
        ``suffix``, and produces ``like`` itself."""
        result = like.outputs[0].name
        name = self.names.fresh(f"{result}.{suffix}") if suffix else result
        self.append(make_node(op, inputs, [name], attributes or {}, like.source), reads)
        return self.nodes[-1].outputs[0]

    def common(
        self, op: Operator, data: Value, like: Node, suffix: str, attributes: Mapping[str, Attribute], reads: Reads
    ) -> Value:
        """The result of a node of ``op`` on ``data``; nodes that ask for the same get that of the first."""
        key = (op.name, data, Exact(tuple(sorted(attributes.items()))), reads)
        if key not in self.known:
            self.known[key] = self.add(op, [data], like, suffix, attributes, reads)
        return self.known[key]

    def finish(self, node: Node) -> None:
        """Let the last node that was added produce the results of ``node``."""
        last = self.nodes.pop()
        self.append(replace(last, outputs=node.outputs), self.reads.pop(last.outputs[0]))

    def constant(self, name: str, array: Array) -> Value:
        """A new constant, called ``name`` or similar."""
        value = Value(self.names.fresh(name), from_numpy(array.dtype), tuple(map(const, array.shape)))
        self.constants[value] = array
        return value

    def weight(self, like: Value, kind: Hashable, make: Callable[[Array], Array]) -> Value:
        """The result of ``make`` on the constant ``like``, computed once for each ``kind``."""
        known = self.weights.get((like, kind))
        if known is None:
            name = f"{like.name}.{kind[0] if isinstance(kind, tuple) else kind}"
            known = self.weights[like, kind] = self.constant(name, make(self.constants[like]))
        return known


Make: TypeAlias = Callable[[Node, Building], None]
"""Adds the nodes that compute a node, as ``Building.add`` does; the last one produces its results."""


def computed(
    graph: Graph, chosen: Mapping[Value, Way], names: Names, constants: dict[Value, Array] | None = None
) -> Computed:
    """``graph`` with its nodes computed by the ways ``chosen``, by their first results.

    ``constants``: those of the graph, of which each is dropped after its last use, unless the result reads it. So not
    all filters are in memory together with what is made of them.
    """
    building = Building(dict(graph.constants) if constants is None else constants, names)
    last = {value: node for node in graph.nodes for value in node.inputs if constants is not None}
    read = set[Value | None]()
    for node in graph.nodes:
        before = len(building.nodes)
        building.compute(node, chosen[node.outputs[0]])
        read.update(value for made in building.nodes[before:] for value in made.inputs)
        for value in node.inputs:
            if value in building.constants and value not in read and last.get(value) is node:
                del building.constants[value]
    made = replace(graph, nodes=tuple(building.nodes), constants=building.constants)
    return Computed(made, frozenset(building.in_blocks), building.reads, building.narrow, frozenset(building.rounded))
