"""Operators on samples that are places give what they give on all dimensions."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.dtypes import f64
from tilewright.base.errors import BadProgram
from tilewright.ops import Attribute, Trait, names
from tilewright.ops.operator import require
from tilewright.superopt.evaluate.evaluator import Evaluator
from tilewright.superopt.evaluate.places import work
from tilewright.tensor.build import placeholder
from tilewright.tensor.domains import Modular
from tilewright.tensor.over_domain import DomainProgram

Shape = tuple[int, ...]
Case = tuple[str, dict[str, Attribute], list[Shape]]
EXTENTS = st.integers(1, 4)
BATCHED = [name for name in names() if require(name).batched is not None]
"""Operators that say which their batch axes are."""


def _program(name: str, attributes: dict[str, Attribute], shapes: list[Shape]) -> DomainProgram:
    inputs = [placeholder(shape, f64, f"x{place}") for place, shape in enumerate(shapes)]
    return DomainProgram(inputs, require(name).apply(inputs, attributes))


def _arity(name: str) -> int | None:
    """Of an elementwise operator of reals: one or two; None of others."""
    for arity in (1, 2):
        try:
            _program(name, {}, [(2,)] * arity)
        except BadProgram:
            continue
        return arity
    return None


@cache
def _arities() -> Mapping[str, int | None]:
    """Of all elementwise operators."""
    return {name: _arity(name) for name in names() if require(name).has(Trait.ELEMENTWISE)}


PAIRS = ("Max", "Mean", "Min", "Sum")
"""Of as many as there are."""


@st.composite
def elementwise(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from([name for name, arity in _arities().items() if arity]))
    shape = tuple(draw(st.lists(EXTENTS, min_size=1, max_size=4)))
    ones = tuple(draw(st.sampled_from([extent, 1])) for extent in shape)
    other = draw(st.sampled_from([shape, (), ones, shape[1:]]))
    if name == "PRelu":
        return name, {}, [shape, other]
    is_unary = _arities()[name] == 1 and name not in PAIRS
    return name, {}, [shape] if is_unary else draw(st.permutations([shape, other]))


@st.composite
def concatenations(draw: st.DrawFn) -> Case:
    shape = draw(st.lists(EXTENTS, min_size=2, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    shapes: list[Shape] = []
    for _ in range(draw(st.integers(1, 3))):
        shape[axis] = draw(EXTENTS)
        shapes.append(tuple(shape))
    return "Concat", {"axis": axis}, shapes


@st.composite
def slices(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(st.integers(2, 5), min_size=2, max_size=4)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    start = draw(st.integers(0, shape[axis] - 1))
    end = draw(st.integers(start + 1, shape[axis]))
    return "Slice", {"axes": (axis,), "starts": (start,), "ends": (end,)}, [shape]


@st.composite
def pools(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(["AveragePool", "MaxPool"]))
    spatial = draw(st.integers(1, 2))
    shape = (*draw(st.tuples(EXTENTS, EXTENTS)), *draw(st.tuples(st.integers(3, 5), st.integers(3, 5)))[:spatial])
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))[:spatial]
    return name, {"kernel_shape": kernel, "strides": draw(st.sampled_from([(1, 1), (2, 1)]))[:spatial]}, [shape]


@st.composite
def paddings(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(EXTENTS, min_size=2, max_size=4)))
    padded = draw(st.integers(0, len(shape) - 1))
    before, after = (tuple(draw(st.integers(0, 2)) if at == padded else 0 for at in range(len(shape))) for _ in "ba")
    return "Pad", {"before": before, "after": after}, [shape]


@st.composite
def transpositions(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(EXTENTS, min_size=1, max_size=4)))
    return "Transpose", {"perm": tuple(draw(st.permutations(range(len(shape)))))}, [shape]


@st.composite
def reductions(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from([name for name in BATCHED if name.startswith("Reduce")]))
    return name, {"axes": (-1,)}, [tuple(draw(st.lists(EXTENTS, min_size=2, max_size=3)))]


@st.composite
def products(draw: st.DrawFn) -> Case:
    m, k, n, *batch = draw(st.lists(EXTENTS, min_size=3, max_size=5))
    other = draw(st.sampled_from([tuple(batch), tuple(batch[1:]), (1,) * len(batch)]))
    return "MatMul", {}, [(*batch, m, k), (*other, k, n)]


@st.composite
def products_and_addends(draw: st.DrawFn) -> Case:
    """Of rows as they are; the addend has all rows, one, or none."""
    m, k, n = draw(st.tuples(EXTENTS, EXTENTS, EXTENTS))
    is_transposed = draw(st.booleans())
    addends: list[list[Shape]] = [[], [()], [(n,)], [(1, n)], [(m, n)], [(m, 1)]]
    shapes = [(m, k), (n, k) if is_transposed else (k, n), *draw(st.sampled_from(addends))]
    return "Gemm", {"transpose_b": is_transposed}, shapes


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    """Of one group, or of as many as there are channels; with two spatial dimensions, or with one."""
    images, channels, filters = draw(st.tuples(EXTENTS, EXTENTS, EXTENTS))
    extents, kernel = (draw(st.sampled_from(pair)) for pair in ([(4, 3), (5, 3)], [(1, 3), (3, 2)]))
    spatial = draw(st.integers(1, 2))
    weight = (channels, 1) if draw(st.booleans()) else (filters, channels)
    group: dict[str, Attribute] = {"group": channels} if weight == (channels, 1) else {}
    pads = tuple(draw(st.lists(st.integers(0, 1), min_size=2 * spatial, max_size=2 * spatial)))
    shapes = [(images, channels, *extents[:spatial]), (*weight, *kernel[:spatial])]
    return "Conv", {"pads": pads, **group}, shapes


CASES = {
    "elementwise": elementwise(),
    "Concat": concatenations(),
    "Slice": slices(),
    "pools": pools(),
    "Pad": paddings(),
    "Transpose": transpositions(),
    "reductions": reductions(),
    "MatMul": products(),
    "Gemm": products_and_addends(),
    "Conv": convolutions(),
}


def test_all_that_say_where_they_work_are_tried() -> None:
    moves = {"Concat", "Slice", "AveragePool", "MaxPool", "Pad", "Transpose", "MatMul", "Gemm", "Conv"}
    assert moves == {name for name in BATCHED if not name.startswith("Reduce")}


@pytest.mark.parametrize("kind", CASES)
@given(st.data(), st.integers(1, 3))
def test_places_may_be_samples(kind: str, data: st.DataObject, samples: int) -> None:
    """Against the operator's program for the shapes as they are; one of the operands is a constant."""
    name, attributes, shapes = data.draw(CASES[kind])
    evaluator = Evaluator(Modular(3))
    arrays = [evaluator.domain.random((*s, samples if at else 1), at) for at, s in enumerate(shapes)]
    assert work(require(name), attributes, shapes) is not None
    found = evaluator.apply(require(name), attributes, arrays)
    whole = [np.broadcast_to(a, (*a.shape[:-1], max(b.shape[-1] for b in arrays))) for a in arrays]
    expected = _program(name, attributes, shapes)(whole, evaluator.domain)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, np.broadcast_to(other, one.shape))


@pytest.mark.parametrize(
    ("name", "attributes", "shapes"),
    [
        ("MatMul", {}, [(3,), (3, 4)]),
        ("MatMul", {}, [(2, 4, 3), (3, 3, 4)]),
        ("Gemm", {"transpose_a": True}, [(2, 2), (2, 3)]),
        ("Conv", {"group": 2}, [(1, 4, 3, 3), (2, 2, 3, 3)]),
        ("Transpose", {"perm": (0, 0)}, [(2, 3)]),
        ("Pad", {"before": (1, 1), "after": (0, 1)}, [(2, 3)]),
        ("ReduceSum", {"axes": (0,)}, [(2, 3)]),
        ("Add", {}, [(2, 3), (2, 2)]),
        ("Relu", {}, [()]),
        ("Concat", {"axis": 0}, [(2, 3), (2, 4)]),
        ("Concat", {"axis": 0}, [(2, 3), ()]),
        ("Concat", {"axis": 0}, [(2, 3), (2, 1)]),
        ("Concat", {"axis": 2}, [(2, 3), (2, 3)]),
        ("Slice", {"axes": (0, 1), "starts": (0, 0), "ends": (1, 1)}, [(2, 3)]),
        ("Slice", {"axes": (0,), "starts": (0,), "ends": (1,)}, [(2,)]),
    ],
)
def test_what_works_along_all_dimensions_or_does_not_fit_stays_as_it_is(
    name: str, attributes: dict[str, Attribute], shapes: list[Shape]
) -> None:
    assert work(require(name), attributes, shapes) is None


@pytest.mark.parametrize(
    ("name", "attributes", "operands"),
    [
        ("Relu", {}, [[(2, 3)], [(4, 1)]]),
        ("Transpose", {"perm": (1, 0)}, [[(2, 3)], [(4, 1)]]),
        ("MatMul", {}, [[(2, 3), (3, 5)], [(4, 3), (3, 1)]]),
        ("Conv", {"pads": (1, 1)}, [[(2, 3, 4), (5, 3, 3)], [(1, 3, 4), (2, 3, 3)]]),
        ("Pad", {"before": (0, 1), "after": (0, 0)}, [[(2, 3)], [(4, 3)]]),
    ],
)
def test_one_program_is_enough_for_all_extents_of_places(
    name: str, attributes: dict[str, Attribute], operands: list[list[Shape]]
) -> None:
    one, other = (work(require(name), attributes, shapes) for shapes in operands)
    assert one is not None
    assert other is not None
    assert (one.attributes, one.shapes) == (other.attributes, other.shapes)


def test_windows_of_padding_only_have_a_result_for_each_image_and_sample() -> None:
    evaluator = Evaluator(Modular(seed=1))
    x, w = evaluator.domain.random((2, 3, 1, 5), seed=1), evaluator.domain.random((4, 3, 1, 5), seed=2)
    (result,) = evaluator.apply(require("Conv"), {"strides": (2,), "pads": (1, 0)}, [x, w])
    assert result.shape == (2, 4, 1, 5)
    assert not result.any()
