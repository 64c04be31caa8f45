"""Programs for the tests of data movement, and their oracle: the interpreter, before and after."""

from collections.abc import Mapping

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.loops.interpreter import Order, interpret
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Expr, Var, maximum, select
from tilewright.tensor import build as te
from tilewright.tensor.scan import scan


def assert_same(before: Program, after: Program, dims: Mapping[str, int] | None = None) -> None:
    """Equal outputs on small integers (exact in any order), for two orders of parallel loops; ``after`` is valid."""
    verify(after)
    feeds = small_integers(before, dims or {})
    wanted = interpret(before, feeds, dims)
    for order in (Order.ASCENDING, Order.REVERSED):
        found = interpret(after, feeds, dims, order=order)
        for name, values in wanted.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)


def small_integers(program: Program, dims: Mapping[str, int]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    feeds: dict[str, np.ndarray] = {}
    for param in program.inputs:
        shape = tuple(dims[str(e)] if str(e) in dims else int(str(e)) for e in param.shape)
        feeds[param.name] = random.integers(-3, 4, shape).astype(param.dtype.numpy)
    return feeds


def refused(schedule: Schedule, *reasons: str) -> "_Refused":
    """``with refused(s, "an output"): s.compute_inline("C")``: refused for that reason, and nothing has changed."""
    return _Refused(schedule, reasons)


class _Refused:
    def __init__(self, schedule: Schedule, reasons: tuple[str, ...]) -> None:
        self._schedule = schedule
        self._before = (schedule.program, schedule.trace)
        self._reasons = reasons
        self._raises = pytest.raises(ScheduleError)

    def __enter__(self) -> None:
        self._error = self._raises.__enter__()

    def __exit__(self, *exception: object) -> bool:
        result = bool(self._raises.__exit__(*exception))  # type: ignore[arg-type]
        for reason in self._reasons:
            assert reason in str(self._error.value)
        assert (self._schedule.program, self._schedule.trace) == self._before
        return result


def matmul(n: int, m: int, depth: int) -> Schedule:
    """``C[i, j] = sum(A[i, k] * B[k, j])``"""
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    k = te.reduce_axis((0, depth), name="k")
    return Schedule(lower(te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C"), "matmul"))


def dense(n: int, m: int, depth: int) -> Schedule:
    """A matrix product ``C`` with bias (``D``) and ReLU (``E``)."""
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    bias = te.placeholder((m,), name="bias")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] + bias[j], name="D")
    e = te.compute((n, m), lambda i, j: maximum(d[i, j], 0.0), name="E")
    return Schedule(lower(e, "dense", inputs=[a, b, bias]))


def convolution(channels: int, filters: int, size: int, kernel: int, stride: int, border: int) -> Schedule:
    """A padded (``P``) two-dimensional convolution ``C`` with bias ``D``."""
    x = te.placeholder((channels, size, size), name="X")
    w = te.placeholder((filters, channels, kernel, kernel), name="W")
    bias = te.placeholder((filters,), name="bias")
    out = (size + 2 * border - kernel) // stride + 1

    def padded(c: Var, y: Var, z: Var) -> Expr:
        inside = (y >= border) & (y < size + border) & (z >= border) & (z < size + border)
        return select(inside, x[c, y - border, z - border], 0.0)

    p = te.compute((channels, size + 2 * border, size + 2 * border), padded, name="P")
    rc, ry, rz = (
        te.reduce_axis((0, channels), "rc"),
        te.reduce_axis((0, kernel), "ry"),
        te.reduce_axis((0, kernel), "rz"),
    )
    c = te.compute(
        (filters, out, out),
        lambda f, y, z: te.sum(p[rc, y * stride + ry, z * stride + rz] * w[f, rc, ry, rz], axis=[rc, ry, rz]),
        name="C",
    )
    d = te.compute((filters, out, out), lambda f, y, z: c[f, y, z] + bias[f], name="D")
    return Schedule(lower(d, "convolution", inputs=[x, w, bias]))


def chain(size: int, shift: int = 0) -> Schedule:
    """``T = X + 1``, then ``Y = T * 2`` over the part of ``T`` from ``shift`` on."""
    x = te.placeholder((size + shift,), name="X")
    t = te.compute((size + shift,), lambda i: x[i] + 1.0, name="T")
    return Schedule(lower(te.compute((size,), lambda j: t[j + shift] * 2.0, name="Y"), "chain"))


def stencil(size: int) -> Schedule:
    """``Y[j] = T[j] + T[j+1] + T[j+2]`` with ``T = X * 3``: windows that overlap."""
    x = te.placeholder((size + 2,), name="X")
    t = te.compute((size + 2,), lambda i: x[i] * 3.0, name="T")
    return Schedule(lower(te.compute((size,), lambda j: t[j] + t[j + 1] + t[j + 2], name="Y"), "stencil"))


def softmax_parts(rows: int, columns: int) -> Schedule:
    """Row maxima ``M`` and ``Y = X - M``: a reduction that a consumer broadcasts."""
    x = te.placeholder((rows, columns), name="X")
    k = te.reduce_axis((0, columns), name="k")
    m = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="M")
    return Schedule(lower(te.compute((rows, columns), lambda i, j: x[i, j] - m[i], name="Y"), "rows"))


def argmax(rows: int, columns: int) -> Schedule:
    """``(index, value)`` of each row's largest value."""
    x = te.placeholder((rows, columns), name="X")
    k = te.reduce_axis((0, columns), name="k")
    return Schedule(lower(te.compute((rows,), lambda i: te.argmax((k, x[i, k]), axis=k), name="M"), "argmax"))


def prefix_sum(steps: int, width: int) -> Schedule:
    """``S[t] = S[t-1] + Y[t]`` with ``Y = X * 2``."""
    x = te.placeholder((steps, width), name="X")
    y = te.compute((steps, width), lambda t, i: x[t, i] * 2.0, name="Y")
    state = te.placeholder((steps, width), name="S_state")
    init = te.compute((1, width), lambda _, i: y[0, i], name="S_init")
    update = te.compute((steps, width), lambda t, i: state[t - 1, i] + y[t, i], name="S_update")
    return Schedule(lower(scan(init, update, state, name="S"), "prefix_sum"))
