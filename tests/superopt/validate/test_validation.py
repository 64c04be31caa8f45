"""Rewrites that are right pass; wrong ones are found by each of both checks alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from tests.passes.graphs import feeds_of as normal_feeds
from tests.passes.graphs import random_graphs
from tests.passes.rules.instances import instance
from tests.superopt.networks import Net, graph_of
from tests.superopt.validate.faults import CASES, Case
from tilewright.base.errors import BadProgram, InternalError, NotEquivalent
from tilewright.base.numerics import Math
from tilewright.graph import Array, Graph, Node, Value, evaluate_graph, make_node
from tilewright.measure.difference import difference
from tilewright.ops.operator import require
from tilewright.passes.rules import ALGEBRA, SEARCH, Rule, applied, index_of, load_rules, matches, rewrite
from tilewright.superopt.validate.validation import TOLERANCES, random_feeds, validate
from tilewright.superopt.validate.verdicts import Method
from tilewright.symbolic.expr import Extent

RULES = [*load_rules(ALGEBRA), *load_rules(SEARCH)]
FAULTS = [(case, fault) for case in CASES for fault in CASES[case].wrong]


def test_there_are_many_kinds_of_faults() -> None:
    assert len(FAULTS) >= 40


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_right_passes(case: Case) -> None:
    before, after = graph_of(case.before), graph_of(case.right)
    found = validate(before, after, evaluate_graph)
    assert found.is_complete
    assert found.checked
    assert found.largest_difference is not None
    assert found.largest_difference < 1e-5
    assert found.error_bound < 1e-15


@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_what_is_wrong_is_found_region_by_region(name: str, fault: str) -> None:
    case = CASES[name]
    before, after = graph_of(case.before), graph_of(case.wrong[fault])
    with pytest.raises(NotEquivalent) as caught:
        validate(before, after)
    assert caught.value.value == _first_that_differs(before, after)


@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_what_is_wrong_is_found_by_running_it(name: str, fault: str) -> None:
    """With no budget, nothing is decided by region."""
    case = CASES[name]
    before, after = graph_of(case.before), graph_of(case.wrong[fault])
    with pytest.raises(NotEquivalent, match="random inputs") as caught:
        validate(before, after, evaluate_graph, budget=0)
    assert caught.value.value == _first_that_differs(before, after)


def _first_that_differs(before: Graph, after: Graph) -> str:
    feeds = random_feeds(before, seed=7)
    pairs = zip(evaluate_graph(before, feeds), evaluate_graph(after, feeds), strict=True)
    differences = [difference(new, old).worst for old, new in pairs]
    return next(v.name for v, found in zip(before.outputs, differences, strict=True) if found > 1e-3)


@pytest.mark.share(4)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_rule_passes(rule: Rule) -> None:
    before = instance(rule, 3)
    match = next(matches(rule, index_of(before)))
    found = validate(before, applied(before, match), evaluate_graph)
    assert found.is_complete
    assert all(one.method is Method.EXACT for one in found.checked)


# What is checked


def test_a_graph_that_is_unchanged_needs_no_check() -> None:
    graph = graph_of(CASES["layer"].before)
    found = validate(graph, graph)
    assert (found.same, found.checked, found.largest_difference) == (len(graph.nodes), (), None)
    assert found.error_bound == 0.0
    assert str(found) == f"{len(graph.nodes)} values as before"


WIDTH, LAYERS = 1024, 30


def _tower(net: Net, *, is_merged: bool, is_wrong_at: int = -1) -> None:
    """Layers of two products each, far too large to be evaluated as they are."""
    x = net.x("x", 512, WIDTH)
    weights = [net.w(name, WIDTH, WIDTH) for name in "wv"]
    for layer in range(LAYERS):
        if is_merged:
            t = net("MatMul", x, net("Concat", *weights, axis=1))
            starts = (WIDTH, 0) if layer == is_wrong_at else (0, WIDTH)
            parts = [net("Slice", t, axes=(-1,), starts=(at,), ends=(at + WIDTH,)) for at in starts]
        else:
            parts = [net("MatMul", x, weight) for weight in weights]
        x = net("Sub", *parts, name="y" if layer == LAYERS - 1 else f"h{layer}")


def test_large_graphs_are_checked_at_small_sizes() -> None:
    before, after = (graph_of(partial(_tower, is_merged=is_merged)) for is_merged in (False, True))
    found = validate(before, after, budget=10_000)
    assert found.is_complete
    assert [one.value for one in found.checked] == [*(f"h{layer}" for layer in range(LAYERS - 1)), "y"]
    assert all(one.method is Method.EXACT and max(one.sizes.values()) < 20 for one in found.checked)
    assert all(one.operators == 8 for one in found.checked)


def test_the_place_of_a_fault_is_told() -> None:
    before = graph_of(partial(_tower, is_merged=False))
    after = graph_of(partial(_tower, is_merged=True, is_wrong_at=7))
    with pytest.raises(NotEquivalent, match=r"output y is not what it was: h7, made by .*Sub") as caught:
        validate(before, after)
    assert caught.value.value == "y"


def test_what_is_beyond_the_budget_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (graph_of(partial(_tower, is_merged=is_merged)) for is_merged in (False, True))
    points: list[int] = []
    monkeypatch.setattr("tilewright.superopt.validate.verdicts.DomainProgram", lambda *_: points.append(1))
    found = validate(before, after, budget=10)
    assert not found.is_complete
    assert len(found.undecided) == LAYERS
    assert "more than the budget of 10" in found.undecided["y"]
    assert not points
    assert f"{LAYERS} undecided" in str(found)


def test_leaves_that_follow_from_each_other() -> None:
    """The value between is needed in both graphs, so it looks like a value that could be anything."""

    def build(net: Net, *, is_after: bool, op: str = "Neg") -> None:
        x = net.x("x", 3)
        a = net(op, x, name="y1")
        net("Identity", x, name="y2") if is_after else net("Neg", a, name="y2")

    before, after = (graph_of(partial(build, is_after=is_after)) for is_after in (False, True))
    (checked,) = validate(before, after).checked
    assert (checked.value, checked.method) == ("y2", Method.EXACT)
    wrong = [graph_of(partial(build, is_after=is_after, op="Relu")) for is_after in (False, True)]
    with pytest.raises(NotEquivalent, match="y2"):
        validate(*wrong)


def test_views_are_looked_through() -> None:
    def build(net: Net, *, is_after: bool) -> None:
        x = net.x("x", 4, 5)
        turned = net("Transpose", x, name="y1")
        product = net("MatMul", x, net.w("w", 5, 3))
        if is_after:
            net("Transpose", product, name="y2")
        else:
            net("MatMul", net("Transpose", net.w("w", 5, 3)), turned, name="y2")

    (checked,) = validate(*(graph_of(partial(build, is_after=is_after)) for is_after in (False, True))).checked
    assert (checked.value, checked.operators) == ("y2", 5)


def test_extents_that_are_known_at_run_time_only() -> None:
    rows = Extent("rows")

    def build(net: Net, *, is_after: bool, start: int = 6) -> None:
        x = net.x("x", rows, 6)
        names = ("a", "b")
        if is_after:
            t = net("MatMul", x, net("Concat", *(net.w(name, 6, 6) for name in names), axis=1))
            for place, at in enumerate((0, start)):
                part = net("Slice", t, axes=(1,), starts=(at,), ends=(at + 6,))
                net("Reshape", part, name=f"y{place}", shape=(rows * 2, 3))
        else:
            for place, name in enumerate(names):
                net("Reshape", net("MatMul", x, net.w(name, 6, 6)), name=f"y{place}", shape=(rows * 2, 3))

    before = graph_of(partial(build, is_after=False))
    found = validate(before, graph_of(partial(build, is_after=True)), evaluate_graph)
    assert found.is_complete
    with pytest.raises(NotEquivalent, match="y1"):
        validate(before, graph_of(partial(build, is_after=True, start=5)))


def test_what_holds_for_true_functions_only() -> None:
    """``exp(a) exp(b) = exp(a + b)``, and the root of a square: not modulo a prime."""

    def build(net: Net, *, is_after: bool) -> None:
        a, b = net.x("a", 5), net.x("b", 5)
        if is_after:
            net("Exp", net("Add", a, b), name="y")
        else:
            net("Mul", net("Exp", a), net("Exp", b), name="y")

    found = validate(*(graph_of(partial(build, is_after=is_after)) for is_after in (False, True)), evaluate_graph)
    assert [one.method for one in found.checked] == [Method.FLOAT64]
    assert "1 in float64" in str(found)


def test_minus_infinity_is_no_number_of_the_field() -> None:
    def build(net: Net, *, is_after: bool) -> None:
        x, low = net.x("x", 5), net.number(float("-inf"))
        masked = net("Add", x, low)
        net("Exp", masked if is_after else net("Add", masked, low), name="y")

    found = validate(*(graph_of(partial(build, is_after=is_after)) for is_after in (False, True)))
    assert [one.method for one in found.checked] == [Method.FLOAT64]


def test_constants_that_were_folded_too_early_are_named() -> None:
    rule = next(rule for rule in RULES if rule.name.startswith("scale-into-product"))
    before = instance(rule, 0)
    assert any(array.size > 1 for array in before.constants.values())
    with pytest.raises(NotEquivalent, match="rules were folded too early"):
        validate(before, rewrite(before, [rule]), evaluate_graph)


def test_inputs_and_outputs_stay() -> None:
    graph = graph_of(CASES["products"].before)
    one = replace(graph, outputs=graph.outputs[:1])
    with pytest.raises(NotEquivalent, match="output y2 is not what it was: only one"):
        validate(graph, one)
    with pytest.raises(NotEquivalent, match="output y2 is not what it was: only one"):
        validate(one, graph)
    with pytest.raises(NotEquivalent, match=r"output y1 .* has become y2"):
        validate(graph, replace(graph, outputs=graph.outputs[::-1]))
    other = replace(graph, inputs=(*graph.inputs, Value("z", graph.inputs[0].dtype, ())))
    with pytest.raises(NotEquivalent, match="its inputs were"):
        validate(graph, other)
    layer = graph_of(CASES["layer"].before)
    with pytest.raises(InternalError, match="before it is made"):
        validate(layer, replace(layer, nodes=layer.nodes[1:]))


def test_how_far_floats_may_be_off() -> None:
    """A factor of the outputs that no region shows, as there is no budget."""

    def build(net: Net, *, factor: float) -> None:
        net("Mul", net("Sin", net.x("x", 50)), net.number(factor), name="y")

    before = graph_of(partial(build, factor=1.0))
    for math, tolerance in TOLERANCES.items():
        found = validate(
            before, graph_of(partial(build, factor=1 + tolerance / 2)), evaluate_graph, math=math, budget=0
        )
        assert found.largest_difference == pytest.approx(tolerance / 2, rel=0.01)
        with pytest.raises(NotEquivalent, match="is allowed"):
            validate(before, graph_of(partial(build, factor=1 + tolerance * 2)), evaluate_graph, math=math, budget=0)
    assert TOLERANCES[Math.STRICT] < TOLERANCES[Math.DEFAULT]


def test_each_seed_gives_other_inputs_and_both_graphs_the_same() -> None:
    graph = graph_of(CASES["layer"].before)
    seen: list[Array] = []

    def run(graph: Graph, feeds: Mapping[str, Array]) -> Sequence[Array]:
        seen.append(feeds["x"])
        return evaluate_graph(graph, feeds)

    validate(graph, graph, run, seeds=(3, 4, 5))
    assert len(seen) == 6
    assert all(np.array_equal(a, b) for a, b in zip(seen[::2], seen[1::2], strict=True))
    assert not np.array_equal(seen[0], seen[2])


# Faults by chance

SWAPS = {"Add": ("Sub", "Mul"), "Mul": ("Add", "Div"), "Relu": ("Neg", "Sigmoid"), "Neg": ("Relu", "Tanh")}
SWAPS |= {"Max": ("Min", "Add"), "Tanh": ("Sigmoid",), "MatMul": ("Add",), "Softmax": ("LogSoftmax",)}


@st.composite
def mutations(draw: st.DrawFn, graph: Graph) -> Graph:
    """``graph`` with one node made otherwise; of the same types."""
    position = draw(st.integers(0, len(graph.nodes) - 1))
    node = graph.nodes[position]
    known = [*graph.inputs, *graph.constants, *(v for n in graph.nodes[:position] for v in n.outputs)]
    operands = list(node.inputs)
    match draw(st.sampled_from(["operator", "operand", "order"])):
        case "operator" if node.op.name in SWAPS:
            op = require(draw(st.sampled_from(SWAPS[node.op.name])))
        case "order" if len(operands) > 1:
            op, operands = node.op, operands[::-1]
        case _:
            place = draw(st.integers(0, len(operands) - 1))
            same = [v for v in known if operands[place] is not None and _alike(v, operands[place])]
            op, operands[place] = node.op, draw(st.sampled_from(same))
    try:
        made = make_node(op, operands, [v.name for v in node.outputs], dict(node.attributes))
    except BadProgram:
        return graph
    assume(made.outputs == node.outputs)
    nodes: list[Node] = [*graph.nodes[:position], made, *graph.nodes[position + 1 :]]
    return replace(graph, nodes=tuple(nodes))


def _alike(a: Value, b: Value | None) -> bool:
    return b is not None and (a.dtype, a.shape) == (b.dtype, b.shape)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_node_that_is_made_otherwise_is_found_if_and_only_if_it_matters(data: st.DataObject) -> None:
    before = data.draw(random_graphs())
    after = data.draw(mutations(before))
    note(f"{before}\n{after}")
    feeds = normal_feeds(before)
    pairs = [
        list(zip(evaluate_graph(before, given), evaluate_graph(after, given), strict=True))
        for given in (feeds, {name: -array for name, array in feeds.items()})
    ]
    assume(all(np.isfinite(array.astype(np.float64)).all() for run in pairs for pair in run for array in pair))
    differences = [max(difference(new, old).worst for old, new in runs) for runs in zip(*pairs, strict=True)]
    assume(not any(1e-5 < found < 1e-2 for found in differences))  # rounding, or a difference that is hard to see
    wrong = [v.name for v, found in zip(before.outputs, differences, strict=True) if found > 1e-2]
    try:
        validate(before, after)
    except NotEquivalent as error:
        assert error.value == wrong[0]
    else:
        assert not wrong
