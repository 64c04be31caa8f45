"""Extracts the cheapest graph from an e-graph.

The cost is a sum over nodes, in which shared nodes count once; nodes over weights only cost nothing, as they are
computed at compile time. The cost of the extracted graph is recomputed from the graph.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.errors import InternalError
from tilewright.base.names import Names
from tilewright.graph import Array, Graph, Node, Value, make_node, verify
from tilewright.ops.operator import require
from tilewright.passes.normalize import eliminate_dead_code
from tilewright.passes.rules import Rule
from tilewright.superopt.costs.provider import CostProvider, cost_by_nodes
from tilewright.superopt.search.acyclic import components
from tilewright.superopt.search.choices import Option, Plan, Problem, greedy
from tilewright.superopt.search.egraph import EGraph, ENode, View
from tilewright.superopt.search.integer_program import cheapest
from tilewright.symbolic.expr import const

_IDENTITY = require("Identity")


@dataclass(frozen=True, slots=True)
class Extracted:
    """A graph that is equivalent to the initial graph of the e-graph.

    ``cost``: the sum over its nodes. ``made``: for each rule, the names of the values of the nodes that it created.
    ``is_proven``: whether it is proven that no graph in the e-graph costs less.
    """

    graph: Graph
    cost: float
    made: Mapping[Rule, Sequence[str]]
    is_proven: bool


def extract_greedily(egraph: EGraph, costs: CostProvider) -> Extracted:
    """A graph in which each value is computed in the way that is cheapest for that value alone."""
    choice = _Choice.of(egraph, costs)
    return choice.extracted(choice.greedy, is_proven=False)


def extract(egraph: EGraph, costs: CostProvider, seconds: float) -> Extracted:
    """The cheapest graph; after ``seconds``, the best one found, which costs no more than that of ``extract_greedily``.

    Needs the extra ``superopt``. Raises ``BadInput`` if highspy is not installed.
    """
    choice = _Choice.of(egraph, costs)
    found = cheapest(choice.problem, choice.greedy, seconds)
    exact, simple = choice.extracted(found.plan, found.is_proven), choice.extracted(choice.greedy, is_proven=False)
    return exact if exact.cost <= simple.cost else simple


@dataclass(frozen=True, slots=True)
class _Choice:
    """The problem of choice, with its greedy solution."""

    egraph: EGraph
    view: View
    costs: CostProvider
    options: "_Options"
    greedy: Plan

    @staticmethod
    def of(egraph: EGraph, costs: CostProvider) -> "_Choice":
        view = egraph.view()
        weights = view.lookup.weights
        wanted = [egraph.find(value.name).name for value in egraph.graph.outputs]
        nodes = {name: makers for name, makers in view.nodes.items() if name not in weights}
        options = _options(wanted, nodes, lambda node: costs.of_node(node, weights))
        return _Choice(egraph, view, costs, options, _planned(options.problem))

    @property
    def problem(self) -> Problem:
        """The problem without weights."""
        return self.options.problem

    def extracted(self, plan: Plan, is_proven: bool) -> Extracted:
        """The graph of a plan."""
        makers = self.options.makers(plan)
        makers |= self._makers_of_weights(makers.values())
        assembly = _Assembly(self.egraph, self.view, makers)
        graph = assembly.graph()
        return Extracted(graph, cost_by_nodes(graph, self.costs), assembly.made, is_proven)

    def _makers_of_weights(self, makers: Collection[ENode]) -> dict[str, ENode]:
        """Nodes that compute the needed weights, with as few steps as possible."""
        weights = self.view.lookup.weights
        read = [name for one in makers for name in one.reads]
        leaving = [self.egraph.find(value.name).name for value in self.egraph.graph.outputs]
        nodes = {
            name: [one for one in several if weights.issuperset(one.reads) and not one.node.dims]
            for name, several in self.view.nodes.items()
            if name in weights
        }
        options = _options([name for name in (*read, *leaving) if name in weights], nodes, lambda _: 1.0)
        return options.makers(_planned(options.problem))


def _planned(problem: Problem) -> Plan:
    plan = greedy(problem)
    if plan is None:
        raise InternalError("an e-graph does not hold the graph that it began with")
    return plan


@dataclass(frozen=True, slots=True)
class _Options:
    """A problem, with the classes and nodes of its numbers."""

    problem: Problem
    nodes: Sequence[ENode]
    things: Mapping[str, int]

    def makers(self, plan: Plan) -> dict[str, ENode]:
        """The chosen node of each class."""
        return {name: self.nodes[plan[thing]] for name, thing in self.things.items() if thing in plan}


def _options(wanted: Sequence[str], nodes: Mapping[str, Sequence[ENode]], cost: Callable[[Node], float]) -> _Options:
    """The problem for ``wanted``; ``nodes``: those that make each class. Other classes are available."""
    things: dict[str, int] = {}
    waiting = [name for name in wanted if name in nodes]
    while waiting:
        name = waiting.pop()
        if name not in things:
            things[name] = len(things)
            waiting += [read for one in nodes[name] for read in one.reads if read in nodes]
    makes: dict[ENode, list[int]] = {}
    for name, thing in things.items():
        for one in nodes[name]:
            makes.setdefault(one, []).append(thing)
    options = (
        Option(cost(one.node), tuple(things[name] for name in one.reads if name in things), tuple(made))
        for one, made in makes.items()
    )
    goals = tuple(dict.fromkeys(things[name] for name in wanted if name in things))
    return _Options(Problem(tuple(options), goals), tuple(makes), things)


@dataclass(slots=True)
class _Assembly:
    """A graph under construction, with its value for each class."""

    egraph: EGraph
    view: View
    makers: Mapping[str, ENode]
    names: Names = field(init=False)
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    nodes: list[Node] = field(default_factory=list[Node])
    made: dict[Rule, list[str]] = field(default_factory=dict[Rule, list[str]])

    def __post_init__(self) -> None:
        self.names = self.egraph.new_names()
        self.values = {value.name: value for value in self.egraph.graph.inputs}

    def graph(self) -> Graph:
        """The graph, verified and without dead code. Its outputs keep their names."""
        before = self.egraph.graph
        leaving: dict[str, Value] = {}
        for value in before.outputs:
            leaving.setdefault(self.egraph.find(value.name).name, value)
        reads = {name: [read for read in one.reads if read in self.makers] for name, one in self.makers.items()}
        for one in dict.fromkeys(self.makers[name] for (name,) in components(reads)):
            self._place(one, leaving)
        for value in dict.fromkeys(before.outputs):
            made = self._value(self.egraph.find(value.name))
            if made.name != value.name:
                self.nodes.append(make_node(_IDENTITY, [made], [value.name], {}))
        graph = replace(before, nodes=tuple(self.nodes), constants=self.constants)
        verify(graph)
        return eliminate_dead_code(graph)

    def _place(self, one: ENode, leaving: Mapping[str, Value]) -> None:
        inputs = tuple(value and self._value(value) for value in one.node.inputs)
        outputs = tuple(self._result(one, value, leaving) for value in one.node.outputs)
        self.nodes.append(replace(one.node, inputs=inputs, outputs=outputs))
        if one.rule is not None:
            self.made.setdefault(one.rule, []).extend(value.name for value in outputs)

    def _result(self, one: ENode, value: Value, leaving: Mapping[str, Value]) -> Value:
        """The result of ``one`` in the class of ``value``, with a new name if another node makes that class."""
        if self.makers.get(value.name) is not one or value.name in self.values:
            return replace(value, name=self.names.fresh(value.name))
        self.values[value.name] = leaving.get(value.name, value)
        return self.values[value.name]

    def _value(self, value: Value) -> Value:
        """The value of a class in the graph; constants are added at their first read."""
        if value.name not in self.values:
            array = self.view.lookup.arrays[value.name]
            is_taken = any(value.name == leaving.name for leaving in self.egraph.graph.outputs)
            name = self.names.fresh(value.name) if is_taken else value.name
            made = Value(name, value.dtype, tuple(map(const, array.shape)))
            self.values[value.name] = made
            self.constants[made] = array
        return self.values[value.name]
