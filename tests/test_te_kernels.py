"""``te.build``, ``te.autoschedule`` and ``te.evaluate``: against NumPy."""

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.base.errors import BadFeed, BadInput, NotEquivalent, ResourceLimit, UnsupportedKernel
from tilewright.base.events import Event
from tilewright.base.settings import Settings
from tilewright.loops.parser import parse_program
from tilewright.runtime.sizing import processors_for
from tilewright.schedule.schedule import Schedule

A, B = te.placeholder((40, 24), name="A"), te.placeholder((24, 48), name="B")
K = te.reduce_axis((0, 24), name="k")
C = te.compute((40, 48), lambda y, x: te.sum(A[y, K] * B[K, x], axis=K), name="C")
X, Y = np.random.default_rng(0).standard_normal((2, 40, 48), np.float32)
LEFT, RIGHT = X[:, :24].copy(), Y[:24].copy()
SMALL = te.compute((4,), lambda i: A[i, 0] + 1.0, name="S")


def tiled() -> te.TeSchedule:
    s = te.create_schedule(C)
    yo, xo, yi, xi = s[C].tile(*C.op.axis, 8, 16)
    s[C].reorder(yo, xo, K, yi, xi)
    s[C].vectorize(xi)
    s[C].parallel(yo)
    return s


def test_a_kernel_takes_arrays_and_returns_them(tmp_path: Path) -> None:
    settings = replace(Settings.from_environment(), key_dir=tmp_path, cache_dir=tmp_path / "cache")
    kernel = te.build(tiled(), threads=2, settings=settings)
    expected = LEFT.astype(np.float64) @ RIGHT
    np.testing.assert_allclose(kernel(LEFT, RIGHT), expected, atol=1e-4)
    assert [str(spec) for spec in kernel.inputs] == ["A: f32[40, 24]", "B: f32[24, 48]"]
    assert "define hidden void @main" in kernel.llvm
    assert "main" in kernel.asm
    assert kernel.time(repeats=2, least_seconds=0) > 0
    assert kernel.time(LEFT, RIGHT, repeats=2, least_seconds=0) > 0
    kernel.save(tmp_path / "kernel.tw", settings=settings)
    loaded = tilewright.load(tmp_path / "kernel.tw", settings=settings)
    np.testing.assert_array_equal(loaded(LEFT, RIGHT), kernel(LEFT, RIGHT))


@pytest.mark.parametrize("threads", [1, 2])
def test_each_thread_is_timed_on_a_processor_of_its_own(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, found = sorted(os.sched_getaffinity(0)), list[set[int]]()
    kernel = te.build(tiled(), threads=threads)
    run = kernel.executable.timed_run

    def watched(*given: object, **options: int) -> object:
        found.extend(os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task"))
        return run(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel.executable, "timed_run", watched)
    kernel.time(repeats=2, least_seconds=0)
    pinned = {one for mask in found if len(mask) == 1 for one in mask}
    assert pinned == set(processors_for(threads) or allowed)
    assert os.sched_getaffinity(0) == set(allowed)


def test_wrong_feeds_name_the_input() -> None:
    kernel = te.build(tiled())
    for feeds, reason in (
        ((LEFT,), "takes 2 inputs"),
        ((LEFT, RIGHT.astype(np.float64)), "B"),
        ((LEFT, RIGHT[:, :40]), "B"),
    ):
        with pytest.raises(BadFeed, match=reason):
            kernel(*feeds)
        with pytest.raises(BadFeed, match=reason):
            kernel.time(*feeds)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_back_ends(backend: str) -> None:
    kernel = te.build(te.create_schedule(SMALL), threads=1, backend=backend)
    np.testing.assert_array_equal(kernel(LEFT), LEFT[:4, 0] + 1)
    assert kernel.check()["S"].worst == 0


def test_schedules_of_devices_are_refused_on_cpus() -> None:
    s = te.create_schedule(C)
    s[C].bind(C.op.axis[0], "threadIdx.x")
    with pytest.raises(UnsupportedKernel, match="main"):
        te.build(s)
    np.testing.assert_allclose(te.build(s, backend="reference")(LEFT, RIGHT), LEFT @ RIGHT, atol=1e-4)
    with pytest.raises(BadInput, match="only what cpu makes is timed"):
        te.build(s, backend="reference").time()


@pytest.mark.parametrize("output", [C, SMALL], ids=["evaluated", "interpreted"])
def test_check_names_the_first_element_that_differs(output: te.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = te.build(te.create_schedule(output))
    assert max(found.worst for found in kernel.check().values()) < 1e-5
    right = kernel.run

    def wrong(*given: object) -> list[np.ndarray]:
        (array,) = right(*given)  # type: ignore[arg-type]
        array.reshape(-1)[2:4] += 1
        return [array]

    monkeypatch.setattr(kernel, "run", wrong)
    name, place = output.name, "0, 2" if output.ndim == 2 else "2"
    with pytest.raises(NotEquivalent, match=rf"{name}\[{place}\] is .*, not .*; 2 of {X.size if output is C else 4} "):
        kernel.check()


def test_check_of_loops_interprets_them() -> None:
    small = te.create_schedule(SMALL).program
    for given in (small, Schedule(small), parse_program(str(small))):
        assert te.build(given).check()["S"].worst == 0
    with pytest.raises(ResourceLimit, match="too large to be interpreted"):
        te.build(tiled().program).check()


def test_run_time_extents() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    kernel = te.build(te.create_schedule(te.compute((n,), lambda i: a[i] * 2.0, name="b")))
    np.testing.assert_array_equal(kernel(X[0]), X[0] * 2)
    assert kernel.check(dims={"n": 7})["b"].worst == 0
    assert kernel.check(dims={"n": 70_000})["b"].worst == 0
    with pytest.raises(BadInput, match="dims= gives no n"):
        kernel.check()
    with pytest.raises(BadInput, match="fixed ones"):
        kernel.time()


def test_another_machine() -> None:
    kernel = te.build(tiled(), "aarch64")
    assert "fmla" in kernel.asm
    with pytest.raises(tilewright.base.errors.UnsupportedTarget):
        kernel(LEFT, RIGHT)


def test_autoschedule_is_the_compilers_choice() -> None:
    naive = te.create_schedule(C).program
    for target in ("host", "aarch64"):
        s = te.autoschedule(C, target)
        assert s.trace.steps
        assert s.naive == naive
        assert "vectorized" in str(s)
    kernel = te.build(te.autoschedule(C))
    np.testing.assert_allclose(kernel(LEFT, RIGHT), LEFT @ RIGHT, atol=1e-4)
    assert kernel.check()["C"].worst < 1e-5


@pytest.mark.slow
def test_autoschedule_measures() -> None:
    told: list[Event] = []
    s = te.autoschedule(C, trials=3, search="random", listener=told.append)
    assert te.build(s).check()["C"].worst < 1e-5
    (event,) = told
    assert re.fullmatch(
        r"search main: \d+ candidates, the fastest takes \S+ us, the analytic choice \S+ us", str(event)
    )


def test_evaluate() -> None:
    twice = te.compute(C.shape, lambda i, j: C[i, j] * 2.0, name="twice")
    np.testing.assert_allclose(te.evaluate(C, {A: LEFT, B: RIGHT}), LEFT @ RIGHT, atol=1e-4)
    product, doubled = te.evaluate([C, twice], {A: LEFT, B: RIGHT})
    np.testing.assert_array_equal(doubled, product * 2)
    np.testing.assert_array_equal(te.evaluate(twice, {C: X}), X * 2)
    n = te.var("n")
    count = te.compute((n,), lambda i: te.cast(i, "float32"), name="count")
    np.testing.assert_array_equal(te.evaluate(count, {}, {"n": 3}), np.arange(3, dtype=np.float32))
    with pytest.raises(BadFeed, match="no value is given for the input B"):
        te.evaluate(C, {A: LEFT})
    with pytest.raises(BadFeed, match="give a NumPy array"):
        te.evaluate(C, {A: 1, B: RIGHT})
