"""Einsum against NumPy's: chosen equations, and equations drawn by Hypothesis."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tilewright
from tests.frontend.models import single_node
from tilewright.base.errors import InvalidModel
from tilewright.frontend.onnx.read import importer
from tilewright.graph import evaluate_graph

EXTENTS = {"a": 2, "b": 3, "c": 4, "d": 5, "Z": 2}


def check(equation: str, shapes: list[tuple[int, ...]], dtype: type = np.float32) -> None:
    random = np.random.default_rng(len(equation))
    inputs = {f"x{p}": random.uniform(-1, 1, shape).astype(dtype) for p, shape in enumerate(shapes)}
    expected = np.einsum(equation, *(array.astype(np.float64) for array in inputs.values()))
    proto = single_node("Einsum", inputs, equation=equation)
    tolerance = 1e-5 if dtype is np.float32 else 1e-2
    for results in (tilewright.compile(proto).run(None, inputs), evaluate_graph(importer.load(proto), inputs)):
        assert results[0].dtype == dtype
        np.testing.assert_allclose(results[0], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 40), (40, 70)]),
        ("bhid,bhjd->bhij", [(2, 2, 5, 8), (2, 2, 7, 8)]),
        ("...ij,...jk", [(2, 1, 3, 4), (5, 4, 6)]),
        ("ij...,jk->...ik", [(2, 3, 4, 5), (3, 6)]),
        ("...ii->...i", [(2, 3, 4, 4)]),
        ("ii", [(5, 5)]),
        ("iij,jk->ik", [(3, 3, 4), (4, 2)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i", [(9,), (9,)]),
        ("ij->", [(3, 4)]),
        (",ij->ji", [(), (3, 4)]),
        ("ij,jk,kl,lm->im", [(3, 4), (4, 5), (5, 6), (6, 2)]),
        ("b n h , n h d -> b d", [(2, 3, 4), (3, 4, 5)]),
        ("...,...->...", [(2, 3), (3,)]),
        ("aB,aB->B", [(3, 4), (3, 4)]),
        ("ij,jk->ik", [(0, 4), (4, 3)]),
        ("ij,jk->ik", [(2, 0), (0, 3)]),
    ],
)
def test_equations(equation: str, shapes: list[tuple[int, ...]]) -> None:
    check(equation, shapes)


def test_half_precision() -> None:
    check("ij,jk->ik", [(2, 300), (300, 3)], np.float16)


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    terms = draw(st.lists(st.lists(st.sampled_from(sorted(EXTENTS)), max_size=3), min_size=1, max_size=3))
    letters = sorted({letter for term in terms for letter in term})
    chosen = draw(st.lists(st.sampled_from(letters), unique=True)) if letters else []
    equation = ",".join("".join(term) for term in terms)
    if draw(st.booleans()):
        equation += "->" + "".join(chosen)
    return equation, [tuple(EXTENTS[letter] for letter in term) for term in terms]


@given(equations())
@settings(max_examples=20, deadline=None, phases=[Phase.generate])
def test_drawn_equations(drawn: tuple[str, list[tuple[int, ...]]]) -> None:
    check(*drawn)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij", "has 1 operands, not 2"),
        ("ij,jk->il", "has one that no operand has"),
        ("ij,jk->ii", "repeats a letter"),
        ("ijk,jk->i", "`ijk` .* does not fit an operand with 2 dimensions"),
        ("i1,jk->i", "subscripts are letters"),
        ("ij,ij->i", "do not broadcast"),
        ("i...,jk->i", "has no ellipsis"),
    ],
)
def test_refusals(equation: str, message: str) -> None:
    inputs: dict[str, NDArray[np.generic]] = {"a": np.ones((2, 3), np.float32), "b": np.ones((3, 4), np.float32)}
    with pytest.raises(InvalidModel, match=message):
        importer.load(single_node("Einsum", inputs, equation=equation))
