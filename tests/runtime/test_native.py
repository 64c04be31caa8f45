"""Running a model: outputs, constants, memory, threads, errors, fork."""

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tests.runtime.images import ADD, CHECKED, ENDLESS, MARKED, SCALE, compile_text, image_of
from tilewright.base import dtypes as dt
from tilewright.base.errors import BadArtifact, BadFeed, BadInput, OutOfBounds, ResourceLimit
from tilewright.runtime import abi
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import load_image
from tilewright.runtime.manifest import Formula, Manifest, Symbol, TensorSpec
from tilewright.runtime.memory import aligned
from tilewright.runtime.native import NativeExecutable
from tilewright.runtime.objectfile import Machine, host_machine

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.full((2, 3), 10, np.float32)


def adder(shape: tuple[int, ...] = (2, 3)) -> Executable:
    specs = [TensorSpec(name, dt.f32, shape) for name in ("x", "y", "z")]
    return NativeExecutable(
        Manifest(tuple(specs[:2]), (specs[2],)), image_of(ADD.format(n=int(np.prod(shape)))), threads=1
    )


def scaler(threads: int | None = None, factor: float = 2, size: int = 1000) -> Executable:
    """y = factor * x, for x of up to ``size`` elements, one chunk for each."""
    manifest = Manifest(
        (TensorSpec("x", dt.f32, ("n",)),),
        (TensorSpec("y", dt.f32, ("n",)),),
        (TensorSpec("c", dt.f32, ()),),
        (Symbol("n", 0, size),),
        workspace=4 * size,
        scratch=4,
    )
    return NativeExecutable(manifest, image_of(SCALE), [np.array(factor, np.float32)], threads=threads)


def checked(text: str = CHECKED) -> Executable:
    specs = (TensorSpec("x", dt.i64, ()),), (TensorSpec("y", dt.i64, ()),)
    return NativeExecutable(Manifest(*specs, sites=("loop", "gather: index")), image_of(text), threads=1)


def test_outputs_are_new_aligned_and_right() -> None:
    model = adder()
    (first,) = model.run({"x": X, "y": Y})
    (second,) = model.run({"y": X, "x": X})
    np.testing.assert_array_equal(first, X + Y)
    np.testing.assert_array_equal(second, X + X)
    assert first.ctypes.data % abi.ALIGNMENT == 0
    assert first.flags.writeable


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5, 7, 11)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    (z,) = adder(shape).run({"x": x, "y": x})
    assert z.shape == shape
    np.testing.assert_array_equal(z, x + x)


def test_preallocated_outputs() -> None:
    model, out = adder(), np.zeros((2, 3), np.float32)
    (z,) = model.run({"x": X, "y": Y}, {"z": out})
    assert z is out
    np.testing.assert_array_equal(out, X + Y)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"w": X.copy()}, "no output 'w'"),
        ({"z": np.zeros((3, 2), np.float32)}, r"allocate it as np.empty\(\(2, 3\), 'float32'\)"),
        ({"z": np.zeros((2, 3))}, "z: f32"),
        ({"z": [[0.0] * 3] * 2}, "no NumPy array"),
        ({"z": np.broadcast_to(np.float32(0), (2, 3))}, "read-only"),
        ({"z": np.zeros((2, 6), np.float32)[:, ::2]}, "not C-contiguous"),
        ({"z": X}, "shares memory with input x"),
    ],
)
def test_bad_outputs(out: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(BadFeed, match=message):
        adder().run({"x": X, "y": Y}, out)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_parallel_with_scratch_workspace_and_constants(threads: int) -> None:
    model = scaler(threads)
    for n in (0, 1, 2, 999, 1000):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(model.run({"x": x})[0], 2 * x)


def test_threads_for_one_call() -> None:
    model = scaler(1)
    x = np.arange(1000, dtype=np.float32)
    for threads in (3, 1, 5, 2):
        np.testing.assert_array_equal(model.run({"x": x}, threads=threads)[0], 2 * x)
    for threads in (0, -1, 5000):
        with pytest.raises(BadInput, match="number of threads"):
            model.run({"x": x}, threads=threads)


def test_one_model_in_many_threads() -> None:
    models = [scaler(2, factor) for factor in (2, 3)]
    wrong: list[int] = []

    def caller(number: int) -> None:
        source = np.random.default_rng(number)
        for _ in range(150):
            which = int(source.integers(2))
            x = source.normal(size=int(source.integers(1000))).astype(np.float32)
            if not np.array_equal(models[which].run({"x": x})[0], x * np.float32((2, 3)[which])):
                wrong.append(number)

    together([lambda i=i: caller(i) for i in range(8)])
    assert not wrong


def test_calls_at_the_same_time_have_contexts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = scaler(1), np.ones(10, np.float32)
    model.run({"x": x})
    inside, seen = threading.Barrier(2, timeout=30), set[int]()
    native = model._entry.releasing

    def enter(context: int) -> int:
        inside.wait()
        seen.add(context)
        inside.wait()
        return native(context)

    monkeypatch.setattr(model._entry, "call", enter)
    together([lambda: model.run({"x": x})] * 2)
    assert len(seen) == 2


def together(jobs: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on: "is multi-threaded"
def test_fork() -> None:
    model = scaler(3)
    x = np.arange(1000, dtype=np.float32)
    model.run({"x": x})
    child = os.fork()
    if child == 0:
        right = all(np.array_equal(model.run({"x": x})[0], 2 * x) for _ in range(20))
        others = len(os.listdir("/proc/self/task")) - 1
        os._exit(0 if right and others == 3 else 1)  # two workers and the ticker
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(model.run({"x": x})[0], 2 * x)


def test_error_record() -> None:
    model = checked()
    assert model.run({"x": 6})[0] == 6
    for _ in range(2):
        with pytest.raises(OutOfBounds, match=r"gather: index: index 7 is outside 0\.\.6"):
            model.run({"x": 7})
        with pytest.raises(OutOfBounds, match="index -1"):
            model.run({"x": -1})
        assert model.run({"x": 3})[0] == 3


def test_timeout() -> None:
    model = checked(ENDLESS)
    for _ in range(2):
        with pytest.raises(ResourceLimit, match="longer than its timeout"):
            model.run({"x": 0}, timeout=0.02)
    quick = checked()
    assert quick.run({"x": 3}, timeout=10.0)[0] == 3


@pytest.mark.skipif(host_machine() is not Machine.X86_64, reason="sets the mode of x86")
def test_the_callers_floating_point_mode_does_not_matter() -> None:
    """A host program that flushes denormals to zero gets the same bits, and keeps its mode."""
    tiny = np.full((2, 3), 1e-40, np.float32)
    model = adder()
    with flushing_denormals() as get_mode:
        (z,) = model.run({"x": tiny, "y": tiny})
        mode = get_mode()
    assert mode & 0x8040 == 0x8040
    assert z.view(np.int32).all()
    np.testing.assert_array_equal(z, tiny + tiny)


@contextmanager
def flushing_denormals() -> Iterator[Callable[[], int]]:
    """Set the x86 modes FTZ and DAZ in this thread; gives a function that reads the mode's register."""
    image = load_image([compile_text(_MODE)])
    read = ctypes.CFUNCTYPE(ctypes.c_int)(image.symbol("read"))
    write = ctypes.CFUNCTYPE(None, ctypes.c_int)(image.symbol("write"))
    old = read()
    write(old & ~0x3F | 0x8040)
    try:
        yield read
    finally:
        write(old)


_MODE = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i32 @read() {
  %p = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %p)
  %v = load i32, ptr %p
  ret i32 %v
}
define void @write(i32 %v) {
  %p = alloca i32
  store i32 %v, ptr %p
  call void @llvm.x86.sse.ldmxcsr(ptr %p)
  ret void
}
"""


@pytest.mark.parametrize(
    ("inputs", "outputs", "symbols", "message"),
    [
        (("n",), ("m",), (Symbol("n"),), r"\['m'\] are not listed"),
        (("n",), ("n",), (Symbol("n"), Symbol("m")), "symbol 'm'"),
        (("n",), ("n",), (Symbol("n"), Symbol("n")), "symbol 'n' is listed twice"),
        (("n",), ("m",), (Symbol("m", value=("+", "n", 1)), Symbol("n")), "symbol 'm'"),
        (("n",), ("m",), (Symbol("n"), Symbol("m", value=("^", "n", 1))), r"'\^' is no operator"),
        ((-1,), (1,), (), "negative"),
    ],
)
def test_manifests_that_contradict_themselves(
    inputs: tuple[int | str, ...], outputs: tuple[int | str, ...], symbols: tuple[Symbol, ...], message: str
) -> None:
    with pytest.raises(BadArtifact, match=message):
        Manifest((TensorSpec("x", dt.f32, inputs),), (TensorSpec("y", dt.f32, outputs),), symbols=symbols)


@pytest.mark.parametrize(
    ("formula", "n", "expected"),
    [
        (("//", ("+", "n", 1), 2), 7, 4),
        (("-", ("*", 3, "n"), ("%", "n", 4)), 7, 18),
        (("max", 2, ("min", "n", 5)), 7, 5),
        ("n", 7, 7),
    ],
)
def test_derived_extents(formula: Formula, n: int, expected: int) -> None:
    manifest = Manifest(
        (TensorSpec("x", dt.f32, ("n",)), TensorSpec("y", dt.f32, ())),
        (TensorSpec("z", dt.f32, ("m",)),),
        symbols=(Symbol("n"), Symbol("m", value=formula)),
    )
    model = NativeExecutable(manifest, image_of(ADD.format(n=0)), threads=1)
    assert model.run({"x": np.zeros(n, np.float32), "y": 0})[0].shape == (expected,)


def test_derived_extents_that_make_no_sense() -> None:
    specs = (TensorSpec("x", dt.f32, ("n",)),), (TensorSpec("z", dt.f32, ("m",)),)
    less = Manifest(*specs, symbols=(Symbol("n"), Symbol("m", value=("-", "n", 3))))
    with pytest.raises(BadFeed, match="extent 'm' is -1"):
        NativeExecutable(less, image_of(ADD.format(n=0)), threads=1).run({"x": np.zeros(2, np.float32)})
    divided = Manifest(*specs, symbols=(Symbol("n"), Symbol("m", value=("//", 3, "n"))))
    with pytest.raises(BadFeed, match="3 // 0"):
        NativeExecutable(divided, image_of(ADD.format(n=0)), threads=1).run({"x": np.zeros(0, np.float32)})


def test_parts_that_do_not_fit() -> None:
    specs = (TensorSpec("x", dt.f32, ()),), (TensorSpec("y", dt.f32, ()),), (TensorSpec("c", dt.f32, (2,)),)
    manifest = Manifest(*specs)
    objects = image_of(ADD.format(n=0))
    with pytest.raises(BadArtifact, match="0 constants were given"):
        NativeExecutable(manifest, objects)
    with pytest.raises(BadArtifact, match=r"constant c: f32\[2\] was given float64\[2\]"):
        NativeExecutable(manifest, objects, [np.zeros(2)])
    with pytest.raises(BadArtifact, match="no symbol 'tw_main'"):
        NativeExecutable(Manifest((), ()), image_of())
    other = [objects[0], compile_text(f"@tw_abi_version = constant i32 {abi.VERSION + 1}")]
    with pytest.raises(BadArtifact, match=f"version {abi.VERSION + 1} of the runtime's interface"):
        NativeExecutable(Manifest((), ()), [compile_text(ADD.format(n=0)), other[1]])


def test_unaligned_constants_are_moved() -> None:
    raw = aligned(68)
    constant = raw[4:8].view(np.float32).reshape(())
    constant[...] = 5
    model = scaler(1)
    moved = NativeExecutable(model.manifest, image_of(SCALE), [constant], threads=1)
    constant[...] = 0
    assert moved.run({"x": np.ones(1, np.float32)})[0] == 5


def test_runs_without_the_compiler() -> None:
    program = (
        "import sys, tilewright.runtime.native; "
        "bad = {'llvmlite', 'onnx', 'rich', 'tilewright.backend'} & set(sys.modules); sys.exit(repr(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_times_of_calls() -> None:
    specs = [TensorSpec(name, dt.i64, ()) for name in ("x", "y")]
    image = image_of(MARKED)
    model = NativeExecutable(Manifest((specs[0],), (specs[1],), calls=("short", "long")), image, threads=1)
    x = np.array(3)
    for _ in range(2):  # the times are those of one run, not of all
        (y,), (short, long) = model.timed_run({"x": x})
        assert y == 3
        assert 0 <= short < long < 60
    np.testing.assert_array_equal(model.run({"x": x})[0], x)


def test_no_clock_without_times() -> None:
    with pytest.raises(BadFeed, match="missing"):
        adder().timed_run({"x": X})
    results, times = adder().timed_run({"x": X, "y": Y})
    np.testing.assert_array_equal(results[0], X + Y)
    assert times == []
