"""Layers (``Gemm``) are searched as products, in any of their forms, and compute the same."""

from itertools import product

import numpy as np
import pytest

from tests.closeness import assert_near
from tests.superopt.networks import Net
from tests.superopt.search.test_backtracking import Counted
from tilewright.base.superopt import Superopt
from tilewright.graph import Graph, evaluate_graph, verify
from tilewright.passes.rules import ALGEBRA, GENERATED, SEARCH, index_of, load_rules, parse_rules
from tilewright.superopt.search.accounts import Fate, accounts
from tilewright.superopt.search.layers import forms_of, in_products
from tilewright.superopt.search.optimization import EFFORTS, Search
from tilewright.superopt.validate.validation import validate

ROWS, INNER, COLUMNS = 3, 5, 4
FORMS = list(product((False, True), (False, True), (1.0, -2.0), (1.0, 0.5), ("none", "row", "matrix"), ("w", "x")))


def _shape(rows: int, columns: int, *, turned: bool) -> tuple[int, int]:
    return (columns, rows) if turned else (rows, columns)


@pytest.mark.parametrize("turned", [False, True])
def test_every_form_of_a_layer_is_a_product(turned: bool) -> None:
    """Held against NumPy in float64."""
    for turned_a, turned_b, alpha, beta, addend, second in FORMS:
        if turned_b is not turned:
            continue
        net = Net()
        a = net.x("a", *_shape(ROWS, INNER, turned=turned_a))
        b = (net.w if second == "w" else net.x)("b", *_shape(INNER, COLUMNS, turned=turned_b))
        c = {"none": [], "row": [net.w("c", COLUMNS)], "matrix": [net.x("d", ROWS, COLUMNS)]}[addend]
        options = {"alpha": alpha, "beta": beta, "transpose_a": turned_a, "transpose_b": turned_b}
        graph = net.graph(net("Gemm", a, b, *c, name="y", **options))
        written = in_products(graph)
        verify(written)
        assert {node.op.name for node in written.nodes} <= {"MatMul", "Add", "Mul", "Transpose"}
        assert written.outputs == graph.outputs
        random = np.random.default_rng(0)
        feeds = {v.name: random.standard_normal([int(str(e)) for e in v.shape]).astype(np.float32) for v in net.inputs}
        known = {**feeds, **{value.name: array for value, array in net.constants.items()}}
        left, right, *rest = (np.asarray(known[v.name], np.float64) for v in (a, b, *c))
        expected = alpha * (left.T if turned_a else left) @ (right.T if turned_b else right)
        expected += beta * rest[0] if rest else 0.0
        assert_near(evaluate_graph(written, feeds)[0], expected.astype(np.float32), 1e-6)
        weights = index_of(written).weights
        scaled = [node for node in written.nodes if node.op.name == "Mul" and node.outputs[0].name not in weights]
        assert bool(scaled) == ((alpha != 1.0 and second == "x") or (beta != 1.0 and addend == "matrix"))


def test_what_has_no_layers_stays() -> None:
    net = Net()
    graph = net.graph(net("MatMul", net.x("x", 2, 3), net.w("w", 3, 4), name="y"))
    assert in_products(graph) is graph


def test_layers_of_integers_stay() -> None:
    """Where a factor would stand between a product and the scale of its operand."""
    net = Net()
    w = net("Mul", net.w("w", 4, 3), net.w("s", 1))
    x = net("DequantizeLinear", net("QuantizeLinear", net.x("x", 2, 3), net.number(0.1)), net.number(0.1))
    graph = net.graph(net("Gemm", x, w, name="y", alpha=2.0, transpose_b=True))
    assert in_products(graph) is graph


def _chain() -> Graph:
    """Two layers without an activation between them, as exporters write them."""
    net = Net()
    inner = net("Gemm", net.x("x", 128, 64), net.w("v", 256, 64), transpose_b=True, alpha=2.0)
    return net.graph(net("Gemm", inner, net.w("w", 64, 256), name="y", transpose_b=True))


def test_rules_that_were_generated_match_layers() -> None:
    graph = _chain()
    search = Search(load_rules(GENERATED), EFFORTS[Superopt.FAST])
    best = search.optimize(graph, Counted())[0]
    assert best.steps
    products = [node for node in best.after.nodes if node.op.name == "MatMul"]
    assert sum(node.outputs[0].name not in index_of(best.after).weights for node in products) == 1
    x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    (expected,) = evaluate_graph(graph, {"x": x})
    assert_near(evaluate_graph(best.after, {"x": x})[0], expected, 1e-5)
    assert best.before is graph


NAMED = """
rule negative-twice
  for x[m, k], w[n, k]
  from Neg(Gemm(x, w, transpose_b=True, **gemm))
  to Gemm(x, Neg(w), transpose_b=True, **gemm)
  proof tested; 0 shapes
"""


def test_a_rule_that_names_layers_finds_them() -> None:
    net = Net()
    graph = net.graph(net("Neg", net("Gemm", net.x("x", 2, 3), net.w("w", 4, 3), transpose_b=True), name="y"))
    rules = parse_rules(NAMED)
    assert len(forms_of(graph, rules)) == 2
    found = Search(rules, EFFORTS[Superopt.FAST]).optimize(graph, Counted())[0]
    assert [step.rule.name for step in found.steps] == ["negative-twice"]
    (account,) = accounts(rules, {}, found, Counted())
    assert (account.fate, account.matches) == (Fate.APPLIED, 1)


def test_nothing_is_found_in_one_layer() -> None:
    net = Net()
    graph = net.graph(net("Gemm", net.x("x", 2, 3), net.w("w", 4, 3), net.w("c", 4), name="y", transpose_b=True))
    (only,) = Search(load_rules(GENERATED), EFFORTS[Superopt.FAST]).optimize(graph, Counted())
    assert only.after is graph


def test_a_search_begins_also_after_the_rules_that_always_run() -> None:
    """A normalization becomes a product and a sum, which cost more; these become part of the filters beside it."""
    net = Net()
    x = net.x("x", 1, 4, 6, 6)
    norm = [net.positive("s", 4), net.w("b", 4), net.w("m", 4), net.positive("v", 4)]
    filtered = net(
        "Conv", x, net.w("u", 4, 4, 3, 3), net.w("a", 4), pads=(1,) * 4, strides=(1, 1), dilations=(1, 1), group=1
    )
    graph = net.graph(net("Add", filtered, net("BatchNormalization", x, *norm), name="y"))
    rules = [*load_rules(ALGEBRA), *load_rules(SEARCH)]
    best = Search(rules, EFFORTS[Superopt.FAST]).optimize(graph, Counted())[0]
    assert [step.rule.name for step in best.steps][-1] == "filters-and-shifted-itself"
    weights = index_of(best.after).weights
    assert [node.op.name for node in best.after.nodes if node.outputs[0].name not in weights] == ["Conv"]
    assert str(validate(graph, best.after))
