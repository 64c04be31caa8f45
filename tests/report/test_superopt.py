"""The page of an optimized graph: what it says, what it draws, and that it is complete by itself."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.balanced import Balanced
from tests.superopt.networks import Net
from tilewright.graph import Graph, evaluate_graph
from tilewright.passes.rules import SEARCH, Evidence, Proof, applied, index_of, load_rules, matches
from tilewright.report.changes import changes
from tilewright.report.graphs import Role, picture
from tilewright.report.layers import Layered, layered
from tilewright.report.page import page, table
from tilewright.report.placement import placed
from tilewright.report.superopt import WHOLE, superopt_sections
from tilewright.superopt.search.result import Applied, Optimized
from tilewright.superopt.validate.validation import validate

SVG = "{http://www.w3.org/2000/svg}"
(MERGE,) = (rule for rule in load_rules(SEARCH) if rule.name == "products-of-one-matrix")
PROVED = replace(MERGE, proof=Proof(Evidence.PROVED, ("slice-of-concat", "matmul-columns"), 8))


def layers_of_products(count: int, name: str = "h") -> Graph:
    """``count`` layers of two products of one matrix, of different weights."""
    net = Net()
    x = net.x("x", 4, 8)
    for layer in range(count):
        q, k = (net("MatMul", x, net.w(f"{side}{layer}", 8, 8), name=f"{side}{name}{layer}") for side in "qk")
        x = net("Relu", net("Add", q, k), name=f"{name}{layer}")
    return net.graph(x)


def optimized(before: Graph) -> Optimized:
    """With the products of each layer merged."""
    graph, steps, cost = before, list[Applied](), 100.0
    while (match := next(matches(PROVED, index_of(graph)), None)) is not None:
        graph = applied(graph, match)
        names = tuple(value.name for value in match.replaced)
        steps.append(Applied(PROVED, names, names, cost, cost - 1.5))
        cost -= 1.5
    return Optimized(before, graph, tuple(steps), 100.0, cost)


# Layers


@st.composite
def edges(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(0, 9))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    return count, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


@given(edges())
def test_edges_go_down_one_layer_after_the_other(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, pairs = graph
    found = layered(count, pairs)
    level = {vertex: number for number, layer in enumerate(found.layers) for vertex in layer}
    assert len(level) == sum(map(len, found.layers))
    assert set(level) >= set(range(count))
    assert [(path[0], path[-1]) for path in found.paths] == pairs
    assert all(level[b] == level[a] + 1 for path in found.paths for a, b in pairwise(path))
    assert all(vertex >= count for path in found.paths for vertex in path[1:-1])
    longest: list[int] = []
    for vertex in range(count):
        longest.append(max((longest[a] + 1 for a, b in pairs if b == vertex), default=0))
    for vertex in range(count):
        readers = [level[b] for a, b in pairs if a == vertex]
        is_source = all(b != vertex for _, b in pairs)
        assert level[vertex] == (min(readers) - 1 if is_source and readers else longest[vertex])


def _crossings(found: Layered) -> int:
    place = {vertex: number for layer in found.layers for number, vertex in enumerate(layer)}
    level = {vertex: number for number, layer in enumerate(found.layers) for vertex in layer}
    steps = [step for path in found.paths for step in pairwise(path)]
    return sum(
        level[a] == level[c] and place[a] < place[c] and place[b] > place[d]
        for (a, b), (c, d) in permutations(steps, 2)
    )


def test_edges_do_not_cross_where_they_need_not() -> None:
    """Two chains whose ends are numbered the other way round, and an edge that is longer than a layer."""
    assert _crossings(layered(6, [(0, 3), (1, 2), (2, 5), (3, 4)])) == 0
    assert _crossings(layered(5, [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (1, 4)])) <= 1


@given(edges(), st.data())
def test_vertices_stand_apart_in_their_order(graph: tuple[int, list[tuple[int, int]]], data: st.DataObject) -> None:
    found = layered(*graph)
    vertices = [vertex for layer in found.layers for vertex in layer]
    widths = {vertex: data.draw(st.integers(1, 9).map(float)) for vertex in vertices}
    centres = placed(found, widths, 2.0)
    assert set(centres) == set(vertices)
    assert min((centres[v] - widths[v] / 2 for v in vertices), default=0.0) == pytest.approx(0.0)
    for layer in found.layers:
        for a, b in pairwise(layer):
            assert centres[a] + widths[a] / 2 + 2.0 <= centres[b] - widths[b] / 2 + 1e-6


def test_vertices_stand_near_those_they_are_joined_to() -> None:
    """Two chains, the second one beside a wide vertex; and what three vertices share is in their middle."""
    chains = placed(layered(5, [(0, 2), (1, 3), (2, 4)]), {0: 90.0, 1: 10.0, 2: 10.0, 3: 10.0, 4: 10.0}, 2.0)
    assert chains[0] == pytest.approx(chains[2]) == pytest.approx(chains[4])
    assert chains[1] == pytest.approx(chains[3])
    wide = placed(layered(4, [(0, 2), (1, 3)]), {0: 10.0, 1: 10.0, 2: 90.0, 3: 90.0}, 2.0)
    assert (wide[0], wide[1]) == pytest.approx((wide[2], wide[3]))
    shared = placed(layered(4, [(0, 3), (1, 3), (2, 3)]), dict.fromkeys(range(4), 10.0), 2.0)
    assert [shared[vertex] for vertex in range(4)] == pytest.approx([5.0, 17.0, 29.0, 17.0])


# Pictures


def _rectangles(svg: str) -> list[tuple[str, float, float, float]]:
    """Of each box: its style, left, top and width."""
    found: list[tuple[str, float, float, float]] = []
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        (box,) = group.iter(f"{SVG}rect")
        found.append((group.attrib["class"], *(float(box.attrib[name]) for name in ("x", "y", "width"))))
    return found


def test_a_picture_has_a_box_for_each_operator_and_value() -> None:
    graph = layers_of_products(2)
    svg = picture("a < b", graph.nodes, {"qh0": Role.REPLACED, "h1": Role.MADE}, graph.outputs)
    boxes = _rectangles(svg)
    styles = [style for style, *_ in boxes]
    assert styles.count("value") == 1 + 4 + 1
    assert (styles.count("replaced"), styles.count("made"), styles.count("same")) == (1, 1, 6)
    root = ElementTree.fromstring(svg)
    assert len(root.findall(f"{SVG}path")) == 2 * 7 + 1
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    assert all(x >= 0 and x + wide <= width and 0 <= top < height for _, x, top, wide in boxes)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[0] == "a < b"
    assert {"MatMul", "x", "f32[4, 8]"} <= set(texts)


def test_boxes_do_not_overlap() -> None:
    graph = layers_of_products(3)
    rows: dict[float, list[tuple[float, float]]] = {}
    for _, x, top, width in _rectangles(picture("", graph.nodes, {}, graph.outputs)):
        rows.setdefault(top, []).append((x, x + width))
    assert len(rows) > 6
    for row in rows.values():
        assert all(end < begin for (_, end), (begin, _) in pairwise(sorted(row)))


# Changes


def test_what_has_changed_alike_is_told_once() -> None:
    found = optimized(layers_of_products(5))
    (change,) = changes(found.before, found.after)
    assert change.places == 5
    assert [node.op.name for node in change.replaced] == ["MatMul", "MatMul"]
    assert sorted(node.op.name for node in change.made) == ["Concat", "MatMul", "Slice", "Slice"]
    assert changes(found.before, found.before) == []


def test_changes_of_different_shapes_are_two() -> None:
    net = Net()
    for name, size in (("a", 4), ("b", 6)):
        x = net.x(name, 3, size)
        for side in "qk":
            net("MatMul", x, net.w(f"{name}{side}", size, size), name=f"{name}y{side}")
    before = net.graph(*(value for node in net.nodes for value in node.outputs))
    found = optimized(before)
    assert [change.places for change in changes(before, found.after)] == [1, 1]


# The page


def _page(found: Optimized) -> str:
    return page("Rules", superopt_sections(found, validate(found.before, found.after, evaluate_graph)))


@pytest.mark.parametrize("count", [2, 20])
def test_the_page_is_complete_and_well_formed(count: int) -> None:
    found = optimized(layers_of_products(count))
    text = _page(found)
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert not re.search(r"(src|href)=|url\(|@import", text)
    svgs = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(svgs) == 2
    old, new = ([style for style, *_ in _rectangles(svg)] for svg in svgs)
    drawn = count if len(found.after.nodes) <= WHOLE else 1
    assert (old.count("replaced"), new.count("made")) == (2 * drawn, 4 * drawn)
    assert ("at 20 places" in text) == (count == 20)
    assert "prefers-color-scheme: dark" in text


def test_what_the_page_says() -> None:
    found = optimized(layers_of_products(2))
    text = _page(found)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", text)
    assert cells[:8] == ["operators of a run", "8", "10", "", "cost, cycles", "100", "97", "1.031"]
    assert "applied 2 times; proved by slice-of-concat, matmul-columns, and evaluated at 8 shapes" in text
    assert "from MatMul(x, v); MatMul(x, w)" in text
    steps = cells[8 : 8 + 12]
    assert steps[:6] == ["1", "products-of-one-matrix", "qh0, kh0", "qh0, kh0", "100", "98.5"]
    assert steps[6:] == ["2", "products-of-one-matrix", "qh1, kh1", "qh1, kh1", "98.5", "97"]
    assert cells[20:24] == ["qh0", "4", "modulo a prime", "4 as 2, 8 as 3, 16 as 6"]
    assert "4 changed ones equal modulo a prime" in text


def test_what_was_measured_and_in_which_unit() -> None:
    found = replace(optimized(layers_of_products(1)), cost_before=123456.7, cost_after=2e-05)
    text = page("p", superopt_sections(found, measured=0.5, unit="seconds"))
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", text)
    assert cells[4:7] == ["cost, seconds", "123,457", "2e-05"]
    assert cells[8:12] == ["time, measured", "1", "0.500", "2.000"]


def test_long_tables_are_folded() -> None:
    text = _page(optimized(layers_of_products(21)))
    assert "<summary>21 steps</summary>" in text
    assert "<summary>42 values</summary>" in text
    assert "<details>" not in _page(optimized(layers_of_products(2)))


def test_columns_of_numbers_stand_on_the_right() -> None:
    text = table(("name", "size", "none"), [("a", "1,000", ""), ("2", "-1e-3", "")])
    assert '<th>name</th><th class="number">size</th><th class="number">none</th>' in text
    assert '<td>2</td><td class="number">-1e-3</td>' in text
    assert table(("a",), []).count("<th>a</th>") == 1


def test_without_steps_and_validation() -> None:
    graph = layers_of_products(1)
    text = page("p", superopt_sections(Optimized(graph, graph, (), 1.0, 1.0)))
    assert "No rule was applied" in text
    assert "Both graphs are the same" in text
    assert "not validated" in text
    assert "<h2>Validation</h2>" not in text
    rule = replace(MERGE, proof=None)
    step = Applied(rule, ("a",), ("b",), 2.0, 1.0)
    assert "its file states no proof" in page("p", superopt_sections(Optimized(graph, graph, (step,), 2.0, 1.0)))


def test_names_are_no_html() -> None:
    text = _page(optimized(layers_of_products(2, "<script>alert(1)</script>&\n")))
    assert "<script" not in text
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    svgs: Sequence[str] = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len([ElementTree.fromstring(svg) for svg in svgs]) == 2
