"""Te programs over a domain: float64 against the graph's evaluator, residues against Python's integers."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.base.errors import BadProgram, OutOfBounds, Unsupported
from tilewright.graph.evaluate import evaluate_node
from tilewright.graph.ir import Value, make_node
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.symbolic.expr import const
from tilewright.symbolic.operations import BinaryOp
from tilewright.tensor import build as te
from tilewright.tensor.build import placeholder
from tilewright.tensor.domains import PRIME, Domain, Modular, Real
from tilewright.tensor.over_domain import DomainProgram

Shape = tuple[int, ...]
SAMPLES = 3


def over(
    domain: Domain, name: str, attributes: Mapping[str, Attribute], shapes: Sequence[Shape]
) -> Callable[[Sequence[Array]], list[Array]]:
    """An operator over ``domain``."""
    inputs = [placeholder(shape, dtypes.f64, f"x{place}") for place, shape in enumerate(shapes)]
    program = DomainProgram(inputs, require(name).apply(inputs, attributes))
    return lambda arrays: program(arrays, domain)


CASES: list[tuple[str, Mapping[str, Attribute], list[Shape]]] = [
    ("MatMul", {}, [(2, 3), (3, 5)]),
    ("MatMul", {}, [(2, 1, 3, 4), (5, 4, 2)]),
    ("MatMul", {}, [(3,), (3, 5)]),
    ("Gemm", {"alpha": 0.5, "beta": 2.0, "transpose_a": True}, [(3, 2), (3, 5), (5,)]),
    ("Conv", {}, [(2, 3, 5, 4), (2, 3, 3, 2)]),
    ("Conv", {"pads": (1, 0, 2, 1), "strides": (2, 1), "group": 2}, [(2, 4, 5, 5), (6, 2, 3, 3), (6,)]),
    ("Conv", {"pads": (1, 1, 1, 1), "group": 3}, [(1, 3, 4, 4), (6, 1, 3, 3)]),
    ("Conv", {"dilations": (2,)}, [(1, 2, 7), (3, 2, 3)]),
    ("AveragePool", {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, [(1, 2, 5, 4)]),
    ("AveragePool", {"kernel_shape": (2, 2), "strides": (2, 2), "ceil_mode": True}, [(1, 2, 5, 5)]),
    ("MaxPool", {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (2, 2)}, [(1, 2, 5, 4)]),
    ("Softmax", {"axis": -1}, [(2, 5)]),
    ("LayerNormalization", {"axis": -1, "epsilon": 1e-5}, [(2, 3, 5), (5,), (5,)]),
    ("BatchNormalization", {"epsilon": 1e-3}, [(2, 3, 4), (3,), (3,), (3,), (3,)]),
    ("ReduceSum", {"axes": (0, 2), "keepdims": False}, [(2, 3, 4)]),
    ("ReduceMean", {"axes": (1,)}, [(2, 3, 4)]),
    ("ReduceMax", {"axes": (-1,)}, [(2, 3, 4)]),
    ("ReduceProd", {"axes": (0,)}, [(4, 3)]),
    ("ReduceL2", {"axes": (1,)}, [(4, 3)]),
    ("Slice", {"axes": (1, 0), "starts": (1, 3), "ends": (4, 0), "steps": (2, -1)}, [(4, 5)]),
    ("Concat", {"axis": 1}, [(2, 3), (2, 1), (2, 2)]),
    ("Pad", {"before": (1, 0), "after": (0, 2)}, [(2, 3)]),
    ("Transpose", {"perm": (2, 0, 1)}, [(2, 3, 4)]),
    ("Reshape", {"shape": (4, -1)}, [(2, 3, 2)]),
    ("Expand", {"shape": (3, 2, 4)}, [(2, 1)]),
    ("Tile", {"repeats": (2, 3)}, [(2, 2)]),
    ("Add", {}, [(2, 1, 3), (4, 1)]),
    ("Sub", {}, [(2, 3), (3,)]),
    ("Div", {}, [(2, 3), (3,)]),
    ("Pow", {}, [(2, 3), ()]),
    ("Max", {}, [(2, 3), (3,), (2, 1)]),
    ("Relu", {}, [(2, 3)]),
    ("LeakyRelu", {"alpha": 0.25}, [(2, 3)]),
    ("Gelu", {}, [(2, 3)]),
    ("Sigmoid", {}, [(2, 3)]),
    ("Erf", {}, [(2, 3)]),
    ("HardSwish", {}, [(4, 3)]),
    ("Softplus", {}, [(4, 3)]),
]


@pytest.mark.parametrize(
    ("name", "attributes", "shapes"), CASES, ids=lambda case: case if isinstance(case, str) else ""
)
def test_in_float64_an_operator_is_what_the_graph_says(
    name: str, attributes: Mapping[str, Attribute], shapes: Sequence[Shape]
) -> None:
    op = require(name)
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal((*shape, SAMPLES)) for shape in shapes]
    arrays = [np.abs(a) for a in arrays] if name in ("Pow", "BatchNormalization") else arrays
    found = over(Real(), name, attributes, shapes)(arrays)
    values = [Value(f"v{i}", dtypes.f64, tuple(map(const, shape))) for i, shape in enumerate(shapes)]
    node = make_node(op, values, [f"r{i}" for i in range(len(found))], attributes)
    for sample in range(SAMPLES):
        wanted = evaluate_node(
            node, {v: np.asarray(a[..., sample]).copy() for v, a in zip(values, arrays, strict=True)}
        )
        for result, reference in zip(found, wanted, strict=True):
            assert result.shape == (*reference.shape, SAMPLES)
            np.testing.assert_allclose(result[..., sample], reference, rtol=1e-12, atol=1e-12)


# Residues


def _residues(shape: Shape, seed: int) -> np.ndarray:
    """Large ones, so that sums of their products do not fit into 64 bits."""
    rng = np.random.default_rng(seed)
    return (PRIME - 1 - rng.integers(0, 50, shape)).astype(np.uint64)


@given(m=st.integers(1, 3), k=st.integers(1, 12), n=st.integers(1, 3), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_matrix_products_are_exact(m: int, k: int, n: int, seed: int) -> None:
    a, b = _residues((m, k, SAMPLES), seed), _residues((k, n, SAMPLES), seed + 1)
    (found,) = over(Modular(), "MatMul", {}, [(m, k), (k, n)])([a, b])
    for i, j, s in np.ndindex(m, n, SAMPLES):
        assert int(found[i, j, s]) == sum(int(a[i, t, s]) * int(b[t, j, s]) for t in range(k)) % PRIME


def test_convolutions_are_exact() -> None:
    x, w = _residues((2, 4, 3, 3, SAMPLES), 0), _residues((6, 2, 3, 3, SAMPLES), 1)
    attributes = {"pads": (1, 1, 1, 1), "group": 2}
    (found,) = over(Modular(), "Conv", attributes, [(2, 4, 3, 3), (6, 2, 3, 3)])([x, w])
    for n, co, y, z, s in np.ndindex(2, 6, 3, 3, SAMPLES):
        total = sum(
            int(x[n, co // 3 * 2 + ci, y + i - 1, z + j - 1, s]) * int(w[co, ci, i, j, s])
            for ci, i, j in np.ndindex(2, 3, 3)
            if 0 <= y + i - 1 < 3 and 0 <= z + j - 1 < 3
        )
        assert int(found[n, co, y, z, s]) == total % PRIME


@given(st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=4), st.integers(0, PRIME - 1))
@settings(deadline=None)
def test_arithmetic_is_that_of_the_field(left: list[int], right: int) -> None:
    domain = Modular(3)
    a, b = np.array(left, np.uint64), np.array([right], np.uint64)
    found = {
        name: [int(v) for v in over(domain, name, {}, [(), ()])([a, b])[0]] for name in ("Add", "Sub", "Mul", "Div")
    }
    assert found["Add"] == [(x + right) % PRIME for x in left]
    assert found["Sub"] == [(x - right) % PRIME for x in left]
    assert found["Mul"] == [x * right % PRIME for x in left]
    assert found["Div"] == [x * pow(right, PRIME - 2, PRIME) % PRIME for x in left]


@pytest.mark.parametrize("name", ["ReduceSum", "ReduceProd"])
def test_reductions_are_exact(name: str) -> None:
    x = _residues((2, 9, SAMPLES), 5)
    (found,) = over(Modular(), name, {"axes": (1,), "keepdims": False}, [(2, 9)])([x])
    for i, s in np.ndindex(2, SAMPLES):
        row = [int(v) for v in x[i, :, s]]
        wanted = sum(row) % PRIME if name == "ReduceSum" else int(np.prod(np.array(row, object))) % PRIME
        assert int(found[i, s]) == wanted


@pytest.mark.parametrize("domain", [Real(), Modular()])
def test_what_is_the_same_everywhere_is_added_as_often(domain: Domain) -> None:
    x = placeholder((2,), dtypes.f64, "x")
    axis = te.reduce_axis((0, 7), name="k")
    times = te.compute((2,), lambda i: te.sum(x[i], axis=axis), name="times")
    square = te.compute((2,), lambda i: te.sum(x[i] * x[i], axis=axis), name="square")
    values = domain.integers(np.array([[3], [5]]))
    assert [found.tolist() for found in DomainProgram([x], [times, square])([values], domain)] == [
        [[21], [35]],
        [[63], [175]],
    ]


@pytest.mark.parametrize("points", [1, 2, 9, 700, 8193])
def test_a_reduction_is_one_of_all_its_points(points: int) -> None:
    """However many are taken together."""
    x = _residues((2, points, SAMPLES), points)
    sums, largest = (
        over(Modular(), name, {"axes": (1,), "keepdims": False}, [(2, points)])([x])[0]
        for name in ("ReduceSum", "ReduceMax")
    )
    one_by_one = reduce(partial(Modular().binary, BinaryOp.MAX), np.moveaxis(x, 1, 0))
    assert np.array_equal(sums, x.astype(object).sum(axis=1) % PRIME)
    assert np.array_equal(largest, one_by_one)


def test_one_program_has_the_constants_of_each_domain() -> None:
    x = placeholder((1,), dtypes.f64, "x")
    program = DomainProgram([x], require("LeakyRelu").apply([x], {"alpha": 0.25}))
    for domain in (Real(), Modular()):
        (found,) = program([domain.constant(-8.0).reshape(1, 1)], domain)
        assert found.item() == domain.constant(-2.0)


def test_numbers_of_a_program_are_fractions() -> None:
    x = np.array([[10, 3]], np.uint64)
    (found,) = over(Modular(), "LeakyRelu", {"alpha": -0.25}, [(1,)])([x])
    assert found.tolist() == [[10, 3]]
    (found,) = over(Modular(), "LeakyRelu", {"alpha": 0.25}, [(1,)])([PRIME - x * 4])
    assert found.tolist() == [[PRIME - 10, PRIME - 3]]


def test_extrema_follow_one_order() -> None:
    domain = Modular(11)
    a, b, c = (domain.random((500,), seed) for seed in range(3))

    def larger(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return over(domain, "Max", {}, [(), ()])([x, y])[0]

    assert np.array_equal(larger(a, b), larger(b, a))
    assert np.array_equal(larger(a, larger(b, c)), larger(larger(a, b), c))
    assert np.array_equal(larger(a, a), a)
    assert not np.array_equal(larger(a, b), a)
    (less,) = over(domain, "Min", {}, [(), ()])([a, b])
    assert np.array_equal(np.sort([less, larger(a, b)], axis=0), np.sort([a, b], axis=0))
    small = np.array([PRIME - 2, PRIME - 1, 0, 1, 2], np.uint64)
    assert larger(small[:-1], small[1:]).tolist() == small[1:].tolist()


def test_random_functions_are_functions() -> None:
    domain = Modular(1)
    x = domain.random((100,), 0)
    exp, again, tanh = (over(domain, n, {}, [()])([x])[0] for n in ("Exp", "Exp", "Tanh"))
    assert np.array_equal(exp, again)
    assert not np.array_equal(exp, tanh)
    assert not np.array_equal(exp, over(Modular(2), "Exp", {}, [()])([x])[0])
    assert exp.max() < PRIME
    assert len(np.unique(exp)) == 100


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("points", [1, 2])
def test_sums_of_the_largest_products_are_exact(count: int, points: int) -> None:
    largest = np.full((points, SAMPLES), PRIME - 1, np.uint64)
    total = Modular(seed=0).total_of_products([(largest, largest)] * count)
    np.testing.assert_array_equal(total, count * points * (PRIME - 1) ** 2 % PRIME)


def test_the_largest_of_each_window_is_one_of_it_also_at_the_border() -> None:
    x = Modular().random((1, 1, 3, SAMPLES), 0)
    (found,) = over(Modular(), "MaxPool", {"kernel_shape": (3,), "pads": (1, 1)}, [(1, 1, 3)])([x])
    order = over(Modular(), "Max", {}, [(), ()])
    for s in range(SAMPLES):
        (edge,) = order([x[0, 0, 0, s : s + 1], x[0, 0, 1, s : s + 1]])
        assert found[0, 0, 0, s] == edge[0]


def test_a_window_of_padding_has_no_value() -> None:
    compiled = over(Modular(), "MaxPool", {"kernel_shape": (1,), "pads": (1, 1)}, [(1, 1, 3)])
    with pytest.raises(Unsupported, match="infinite"):
        compiled([Modular().random((1, 1, 3, 1), 0)])


def test_what_has_no_value_is_refused() -> None:
    domain = Modular()
    with pytest.raises(Unsupported, match="loop IR"):
        over(domain, "TopK", {"k": 1}, [(3,)])
    with pytest.raises(BadProgram):
        over(domain, "MatMul", {}, [(2, 3), (4, 5)])
    x = placeholder((3,), dtypes.f64, "x")
    with pytest.raises(OutOfBounds):
        DomainProgram([x], [te.compute((3,), lambda i: x[i + 1])])
