"""What matches, what does not, and what a match is replaced by."""

import numpy as np
import pytest

from tests.passes.graphs import Array, apply, value
from tilewright.base.dtypes import f16, i32
from tilewright.base.errors import InternalError
from tilewright.graph import Graph, Node, Value, evaluate_graph, make_node, verify
from tilewright.ops.operator import require
from tilewright.passes.rules import Match, applied, index_of, matches, parse_rules, rewrite
from tilewright.symbolic.expr import Extent, const

X, Y = value("x", 4, 6), value("y", 4, 6)


def graph_of(*nodes: Node, constants: dict[Value, Array] | None = None, leaving: tuple[str, ...] = ()) -> Graph:
    made = {v.name: v for node in nodes for v in node.outputs}
    read = {v for node in nodes for v in node.inputs if v is not None}
    known = constants or {}
    inputs = sorted((v for v in read if v.name not in made and v not in known), key=lambda v: v.name)
    outputs = tuple(made[name] for name in leaving) or nodes[-1].outputs
    return Graph("g", tuple(inputs), outputs, nodes, known)


def found(rule: str, graph: Graph) -> list[Match]:
    (parsed,) = parse_rules(f"rule r\n{rule}")
    return list(matches(parsed, index_of(graph)))


def after(rule: str, graph: Graph) -> Graph:
    """The graph after the first match, which computes the same."""
    result = applied(graph, found(rule, graph)[0])
    verify(result)
    assert result.outputs == graph.outputs
    random = np.random.default_rng(0)
    feeds = {v.name: random.uniform(1, 2, [int(str(e)) for e in v.shape]).astype(v.dtype.numpy) for v in graph.inputs}
    for old, new in zip(evaluate_graph(graph, feeds), evaluate_graph(result, feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=2e-3 if old.dtype == np.float16 else 1e-5)
    return result


def names_of(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


@pytest.mark.parametrize("swapped", [False, True])
def test_operators_that_commute(swapped: bool) -> None:
    relu = apply("Relu", [X], "r")
    operands = [Y, *relu.outputs] if swapped else [*relu.outputs, Y]
    rule = "for a[m, n], b[m, n]\nfrom {0}(Relu(a), b)\nto {0}(b, Relu(a))"
    assert len(found(rule.format("Add"), graph_of(relu, apply("Add", operands, "s")))) == 1
    assert len(found(rule.format("Sub"), graph_of(relu, apply("Sub", operands, "s")))) == (not swapped)


def test_what_is_a_multiple_is_divided() -> None:
    rule = "for a[2 * m, n]\nfrom Relu(a)\nto Reshape(Relu(Reshape(a, shape=(m, 2 * n))), shape=(2 * m, n))"
    reshaped = after(rule, graph_of(apply("Relu", [X], "r"))).nodes[0].outputs[0]
    assert list(map(str, reshaped.shape)) == ["2", "12"]
    assert not found(rule, graph_of(apply("Relu", [value("odd", 3, 4)], "r")))
    assert not found("for a[m * m, n]\nfrom Relu(a)\nto a", graph_of(apply("Relu", [X], "r")))


def test_one_name_is_one_value() -> None:
    rule = "for a[m, n]\nfrom Add(a, a)\nto Mul(a, 2.0)"
    assert not found(rule, graph_of(apply("Add", [X, Y], "s")))
    assert names_of(after(rule, graph_of(apply("Add", [X, X], "s")))) == ["Mul"]


def test_extents_are_equal_where_their_names_are() -> None:
    product = apply("MatMul", [X, value("w", 6, 4)], "p")
    assert found("for a[m, k], b[k, m]\nfrom MatMul(a, b)\nto MatMul(a, b)", graph_of(product))
    assert not found("for a[m, m], b[m, m]\nfrom MatMul(a, b)\nto MatMul(a, b)", graph_of(product))


def test_so_are_leading_dimensions() -> None:
    rule = "for a[*b, m, k], c[*b, k, n]\nfrom MatMul(a, c)\nto MatMul(a, c)"
    a = value("a", 2, 3, 4)
    assert found(rule, graph_of(apply("MatMul", [a, value("c", 2, 4, 5)], "p")))
    assert not found(rule, graph_of(apply("MatMul", [a, value("c", 4, 5)], "p")))


@pytest.mark.parametrize(("extents", "count"), [((8,), 1), ((6,), 0), ((1,), 0)])
def test_needs(extents: tuple[int, ...], count: int) -> None:
    rule = "for a[n]\nfrom Relu(a)\nto Max(a, 0.0)\nneed n % 4 == 0, n >= 2"
    assert len(found(rule, graph_of(apply("Relu", [value("x", *extents)], "r")))) == count


@pytest.mark.parametrize(("need", "count"), [("n % 2 == 0", 1), ("n >= 0", 1), ("n % 4 == 0", 0), ("n >= 1", 0)])
def test_needs_of_run_time_extents_are_proven(need: str, count: int) -> None:
    x = Value("x", X.dtype, (Extent("batch") * 2,))
    relu = make_node(require("Relu"), [x], ["r"], {})
    batch = Value("b", X.dtype, (Extent("batch"),))
    graph = Graph("g", (x, batch), relu.outputs, (relu,), {})
    assert len(found(f"for a[n]\nfrom Relu(a)\nto Max(a, 0.0)\nneed {need}", graph)) == count


def test_attributes_that_are_not_written_are_defaults() -> None:
    w = value("w", 6, 6)
    rule = "for a[m, k], b[k, n]\nfrom Gemm(a, b)\nto MatMul(a, b)"
    assert names_of(after(rule, graph_of(apply("Gemm", [X, w], "p", alpha=1.0, transpose_a=False)))) == ["MatMul"]
    assert not found(rule, graph_of(apply("Gemm", [X, w], "p", alpha=2.0)))
    assert not found(rule, graph_of(apply("Gemm", [X, w], "p", transpose_b=True)))
    written = "for a[m, k], b[k, n]\nfrom Gemm(a, b, alpha=1.0)\nto MatMul(a, b)"
    assert found(written, graph_of(apply("Gemm", [X, w], "p")))
    assert not found(written, graph_of(apply("Gemm", [X, w], "p", alpha=2.0)))


def test_others_are_carried_over() -> None:
    rule = "for a[m, k], b[k, n], c[m, n]\nfrom Add(Gemm(a, b, **g), c)\nto Gemm(a, b, c, **g)"
    product = apply("Gemm", [X, value("w", 6, 6)], "p", alpha=2.0, transpose_b=True)
    (node,) = after(rule, graph_of(product, apply("Add", [*product.outputs, Y], "s"))).nodes
    assert dict(node.attributes) == {"alpha": 2.0, "transpose_b": True}


def test_one_name_is_the_same_attributes() -> None:
    rule = "for a[m, n], b[m, n]\nfrom Add(Softmax(a, **s), Softmax(b, **s))\nto Add(Softmax(b, **s), Softmax(a, **s))"
    last, also, first = (
        apply("Softmax", [X], "p", axis=-1),
        apply("Softmax", [Y], "q"),
        apply("Softmax", [Y], "q", axis=0),
    )
    total = apply("Add", [*last.outputs, *also.outputs], "s")
    assert found(rule, graph_of(last, also, total))  # by default, it is the last axis
    assert not found(rule, graph_of(last, first, total))


@pytest.mark.parametrize("axis", [1, -1])
def test_axes_count_from_both_ends(axis: int) -> None:
    for written in (1, -1):
        rule = f"for a[m, n]\nfrom Softmax(a, axis={written})\nto Softmax(a, axis=1)"
        assert found(rule, graph_of(apply("Softmax", [X], "p", axis=axis)))
    assert not found("for a[m, n]\nfrom Softmax(a, axis=0)\nto Softmax(a)", graph_of(apply("Softmax", [X], "p")))


def test_symbols_follow_from_sums() -> None:
    rule = "for a[m, k + l]\nfrom Slice(a, axes=(1,), starts=(0,), ends=(k,), steps=(1,))\n" + (
        "to Slice(a, axes=(-1,), starts=(0,), ends=(k,), steps=(1,))\nneed l == 2"
    )
    part = apply("Slice", [X], "p", starts=(0,), ends=(4,), axes=(1,), steps=(1,))
    assert found(rule, graph_of(part))
    assert not found(rule.replace("l == 2", "l == 1"), graph_of(part))
    assert not found(
        rule.replace("need l == 2", ""),
        graph_of(apply("Slice", [X], "p", starts=(0,), ends=(9,), axes=(1,), steps=(1,))),
    )


def test_leading_dimensions_in_attributes() -> None:
    rule = "for a[*b, m, n]\nfrom Relu(a)\nto Reshape(Relu(Reshape(a, shape=(*b, m * n))), shape=(*b, m, n))"
    nodes = after(rule, graph_of(apply("Relu", [value("x", 2, 3, 4, 5)], "r"))).nodes
    assert [dict(node.attributes).get("shape") for node in nodes] == [(2, 3, 20), None, (2, 3, 4, 5)]
    back = "for a[*b, n]\nfrom Reshape(a, shape=(*b, k, l))\nto Reshape(a, shape=(*b, k, l))"
    assert found(back, graph_of(apply("Reshape", [value("x", 2, 12)], "r", shape=(2, 3, 4))))
    assert not found(back, graph_of(apply("Reshape", [value("x", 2, 12)], "r", shape=(4, 2, 3))))


def test_numbers() -> None:
    half = value("half")
    rule = "for a[m, n]\nfrom Mul(a, 0.5)\nto Div(a, 2.0)"
    graph = graph_of(apply("Mul", [half, X], "p"), constants={half: np.array(0.5, np.float32)})
    assert names_of(after(rule, graph)) == ["Div"]
    assert not found(rule, graph_of(apply("Mul", [half, X], "p"), constants={half: np.array(0.25, np.float32)}))
    row = value("row", 6)
    assert found(rule, graph_of(apply("Mul", [row, X], "p"), constants={row: np.full(6, 0.5, np.float32)}))
    uneven = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 1], np.float32)
    assert not found(rule, graph_of(apply("Mul", [row, X], "p"), constants={row: uneven}))
    block = value("block", 2, 4, 6)  # the product has more dimensions than x
    assert not found(
        rule, graph_of(apply("Mul", [block, X], "p"), constants={block: np.full((2, 4, 6), 0.5, np.float32)})
    )


def test_numbers_get_the_dtype_of_what_they_are_with() -> None:
    x = Value("x", f16, (const(4),))
    relu = make_node(require("Relu"), [x], ["r"], {})
    result = after("for a[n]\nfrom Relu(a)\nto Max(a, 0.0)", graph_of(relu))
    assert [v.dtype for v in result.constants] == [f16]


def test_integers_are_moved_and_added() -> None:
    x = Value("x", i32, (const(4), const(6)))
    turned = make_node(require("Transpose"), [x], ["t"], {"perm": (1, 0)})
    back = make_node(require("Transpose"), turned.outputs, ["u"], {"perm": (1, 0)})
    moved = "for a[m, n]\nfrom Transpose(Transpose(a, perm=(1, 0)), perm=(1, 0))\nto a"
    assert names_of(after(moved, graph_of(turned, back))) == ["Identity"]
    negative = make_node(require("Neg"), [x], ["n"], {})
    twice = make_node(require("Neg"), negative.outputs, ["p"], {})
    assert found("for a[m, n]\nfrom Neg(Neg(a))\nto a", graph_of(negative, twice))
    largest = make_node(require("Max"), [x, x], ["n"], {})
    assert not found("for a[m, n]\nfrom Max(a, a)\nto a", graph_of(largest))
    means = make_node(require("ReduceMean"), [x], ["n"], {"axes": (1,), "keepdims": True})
    mean = "ReduceMean({}, axes=(1,), keepdims=True)"
    assert not found(f"for a[m, n]\nfrom {mean.format('a')}\nto {mean.format('Neg(Neg(a))')}", graph_of(means))
    halves = make_node(require("Add"), [x, x], ["n"], {})
    assert not found("for a[m, n]\nfrom Add(a, a)\nto Mul(a, 2.5)", graph_of(halves))
    assert found("for a[m, n]\nfrom Add(a, a)\nto Mul(a, 2.0)", graph_of(halves))


def test_weights() -> None:
    w, v = value("w", 6, 6), value("v", 6, 6)
    rule = "for a[m, k], b: weight[k, n]\nfrom MatMul(a, b)\nto MatMul(a, b)"
    constants = {w: np.ones((6, 6), np.float32)}
    assert found(rule, graph_of(apply("MatMul", [X, w], "p"), constants=constants))
    follows = apply("Neg", [w], "f")
    assert found(rule, graph_of(follows, apply("MatMul", [X, *follows.outputs], "p"), constants=constants))
    assert not found(rule, graph_of(apply("MatMul", [X, v], "p"), constants=constants))
    mixed = apply("Add", [w, v], "f")
    assert not found(rule, graph_of(mixed, apply("MatMul", [X, *mixed.outputs], "p"), constants=constants))


def test_results_by_number() -> None:
    largest = make_node(require("TopK"), [X], ["values", "places"], {"k": 2})
    relu = apply("Relu", [largest.outputs[0]], "r")
    rule = "for a[m, n]\nfrom Relu(TopK(a, **t){})\nto TopK(Relu(a), **t){}"
    assert found(rule.format("", ""), graph_of(largest, relu))
    assert not found(rule.format(".1", ".1"), graph_of(largest, relu))


TWICE = "for a[*s]\nfrom Relu(Tanh(a))\nto Tanh(Relu(a))"


def test_what_others_read_is_not_computed_twice() -> None:
    tanh = apply("Tanh", [X], "t")
    relu = apply("Relu", tanh.outputs, "r")
    assert found(TWICE, graph_of(tanh, relu))
    assert not found(TWICE, graph_of(tanh, relu, apply("Neg", tanh.outputs, "n"), leaving=("r", "n")))
    assert not found(TWICE, graph_of(tanh, relu, leaving=("t", "r")))


def test_views_may_be_read_by_others() -> None:
    rule = "for a[m, n]\nfrom Relu(Transpose({}, perm=(1, 0)))\nto Transpose(Relu({}), perm=(1, 0))"
    tanh = apply("Tanh", [X], "h")
    turned = apply("Transpose", tanh.outputs, "t", perm=(1, 0))
    nodes = tanh, turned, apply("Relu", turned.outputs, "r"), apply("Neg", turned.outputs, "n")
    graph = graph_of(*nodes, leaving=("r", "n"))
    assert sorted(names_of(after(rule.format("a", "a"), graph))) == ["Neg", "Relu", "Tanh", "Transpose", "Transpose"]
    assert not found(rule.format("Tanh(a)", "Tanh(a)"), graph)  # what it reads would be computed twice


MERGE = """for a[m, k], b[k, n1], c[k, n2]
let t = MatMul(a, Concat(b, c, axis=1))
from MatMul(a, b); MatMul(a, c)
to Slice(t, axes=(-1,), starts=(0,), ends=(n1,)); Slice(t, axes=(-1,), starts=(n1,), ends=(n1 + n2,))"""


def test_several_sources() -> None:
    """The reader of the first result comes before the last source: it is moved."""
    w, v = value("w", 6, 3), value("v", 6, 5)
    first = apply("MatMul", [X, w], "p")
    reader = apply("Relu", first.outputs, "r")
    late = apply("Neg", [v], "late")
    second = apply("MatMul", [X, *late.outputs], "q")
    other = apply("MatMul", [Y, w], "o")
    graph = graph_of(first, reader, late, second, other, leaving=("r", "q", "o"))
    assert len(found(MERGE, graph)) == 2  # either of the two may come first
    merged = after(MERGE, graph)
    assert names_of(merged).count("MatMul") == 2 and names_of(merged)[-1] == "MatMul"


def test_no_cycles() -> None:
    first = apply("MatMul", [X, value("w", 6, 4)], "p")
    weights = apply("Reshape", first.outputs, "v", shape=(2, 8))
    cut = apply("Slice", weights.outputs, "c", starts=(0,), ends=(1,), axes=(0,))
    column = apply("Reshape", cut.outputs, "d", shape=(4, 2))
    padded = apply("Concat", [*column.outputs, value("e", 2, 2)], "f", axis=0)
    graph = graph_of(
        first, weights, cut, column, padded, apply("MatMul", [X, *padded.outputs], "q"), leaving=("p", "q")
    )
    assert not found(MERGE, graph)


def test_a_source_within_another() -> None:
    tanh = apply("Tanh", [X], "t")
    graph = graph_of(tanh, apply("Relu", tanh.outputs, "r"), leaving=("t", "r"))
    rule = "for a[m, n]\nfrom Relu(Tanh(a)); Tanh(a)\nto Tanh(Relu(a)); Neg(Tanh(Neg(a)))"
    assert sorted(names_of(after(rule, graph))) == ["Neg", "Neg", "Relu", "Tanh", "Tanh"]


def test_what_is_replaced_keeps_its_name_and_source() -> None:
    inner = make_node(require("Neg"), [X], ["n"], {}, "first")
    outer = make_node(require("Neg"), inner.outputs, ["p"], {}, "second")
    (node,) = after("for a[m, n]\nfrom Neg(Neg(a))\nto Mul(a, 1.0)", graph_of(inner, outer)).nodes
    assert node.outputs[0].name == "p" and node.source == "first, second"


def test_equal_terms_are_one_node() -> None:
    rule = "for a[m, n]\nfrom Neg(a)\nto Sub(Relu(a), Add(Relu(a), a))"
    assert names_of(after(rule, graph_of(apply("Neg", [X], "n")))).count("Relu") == 1


def test_a_target_of_another_type_is_no_match() -> None:
    relu = graph_of(apply("Relu", [X], "r"))
    assert not found("for a[m, n]\nfrom Relu(a)\nto ReduceSum(a, axes=(0,))", relu)
    assert not found("for a[m, n]\nfrom Relu(a)\nto MatMul(a, a)", relu)  # 4x6 by 4x6
    assert not found("for a[m, n]\nfrom Relu(a)\nto Less(a, 0.0)", relu)


NEGATIONS = parse_rules("rule negation-twice\nfor a[*s]\nfrom Neg(Neg(a))\nto a")


@pytest.mark.parametrize("count", range(1, 7))
def test_rules_are_applied_until_none_matches(count: int) -> None:
    nodes = [apply("Tanh", [X], "t")]
    for position in range(count):
        nodes.append(apply("Neg", nodes[-1].outputs, f"n{position}"))
    graph = graph_of(*nodes, apply("Relu", nodes[-1].outputs, "r"))
    result = rewrite(graph, NEGATIONS)
    verify(result)
    assert names_of(result) == ["Tanh", *["Neg"] * (count % 2), "Relu"]


def test_rules_without_an_end_are_named() -> None:
    rules = parse_rules("rule back-and-forth\nfor a[*s], b[*s]\nfrom Sub(a, b)\nto Neg(Sub(b, a))")
    with pytest.raises(InternalError, match="back-and-forth"):
        rewrite(graph_of(apply("Sub", [X, Y], "s")), rules)


@pytest.mark.parametrize("target", ["Add(a, Add(b, b))", "Add(a, Relu(Add(b, Add(a, b))))"])
def test_rules_that_grow_the_graph_in_each_sweep_are_named(target: str) -> None:
    rules = parse_rules(f"rule growing\nfor a[*s], b[*s]\nfrom Add(a, b)\nto {target}")
    with pytest.raises(InternalError, match=r"growing made a graph of \d{4} nodes \(at most 1000 "):
        rewrite(graph_of(apply("Add", [X, Y], "s")), (*NEGATIONS, *rules))


def test_a_large_graph_may_grow_more() -> None:
    rules = parse_rules("rule longer\nfor a[*s]\nfrom Tanh(a)\nto Relu(Relu(Relu(Relu(Relu(a)))))")
    nodes = [apply("Tanh", [X], "t")]
    for i in range(1, 300):
        nodes.append(apply("Tanh", nodes[-1].outputs, f"t{i}"))
    assert len(rewrite(graph_of(*nodes), rules).nodes) == 5 * 300


PARTS = [value(f"part{number}", 4, number + 1) for number in range(4)]


@pytest.mark.parametrize("start", range(3))
def test_a_concatenation_of_two_is_found_in_a_longer_one(start: int) -> None:
    """As any two neighbours; the others stay where they are."""
    functions = [
        apply("Relu" if number in (start, start + 1) else "Exp", [part], f"f{number}")
        for number, part in enumerate(PARTS)
    ]
    joined = apply("Concat", [node.outputs[0] for node in functions], "y", axis=1)
    rule = "for a[m, n], b[m, k]\nfrom Concat(Relu(a), Relu(b), axis=-1)\nto Relu(Concat(a, b, axis=-1))"
    graph = graph_of(*functions, joined)
    assert len(found(rule, graph)) == 1
    made = after(rule, graph)
    assert sorted(names_of(made)) == ["Concat", "Concat", "Exp", "Exp", "Relu"]
    assert len(made.nodes[-1].inputs) == 3


def test_of_a_longer_one_a_part_may_be_what_it_was_cut_from() -> None:
    x = value("x", 4, 10)
    cuts = [apply("Slice", [x], f"s{n}", axes=(1,), starts=(n * 5,), ends=(n * 5 + 5,)) for n in range(2)]
    relu = apply("Relu", [Y], "r")
    joined = apply("Concat", [relu.outputs[0], *(cut.outputs[0] for cut in cuts)], "z", axis=1)
    rule = (
        "for a[m, n + k]\n"
        "let first = Slice(a, axes=(-1,), starts=(0,), ends=(n,))\n"
        "from Concat(first, Slice(a, axes=(-1,), starts=(n,), ends=(n + k,)), axis=-1)\n"
        "to a"
    )
    made = after(rule, graph_of(*cuts, relu, joined))
    assert names_of(made) == ["Relu", "Concat"]


def test_what_is_no_neighbour_is_not_found() -> None:
    functions = [apply(name, [part], name) for name, part in zip(("Relu", "Exp", "Relu"), PARTS, strict=False)]
    joined = apply("Concat", [node.outputs[0] for node in functions], "y", axis=1)
    rule = "for a[m, n], b[m, k]\nfrom Concat(Relu(a), Relu(b), axis=-1)\nto Relu(Concat(a, b, axis=-1))"
    assert not found(rule, graph_of(*functions, joined))
