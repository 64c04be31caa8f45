"""E-graphs: graphs with classes of equal values, each made by any of several nodes.

::

    egraph = EGraph(graph)
    egraph.include(replacement)     # adds targets; sources stay
    egraph.rebuild()
    for node in egraph.view().lookup.by_operator["MatMul"]: ...

The data structure of Willsey et al., "egg: Fast and Extensible Equality Saturation" (POPL 2021): a union-find of
values, and unique nodes (operator, classes of the inputs, exact attributes, number of outputs). A class is represented
by the oldest of its values. After unions, ``rebuild`` unites the results of nodes that have become equal (congruence).
Whether a class is known at compile time (a weight) is an analysis: it is if one of its nodes reads weights only.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from tilewright.base.errors import InternalError
from tilewright.base.exact import Exact
from tilewright.base.names import Names
from tilewright.graph import Array, Graph, Node, Value
from tilewright.ops import Trait
from tilewright.ops.shapes import same_shape
from tilewright.passes.rules.binding import Attributes
from tilewright.passes.rules.build import Replacement
from tilewright.passes.rules.index import Lookup, bounds_of
from tilewright.passes.rules.terms import Rule
from tilewright.superopt.search.acyclic import Way, without_cycles
from tilewright.symbolic.bounds import Bounds

_Key = tuple[str, tuple[str | None, ...], Exact[Attributes], int]


@dataclass(frozen=True, slots=True, eq=False)
class ENode:
    """A node between classes: its inputs and outputs are the representatives of classes."""

    node: Node
    rule: Rule | None
    """The rule that created it; None for nodes of the graph."""
    attributes: Exact[Attributes]
    """Attributes without defaults, sorted by name."""

    @property
    def reads(self) -> Sequence[str]:
        """The names of its input classes, without repetitions."""
        return list(dict.fromkeys(value.name for value in self.node.inputs if value is not None))

    @property
    def key(self) -> _Key:
        """A key that is equal for nodes with equal results."""
        inputs = [None if value is None else value.name for value in self.node.inputs]
        if self.node.op.has(Trait.COMMUTATIVE):
            inputs.sort(key=lambda name: name or "")
        return self.node.op.name, tuple(inputs), self.attributes, len(self.node.outputs)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A snapshot of an e-graph."""

    nodes: Mapping[str, Sequence[ENode]]
    """The nodes that make each class, oldest first. Inputs of the graph and constants have none."""
    lookup: Lookup
    """The lookup for matching, without nodes that close cycles."""
    order: Sequence[str]
    """All classes in ``lookup``, in topological order."""
    beneath: Mapping[str, int]
    """For each class, the set (bits by position in ``order``) of itself and of all classes that it depends on."""
    positions: Mapping[str, int]
    """The position of each class in ``order``."""

    def is_made_of(self, name: str, other: str) -> bool:
        """Whether the class ``name`` is ``other``, or depends on it by some of its nodes, directly or not."""
        return bool(self.beneath[name] >> self.positions[other] & 1)


@dataclass(slots=True)
class EGraph:
    """A growing e-graph, initialized with ``graph``."""

    graph: Graph
    _names: Names = field(init=False)
    _values: dict[str, Value] = field(default_factory=dict[str, Value])
    """All values that ever represented a class, by name."""
    _ages: dict[str, int] = field(default_factory=dict[str, int])
    """The number of values before each value."""
    _above: dict[str, str] = field(default_factory=dict[str, str])
    """Union-find parents: an equal older value, for each value that no longer represents its class."""
    _nodes: dict[_Key, ENode] = field(default_factory=dict[_Key, ENode])
    _arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    """Constants, by name."""
    _numbers: dict[tuple[object, ...], Value] = field(default_factory=dict[tuple[object, ...], Value])
    """Constants of one element, by content."""
    _is_stale: bool = False

    def __post_init__(self) -> None:
        self._names = self.graph.names()
        for value in self.graph.inputs:
            self._register(value)
        for value, array in self.graph.constants.items():
            self._register_constant(value, array)
        for node in self.graph.nodes:
            for value in node.outputs:
                self._register(value)
            self._add(node, None)
        self.rebuild()

    @property
    def nodes(self) -> Collection[ENode]:
        """All nodes, oldest first."""
        return self._nodes.values()

    @property
    def classes(self) -> Collection[Value]:
        """The representatives of all classes, oldest first."""
        return [value for name, value in self._values.items() if name not in self._above]

    def new_names(self) -> Names:
        """A source of names that differ from those of all values."""
        return Names(self._values)

    def find(self, name: str) -> Value:
        """The representative of the class of the value ``name``."""
        while name in self._above:
            above = self._above[name]
            self._above[name] = self._above.get(above, above)
            name = above
        return self._values[name]

    def age(self, name: str) -> int:
        """The number of values before the representative of the class of ``name``."""
        return self._ages[self.find(name).name]

    def union(self, a: str, b: str) -> None:
        """Merge the classes of two values. Raises ``InternalError`` if their types differ."""
        old, new = sorted((self.find(a), self.find(b)), key=lambda value: self._ages[value.name])
        if old.name == new.name:
            return
        if old.dtype != new.dtype or not same_shape(old.shape, new.shape):
            raise InternalError(f"{old!r} and {new!r} can't be equal")
        self._above[new.name] = old.name
        self._is_stale = True

    def include(self, made: Replacement) -> Sequence[Value]:
        """Add the targets of a match, equal to the values that they would replace. Requires a later ``rebuild``.

        Returns the values that had no class before.
        """
        before = len(self._values)
        local = {value.name: self._constant(value, array) for value, array in made.constants.items()}
        replaced = {value.name for value in made.match.replaced}
        for node in made.nodes:
            inputs = tuple(value and local.get(value.name, value) for value in node.inputs)
            names = [v.name if v.name in replaced else self._names.fresh(v.name) for v in node.outputs]
            outputs = tuple(replace(v, name=name) for v, name in zip(node.outputs, names, strict=True))
            own = self._add(replace(node, inputs=inputs, outputs=outputs), made.match.rule)
            local.update(zip((value.name for value in node.outputs), own, strict=True))
        for name, value in made.renamed.items():
            self.union(name, local.get(value.name, value).name)
        return list(islice(self._values.values(), before, None))

    def rebuild(self) -> None:
        """Restore congruence: equal operations on equal values have equal results."""
        while self._is_stale:
            self._is_stale = False
            nodes, self._nodes = self._nodes, {}
            for one in nodes.values():
                self._insert(replace(one, node=self._canonical(one.node)))

    def view(self) -> View:
        """The snapshot for matching and extraction; requires ``rebuild`` before."""
        arrays = {self.find(name).name: array for name, array in self._arrays.items()}
        given = arrays.keys() | {value.name for value in self.graph.inputs}
        pairs = [
            (value.name, one)
            for one in self.nodes
            for value in one.node.outputs
            if value.name not in given and value.name not in one.reads
        ]
        order, staying = without_cycles([Way(name, tuple(one.reads)) for name, one in pairs])
        lookup = _lookup([pairs[position] for position in staying], arrays, self._weights(), bounds_of(self.graph))
        return _view(_by_class(pairs), lookup, order)

    def _weights(self) -> frozenset[str]:
        """The classes known at compile time."""
        found = {self.find(name).name for name in self._arrays}
        before = -1
        while before < len(found):
            before = len(found)
            for one in self.nodes:
                if found.issuperset(one.reads) and not one.node.dims:
                    found.update(value.name for value in one.node.outputs)
        return frozenset(found)

    def _register(self, value: Value) -> Value:
        self._ages[value.name] = len(self._values)
        self._values[value.name] = value
        return value

    def _register_constant(self, value: Value, array: Array) -> Value:
        self._arrays[value.name] = array
        if array.size == 1:
            self._numbers.setdefault((array.dtype, array.shape, array.tobytes()), value)
        return self._register(value)

    def _constant(self, value: Value, array: Array) -> Value:
        known = self._numbers.get((array.dtype, array.shape, array.tobytes())) if array.size == 1 else None
        return known or self._register_constant(replace(value, name=self._names.fresh(value.name)), array)

    def _add(self, node: Node, rule: Rule | None) -> Sequence[Value]:
        """Add ``node``; the classes of its outputs, whose names are new, or those of values equal to them."""
        one = ENode(self._canonical(node), rule, _not_by_default(node))
        twin = self._nodes.get(one.key)
        if twin is None:
            for value in node.outputs:
                if value.name not in self._values:
                    self._register(value)
            self._nodes[one.key] = one
            return one.node.outputs
        for old, new in zip(twin.node.outputs, node.outputs, strict=True):
            if new.name in self._values:
                self.union(old.name, new.name)
        return tuple(self.find(value.name) for value in twin.node.outputs)

    def _insert(self, one: ENode) -> None:
        twin = self._nodes.setdefault(one.key, one)
        if twin is not one:
            for old, new in zip(twin.node.outputs, one.node.outputs, strict=True):
                self.union(old.name, new.name)

    def _canonical(self, node: Node) -> Node:
        """``node`` with representatives for its inputs and outputs."""
        if not any(value.name in self._above for value in (*node.inputs, *node.outputs) if value is not None):
            return node
        inputs = tuple(value and self.find(value.name) for value in node.inputs)
        outputs = (self.find(value.name) if value.name in self._values else value for value in node.outputs)
        return replace(node, inputs=inputs, outputs=tuple(outputs))


def _not_by_default(node: Node) -> Exact[Attributes]:
    usual = node.op.defaults
    given = ((name, value) for name, value in node.attributes if Exact(value) != Exact(usual.get(name)))
    return Exact(tuple(sorted(given, key=lambda named: named[0])))


def _by_class(pairs: Sequence[tuple[str, ENode]]) -> dict[str, list[ENode]]:
    found: dict[str, list[ENode]] = {}
    for name, one in pairs:
        found.setdefault(name, []).append(one)
    return found


def _view(nodes: Mapping[str, Sequence[ENode]], lookup: Lookup, order: Sequence[str]) -> View:
    positions = {name: position for position, name in enumerate(order)}
    beneath: dict[str, int] = {}
    for name in order:
        bits = 1 << positions[name]
        for node in lookup.producers.get(name, ()):
            for value in node.inputs:
                bits |= 0 if value is None else beneath[value.name]
        beneath[name] = bits
    return View(nodes, lookup, order, beneath, positions)


def _lookup(
    pairs: Sequence[tuple[str, ENode]], arrays: Mapping[str, Array], weights: frozenset[str], bounds: Bounds
) -> Lookup:
    """The lookup of classes and of their nodes, for matching."""
    producers = {name: [one.node for one in several] for name, several in _by_class(pairs).items()}
    readers: dict[str, list[Node]] = {}
    by_operator: dict[str, list[Node]] = {}
    operands: dict[str, frozenset[str]] = {}
    for one in dict.fromkeys(one for _, one in pairs):
        by_operator.setdefault(one.node.op.name, []).append(one.node)
        below = frozenset(node.op.name for name in one.reads for node in producers.get(name, ()))
        for value in one.node.outputs:
            operands[value.name] = below | operands.get(value.name, frozenset())
        for name in one.reads:
            readers.setdefault(name, []).append(one.node)
    return Lookup(producers, readers, by_operator, operands, arrays, weights, bounds)
