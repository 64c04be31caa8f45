"""Bounds of degrees, against polynomials."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.dtypes import f64
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.tensor.build import placeholder
from tilewright.tensor.degrees import Degree, degrees
from tilewright.tensor.domains import PRIME, Modular
from tilewright.tensor.over_domain import DomainProgram

Shape = tuple[int, ...]


def _is_polynomial(values: Sequence[int], degree: int) -> bool:
    """Whether values at 0, 1, 2 ... are those of a polynomial of at most ``degree``, modulo the prime."""
    differences = [int(value) for value in values]
    for _ in range(degree + 1):
        differences = [(b - a) % PRIME for a, b in pairwise(differences)]
    return not any(differences)


RINGS: list[tuple[str, list[Shape], dict[str, Attribute], int]] = [
    ("Add", [(3,), (3,)], {}, 1),
    ("Mul", [(3,), (3,)], {}, 2),
    ("MatMul", [(2, 3), (3, 2)], {}, 2),
    ("Conv", [(1, 2, 4, 4), (2, 2, 3, 3), (2,)], {"pads": (1, 1, 1, 1)}, 2),
    ("ReduceSum", [(3, 4)], {"axes": (1,)}, 1),
    ("ReduceProd", [(3, 4)], {"axes": (1,)}, 4),
    ("ReduceSumSquare", [(3, 4)], {"axes": (1,)}, 2),
    ("AveragePool", [(1, 1, 4)], {"kernel_shape": (2,)}, 1),
    ("Concat", [(3,), (4,)], {"axis": 0}, 1),
]


@pytest.mark.parametrize(("name", "shapes", "attributes", "degree"), RINGS)
def test_degrees_are_those_of_the_polynomials(
    name: str, shapes: list[Shape], attributes: dict[str, Attribute], degree: int
) -> None:
    """Along a line through the space of inputs, the values of a result are those of a polynomial of its degree."""
    inputs = [placeholder(shape, f64, f"x{place}") for place, shape in enumerate(shapes)]
    outputs = require(name).apply(inputs, attributes)
    (found,) = degrees(outputs, dict.fromkeys(inputs, Degree(1)))
    assert found == Degree(degree)
    domain, points = Modular(0), np.arange(degree + 6, dtype=np.uint64)
    lines = [
        (domain.random((*shape, 1), place) + domain.random((*shape, 1), place + 9) * points) % np.uint64(PRIME)
        for place, shape in enumerate(shapes)
    ]
    (values,) = DomainProgram(inputs, outputs)(lines, domain)
    rows = values.reshape(-1, len(points))
    assert all(_is_polynomial(row, degree) for row in rows)
    assert not all(_is_polynomial(row, degree - 1) for row in rows)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4))
@settings(deadline=None)
def test_degrees_of_fractions(parts: list[tuple[int, int]]) -> None:
    """The sum of fractions, against polynomials that are multiplied out."""
    total, above, below = Degree(0), np.poly1d([1]), np.poly1d([1])
    above = np.poly1d([0])
    for numerator, denominator in parts:
        p, q = (np.poly1d([1, *range(2, degree + 2)]) for degree in (numerator, denominator))
        total += Degree(numerator, denominator)
        above, below = above * q + p * below, below * q
    assert total.above >= above.order
    assert total.below == below.order


def test_division_and_functions() -> None:
    x, y = placeholder((3,), f64, "x"), placeholder((3,), f64, "y")
    known = {x: Degree(2), y: Degree(3)}

    def of(name: str, **attributes: Attribute) -> Degree:
        inputs = [x] if name in ("Exp", "Neg", "Relu", "Softmax", "Abs") else [x, y]
        return degrees(require(name).apply(inputs, attributes), known)[0]

    assert of("Div") == Degree(2, 3)
    assert of("Exp") == Degree(1)
    assert of("Neg") == of("Relu") == of("Abs") == Degree(2)
    assert of("Max") == Degree(3)
    assert of("Softmax", axis=0) == Degree(1, 1)
    assert Degree(2, 3).against(Degree(4, 1)) == 7
    assert Degree(2, 3).times(4) == Degree(11, 12)
