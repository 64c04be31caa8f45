"""Elements as expressions over run-time extents, against NumPy for many values of these."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tilewright import te
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.ops.operator import require
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Const, Expr, Extent, cast, const, maximum, select
from tilewright.symbolic.traversal import substitute
from tilewright.tensor.build import compute, placeholder, reduce_axis
from tilewright.tensor.elements import Limit, elements_of
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import Tensor

N, M = Extent("n"), Extent("m")
BOUNDS = Bounds(dims={N: None, M: None})
SIZES = [(0, 0), (0, 3), (1, 1), (2, 7), (5, 4), (640, 3)]


def at(expr: Expr, n: int, m: int) -> int | bool:
    value = substitute(expr, {N: const(n), M: const(m)})
    assert isinstance(value, Const), value
    assert not isinstance(value.value, float)
    return value.value


def applied(op: str, *inputs: Tensor, **attributes: object) -> Tensor:
    (result,) = require(op).apply(inputs, attributes)  # type: ignore[arg-type]
    return result


def same(x: Tensor) -> Tensor:
    return applied("Identity", x)


SHAPE = (N, const(12), M + 3, N * 2)
CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "gather": lambda x: applied("Gather", x, applied("Elements", values=(2, -1), shape=(2,), dtype=dtypes.i64)),
    "slice": lambda x: applied("Slice", x, starts=(-1,), ends=(-4,), axes=(0,), steps=(-1,)),
    "concat": lambda x: applied("Concat", x, applied("Mul", x, x), axis=0),
    "quotient": lambda x: applied("Div", x, applied("Elements", values=(2, 3, 2, 1), shape=(4,), dtype=dtypes.i64)),
    "reversed sign": lambda x: applied("Neg", x),
    "distance": lambda x: applied("Abs", applied("Sub", x, applied("Gather", x, applied_one(1)))),
    "where": lambda x: applied("Where", applied("Equal", x, applied_one(-1)), applied_one(1), x),
    "where n is 2": lambda x: applied("Where", applied("Equal", x, applied_one(2)), applied_one(1), x),
    "negated": lambda x: applied("Not", applied("Less", x, applied_one(5))),
    "largest": lambda x: applied("Max", x, applied_one(7)),
    "sum": lambda x: applied("ReduceSum", x, axes=(0,), keepdims=True),
    "product": lambda x: applied("ReduceProd", x, axes=(0,), keepdims=False),
    "matrix": lambda x: applied("Transpose", applied("Reshape", x, shape=(2, 2))),
    "bools": lambda x: applied("Cast", applied("Cast", x, to=dtypes.boolean), to=dtypes.i64),
    "narrow": lambda x: applied("Cast", applied("Cast", x, to=dtypes.i32), to=dtypes.i64),
}


def applied_one(value: int) -> Tensor:
    return applied("Elements", values=(value,), shape=(1,), dtype=dtypes.i64)


@pytest.mark.parametrize("name", CASES)
def test_operators_on_shapes(name: str) -> None:
    x = placeholder((4,), dtypes.i64, "x")
    y = CASES[name](x)
    known = elements_of([y], {x: SHAPE}, BOUNDS)
    assert known is not None
    for n, m in SIZES:
        fed = np.array([at(e, n, m) for e in SHAPE])
        (expected,) = evaluate([y], {x: fed})
        found = np.array([at(e, n, m) for e in known.outputs[0]]).reshape(expected.shape)
        np.testing.assert_array_equal(found, expected)
    wanted = {Limit(e, 2**31 - 1) for e in SHAPE if not isinstance(e, Const)} if name == "narrow" else set()
    assert set(known.limits) == wanted


def test_what_is_known_of_extents_decides() -> None:
    """No case is left over where one can't occur; a division of what is not negative rounds down."""
    x = placeholder((2,), dtypes.i64, "x")
    for name, expected in (("where", (N, M)), ("largest", (maximum(N, 7), maximum(M, 7)))):
        known = elements_of([CASES[name](x)], {x: (N, M)}, BOUNDS)
        assert known is not None
        assert known.outputs == (expected,)
    known = elements_of([applied("Div", x, applied_one(2))], {x: (N, M)}, BOUNDS)
    assert known is not None
    assert known.outputs == ((N // 2, M // 2),)


def _too_narrow(x: Tensor) -> Tensor:
    return applied("Cast", applied("Sub", x, applied_one(1)), to=dtypes.i32)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: applied("Sqrt", applied("Cast", x, to=dtypes.f32)),
        lambda x: applied("Cast", quotient(applied("Sub", x, applied_one(1)), 2.0), to=dtypes.i64),
        lambda x: applied("Cast", quotient(x, 0.3), to=dtypes.i64),
        lambda x: applied("Gather", x, x),
        lambda x: applied("Expand", x, shape=(300, 2)),
        lambda x: applied("CumSum", x, axis=0),
        _too_narrow,
    ],
)
def test_what_does_not_follow(make: Callable[[Tensor], Tensor]) -> None:
    """Floats that are no quotients of natural numbers, a place that depends on an extent, many elements, recurrences,
    and what might wrap around."""
    x = placeholder((2,), dtypes.i64, "x")
    assert elements_of([make(x)], {x: (N, M)}, BOUNDS) is None


def quotient(x: Tensor, divisor: float) -> Tensor:
    return compute(x.shape, lambda i: cast(x[i], dtypes.f32) / const(divisor, dtypes.f32))


@pytest.mark.parametrize("divisor", [1.0, 2.0, 3.0, 7.0, 641.0])
def test_quotients_are_rounded_as_floats_are(divisor: float) -> None:
    """Up to 2**24, which becomes a limit."""
    x = placeholder((3,), dtypes.i64, "x")
    up = applied("Cast", applied("Ceil", quotient(x, divisor)), to=dtypes.i64)
    down = applied("Cast", quotient(x, divisor), to=dtypes.i64)
    known = elements_of([up, down], {x: (N, M + 3, const(9))}, BOUNDS)
    assert known is not None
    assert {Limit(N, 2**24), Limit(M + 3, 2**24)} <= set(known.limits)
    for n, m in [*SIZES, (2**24, 2**24 - 4), (2**24 - 1, 2**23)]:
        fed = np.array([n, m + 3, 9])
        quotients = fed.astype(np.float32) / np.float32(divisor)
        assert [at(e, n, m) for e in known.outputs[0]] == np.ceil(quotients).astype(int).tolist()
        assert [at(e, n, m) for e in known.outputs[1]] == quotients.astype(int).tolist()


def test_a_run_time_shape_and_a_condition() -> None:
    x = placeholder((2,), dtypes.i64, "x")
    spread = compute((N,), lambda i: x[0] + i)
    assert elements_of([spread], {x: (N, M)}, BOUNDS) is None
    k = reduce_axis((0, 2), name="k")
    some = compute((), lambda: te.sum(x[k], axis=k, where=x[k] > 3))
    assert elements_of([some], {x: (N, M)}, BOUNDS) is None
    guarded = compute((3,), lambda i: select(i < 2, x[i], 0))
    known = elements_of([guarded], {x: (N, M)}, BOUNDS)
    assert known is not None
    assert known.outputs == ((N, M, const(0)),)


@pytest.mark.parametrize("dtype", [dtypes.i8, dtypes.u8, dtypes.i32])
def test_literals_wrap_around(dtype: DType) -> None:
    x = placeholder((2,), dtypes.i64, "x")
    known = elements_of([applied("Cast", x, to=dtype)], {x: (const(300), const(-1))}, BOUNDS)
    assert known is not None
    assert numbers(known.outputs[0]) == list(np.array([300, -1]).astype(dtype.numpy))


def numbers(elements: Sequence[Expr]) -> list[int]:
    return [int(element.value) for element in elements if isinstance(element, Const)]
