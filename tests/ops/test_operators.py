"""What ONNX Runtime is no oracle for: refusals, run-time extents, NaN, and the indices of reshapes."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.dtypes import boolean, f32, i32
from tilewright.base.errors import BadProgram
from tilewright.ops import Attribute, find
from tilewright.ops.operator import map_expressions
from tilewright.ops.shapes import infer_reshape, simplified
from tilewright.symbolic.expr import Const, Expr, Extent, Var, const
from tilewright.symbolic.traversal import substitute
from tilewright.tensor.build import placeholder
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import Tensor

N = Extent("n")


def apply(name: str, *inputs: Tensor | None, **attributes: Attribute) -> Tensor:
    operator = find(name)
    assert operator is not None
    return operator.apply(inputs, attributes)[0]


def x(*shape: int | Var, dtype: object = f32) -> Tensor:
    return placeholder(shape, dtype, "x")


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "message"),
    [
        ("Add", [x(2), x(3)], {}, "do not broadcast: 3 against 2"),
        ("Add", [x(2), x(2, dtype=i32)], {}, "mixes f32 and i32"),
        ("Add", [x(2)], {}, "missing a required argument: 'b'"),
        ("Add", [x(2), None], {}, "Add: input 1 is missing"),
        ("Relu", [x(2)], {"slope": 1}, "unexpected keyword argument 'slope'"),
        ("Exp", [x(2, dtype=i32)], {}, "`exp` has no meaning for i32"),
        ("Where", [x(2), x(2), x(2)], {}, "the condition is f32, not bool"),
        ("Clip", [x(2), x(2)], {}, "is no scalar"),
        ("MatMul", [x(2, 3), x(2, 3)], {}, "3 columns against 2 rows"),
        ("MatMul", [x(), x(3)], {}, "a scalar has no matrix product"),
        ("MatMul", [x(2, 3), x(3, 2, dtype=i32)], {}, "the dtypes differ"),
        ("Gemm", [x(2, 3), x(3, 4), x(3)], {}, "do not broadcast"),
        ("Gemm", [x(2, 3), x(3, 4), x(5, 2, 4)], {}, "does not broadcast to"),
        ("LayerNormalization", [x(2, 4), x(3)], {}, "do not broadcast"),
        ("Softmax", [x(2, 3)], {"axis": 2}, "axis 2 is out of range for 2 dimensions"),
        ("ReduceSum", [x(2, 3)], {"axes": (0, -2)}, "repeat one"),
        ("Reshape", [x(2, 3)], {"shape": (4, -1)}, "6 elements can't become"),
        ("Reshape", [x(2, 3)], {"shape": (-1, -1)}, "only one extent may be -1"),
        ("Reshape", [x(2, 3)], {"shape": (-2, 3)}, "-2 is negative"),
        ("Reshape", [x(2)], {"shape": (2, 0)}, "copies what"),
        ("Reshape", [x(0, 3)], {"shape": (0, -1)}, "can't become"),
        ("Transpose", [x(2, 3)], {"perm": (0, 0)}, "no permutation"),
        ("Squeeze", [x(2, 3)], {"axes": (0,)}, "are not all 1"),
        ("Concat", [x(2, 3), x(3, 3)], {"axis": 1}, "another extent differs"),
        ("Concat", [], {"axis": 1}, "nothing to join"),
        ("Slice", [x(2, 3)], {"starts": (0,), "ends": (1,), "steps": (0,)}, "a step is 0"),
        ("Slice", [x(2, 3)], {"starts": (0,), "ends": (1, 2)}, "1 starts, 2 ends"),
        ("Flatten", [x(2, 3)], {"axis": 3}, "axis 3 is out of range"),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, inputs: list[Tensor | None], attributes: dict[str, Attribute], message: str
) -> None:
    with pytest.raises(BadProgram, match=message):
        apply(name, *inputs, **attributes)


def test_run_time_extents() -> None:
    assert apply("Add", x(N, 3), x(3)).shape == (N, const(3))
    assert apply("MatMul", x(N, 4), x(4, 5)).shape == (N, const(5))
    assert apply("Reshape", x(N, 4, 8), shape=(0, 32)).shape == (N, const(32))
    assert apply("Reshape", x(N, 4, 8), shape=(-1, 32)).shape == (N, const(32))
    assert apply("Concat", x(N, 2), x(N, 3), axis=1).shape == (N, const(5))
    assert apply("ReduceMean", x(N, 3), axes=(1,), keepdims=False).shape == (N,)
    assert apply("Slice", x(N, 2), starts=(1,), ends=(2,), axes=(1,)).shape == (N, const(1))
    assert apply("Pad", x(N, 2), before=(1, 0), after=(2, -1)).shape == (N + 3, const(1))
    with pytest.raises(BadProgram, match="do not broadcast: m against n"):
        apply("Add", x(N), x(Extent("m")))


def test_mean_over_a_run_time_extent() -> None:
    source = x(N, 3)
    mean = apply("ReduceMean", source, axes=(0,))
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_allclose(evaluate([mean], {source: data})[0], data.mean(0, keepdims=True))


def test_max_of_nan_is_nan() -> None:
    source = x(2, 2)
    data = np.array([[1, np.nan], [2, 3]], np.float32)
    (result,) = evaluate([apply("ReduceMax", source, axes=(1,), keepdims=False)], {source: data})
    np.testing.assert_array_equal(result, [np.nan, 3])
    assert apply("IsNaN", source).dtype == boolean


@st.composite
def shape_pairs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two shapes with the same factors, grouped in two ways, with ones in between."""
    factors = draw(st.lists(st.sampled_from([2, 3, 5]), max_size=4))

    def grouped() -> list[int]:
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=4)))
        ends = [0, *cuts, len(factors)]
        groups = [math.prod(factors[a:b]) for a, b in itertools.pairwise(ends)]
        return groups if factors or draw(st.booleans()) else []

    return grouped(), grouped()


@given(shape_pairs())
@settings(max_examples=80, deadline=None)
def test_reshape_keeps_row_major_order(pair: tuple[list[int], list[int]]) -> None:
    before, after = pair
    source = x(*before)
    data = np.arange(math.prod(before), dtype=np.float32).reshape(before)
    (result,) = evaluate([apply("Reshape", source, shape=tuple(after))], {source: data})
    np.testing.assert_array_equal(result, data.reshape(after))


def test_reshape_divides_only_what_changes() -> None:
    """Splitting the last of three dimensions leaves the others' indices alone."""
    (body,) = apply("Reshape", x(N, 7, 32), shape=(0, 7, 4, 8)).op.bodies
    assert str(body) == "x[i0, i1, i2 * 8 + i3]"
    assert infer_reshape((N, const(12)), (0, 3, -1)) == (N, const(3), const(4))


@pytest.mark.parametrize(
    ("value", "changed"),
    [
        (N + 1, 8),
        ((2, N, N * 2), (2, 7, 14)),
        ((2, 3), (2, 3)),
        ((1.5, 2.5), (1.5, 2.5)),
        ("n", "n"),
        (("n", "m"), ("n", "m")),
        ((), ()),
        (f32, f32),
        (True, True),
        (None, None),
    ],
)
def test_expressions_in_attributes_are_replaced(value: Attribute, changed: Attribute) -> None:
    def at_seven(expr: Expr) -> int:
        found = simplified(substitute(expr, {N: const(7)}))
        assert isinstance(found, Const)
        return int(found.value)

    assert map_expressions(value, at_seven) == changed
