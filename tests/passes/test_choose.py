"""Alternatives and layouts are chosen at least cost: equal to brute force, as the graph then is, within memory."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from tests.passes import graphs
from tests.passes.graphs import apply
from tests.passes.networks import HOST, LANES, Array, conv, networks
from tilewright.base.numerics import Math
from tilewright.compilation import Options, compile_prepared
from tilewright.graph import Graph, Value, verify
from tilewright.passes.alternatives import facts_of
from tilewright.passes.alternatives.api import computed
from tilewright.passes.blocks import Reads, is_plain_in_blocks
from tilewright.passes.choose import ALWAYS, Choices, Copy, Problem, Times, choose, usual_growth
from tilewright.target.target import Target

ZEN5 = Target.parse("x86_64,znver5,l1=48K,l2=1M,l3=32M,cores=2")


def fewest(problem: Problem) -> float:
    """The least sum over all states of all values, each written out."""
    values = list(problem.states)
    sizes = [len(problem.states[value]) for value in values]
    total = np.zeros(sizes)
    for position, value in enumerate(values):
        total += problem.costs(value, 0.0).reshape([-1 if at == position else 1 for at in range(len(values))])
    for (a, b), costs in problem.edges.items():
        first, second = values.index(a), values.index(b)
        along = costs if first < second else costs.T
        total += along.reshape([sizes[at] if at in (first, second) else 1 for at in range(len(values))])
    return float(total.min())


@given(networks())
@settings(max_examples=60, deadline=None)
def test_nothing_costs_less(graph: Graph) -> None:
    check(graph)


def test_reading_what_can_not_be_in_blocks_costs_something() -> None:
    """A mask of one channel, which a product in blocks reads."""
    known: dict[Value, Array] = {}
    x, mask = graphs.value("x", 1, 3, 24, 24), graphs.value("mask", 1, 1, 24, 24)
    made = conv(known, x, 32, "a")
    masked = apply("Mul", [*made.outputs, mask], "b")
    graph = Graph("g", (x, mask), masked.outputs, (made, masked), known)
    assert [state.way.is_blocked for state in check(graph, ZEN5).states.values()] == [False, False, True, True]


def check(graph: Graph, target: Target = HOST) -> Choices:
    """Its choices, which must cost what the best of all cost."""
    problem = Problem.of(graph, facts_of(graph, target))
    choices = problem.solve(0.0)
    if np.prod([float(len(states)) for states in problem.states.values()]) <= 1e6:
        assert choices.is_best
        assert choices.cycles == pytest.approx(fewest(problem) - settled(problem))
    return choices


def settled(problem: Problem) -> float:
    """What values cost that have one state only, which is no choice."""
    own = sum(problem.costs(value, 0.0)[0] for value, states in problem.states.items() if len(states) == 1)
    between = (costs for pair, costs in problem.edges.items() if all(len(problem.states[value]) == 1 for value in pair))
    return float(own + sum(costs.sum() for costs in between))


@given(networks())
@settings(max_examples=30, deadline=None)
def test_everybody_gets_what_they_need(graph: Graph) -> None:
    choices = choose(graph, HOST)
    reads = computed(graph, {v: s.way for v, s in choices.states.items()}, graph.names()).reads
    laid_out = choices.apply()
    verify(laid_out.graph)
    assert laid_out.graph.outputs == graph.outputs
    assert not set(graph.inputs + graph.outputs) & set(laid_out.layouts)
    for node in laid_out.graph.nodes:
        made = node.outputs[0]
        how = reads.get(made) or reads.get(replace(made, name=laid_out.copies.get(made.name, "")))
        for read in (v for v in node.inputs if v is not None and v not in graph.constants and node.op.name != "Copy"):
            if read in laid_out.layouts:
                assert how is not Reads.PLAIN or is_plain_in_blocks(read, choices.facts.blocks)
            else:
                assert how is not Reads.BLOCKED


def convolutions(count: int) -> Graph:
    known: dict[Value, Array] = {}
    x = graphs.value("x", 1, 4 * LANES, 24, 24)
    nodes = [conv(known, x, 4 * LANES, "v0")]
    for position in range(1, count):
        nodes.append(conv(known, nodes[-1].outputs[0], 4 * LANES, f"v{position}"))
    return Graph("chain", (x,), nodes[-1].outputs, tuple(nodes), known)


def test_larger_weights_stay_within_what_is_to_spare() -> None:
    """As many convolutions in the transformed domain as there is memory for."""
    graph = convolutions(4)
    free = choose(graph, HOST)
    each = free.more_bytes // 4
    assert each > 0
    cycles = free.cycles
    for count in (3, 2, 1, 0):
        leaner = choose(graph, HOST, spare=count * each + each // 2)
        assert 0 <= leaner.more_bytes <= count * each + each // 2
        assert (leaner.more_bytes > 0) is (count > 0)
        assert leaner.cycles >= cycles
    assert choose(graph, HOST, spare=0).more_bytes == 0


def test_weights_grow_within_bounds_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the model's own weights, but always some; a large limit permits more."""
    graph = convolutions(4)
    own = sum(array.nbytes for array in graph.constants.values())
    assert usual_growth(graph) == ALWAYS
    monkeypatch.setattr("tilewright.passes.choose.ALWAYS", 0)
    monkeypatch.setattr("tilewright.passes.choose.GROWTH", 1.0)
    assert usual_growth(graph) == own
    options = Options(HOST, threads=1)
    usual, free = (
        compile_prepared(graph, replace(options, memory_limit=limit)).choices.more_bytes for limit in (None, 1 << 40)
    )
    assert 0 < usual <= own < free == choose(graph, HOST).more_bytes


def test_strict_numerics_have_plain_sums_only() -> None:
    choices = choose(convolutions(2), HOST, Math.STRICT)
    assert all(state.way.algorithm == "direct" for state in choices.states.values())


def test_depthwise_convolutions_stay_with_their_data() -> None:
    """By rows of plain data; in blocks where the data are: neither is worth a copy."""
    known: dict[Value, Array] = {}
    x = graphs.value("x", 1, 2 * 16, 24, 24)
    first = conv(known, x, 2 * 16, "a", group=2 * 16)
    second = conv(known, first.outputs[0], 2 * 16, "b", kernel=1)
    third = conv(known, second.outputs[0], 2 * 16, "c", group=2 * 16)
    fourth = conv(known, third.outputs[0], 2 * 16, "d", kernel=1)
    flat = apply("ReduceMean", fourth.outputs, "e", axes=(2, 3), keepdims=False)
    graph = Graph("g", (x,), flat.outputs, (first, second, third, fourth, flat), known)
    laid_out = choose(graph, ZEN5).apply()
    assert {v.name for v in laid_out.layouts} >= {"b", "c"}
    assert not {"a"} & {v.name for v in laid_out.layouts}


def test_a_transform_that_convolutions_share_costs_once() -> None:
    """The same convolutions with tiles that are the same ones, and that begin a row above."""
    known: dict[Value, Array] = {}
    x = graphs.value("x", 1, 64, 56, 56)
    first, second = (conv(known, x, 64, name) for name in "ab")
    moved = apply("Conv", [v for v in second.inputs if v is not None], "b", pads=(0, 1, 2, 1), group=1)
    outputs = (*first.outputs, *second.outputs)
    shared, apart = (choose(Graph("g", (x,), outputs, (first, other), known), ZEN5) for other in (second, moved))
    check(Graph("g", (x,), outputs, (first, second), known))
    ways = [choices.states[value].way for choices in (shared, apart) for value in outputs]
    assert {way.algorithm for way in ways} == {"F(4x4)"}
    assert ways[0].first is not None and ways[0].first == ways[1].first != ways[3].first
    assert apart.cycles - shared.cycles == pytest.approx(ways[0].first.cycles)


def test_a_choice_is_written_as_one_reads_it() -> None:
    text = str(choose(convolutions(1), HOST))
    assert text.splitlines()[-1].endswith("cycles")
    assert "v0: " in text and "cycles" in text


def test_what_was_measured_decides() -> None:
    """The way that took least is chosen, whatever was estimated; where nothing was measured, estimates count."""
    graph = convolutions(2)
    first, second = (node.outputs[0] for node in graph.nodes if node.op.name == "Conv")
    free = choose(graph, HOST)
    names = {s.way.name for s in Problem.of(graph, facts_of(graph, HOST)).states[first]}
    assert len(names) > 2
    for fastest in names:
        times = {name: 100.0 if name != fastest else 1.0 for name in names}
        choices = choose(graph, HOST, times=Times({first: times}, {}))
        assert choices.states[first].way.name == fastest
        assert choices.states[first].way.measured_us == 1.0
        assert choices.states[second].way.measured_us is None
        assert f"{fastest}, " in str(choices) and "(measured: 1.0 us)" in str(choices)
    slowest = {free.states[first].way.name: 1.0}
    assert choose(graph, HOST, times=Times({first: slowest}, {})).decisions == free.decisions


def test_estimates_beside_a_time_go_along_with_it() -> None:
    """The first convolution is slow whatever way is chosen, as far as one knows: that is no reason for another way."""
    graph = convolutions(2)
    first, second = (node.outputs[0] for node in graph.nodes if node.op.name == "Conv")
    free = choose(graph, HOST)
    ways = {value: {free.states[value].way.name: took} for value, took in ((first, 1000.0), (second, 1.0))}
    assert choose(graph, HOST, times=Times(ways, {})).decisions == free.decisions


def test_a_copy_that_takes_long_is_not_made() -> None:
    graph = convolutions(2)
    copies = set(Problem.of(graph, facts_of(graph, HOST)).kernels_that_copy())
    assert Copy(graph.inputs[0], from_blocks=False) in copies
    chosen = {value for value, state in choose(graph, HOST).states.items() if state.is_copied}
    assert graph.inputs[0] in chosen
    (first, _) = (node.outputs[0] for node in graph.nodes if node.op.name == "Conv")
    ways = {first: {s.way.name: s.way.cycles for s in Problem.of(graph, facts_of(graph, HOST)).states[first]}}
    slow = choose(graph, HOST, times=Times(ways, dict.fromkeys(copies, 1e12)))
    assert graph.inputs[0] not in {value for value, state in slow.states.items() if state.is_copied}
