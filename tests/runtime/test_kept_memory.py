"""What a model keeps between calls follows what its calls need: by the accounting of its workspace."""

import mmap
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.images import image_of
from tilewright.base import dtypes as dt
from tilewright.runtime.context import KEPT_BYTES, REMEMBERED_CALLS
from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest, Symbol, TensorSpec
from tilewright.runtime.native import NativeExecutable

MIB = 1 << 20
BIG, SMALL = KEPT_BYTES // MIB + 100, 5

# Writes to the ends of its workspace, of dims[1] bytes.
_TOUCH = """
define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
  %bytes.at = getelementptr i64, ptr %dims, i64 1
  %bytes = load i64, ptr %bytes.at
  %last = sub i64 %bytes, 1
  %end = getelementptr i8, ptr %workspace, i64 %last
  store volatile i8 1, ptr %workspace
  store volatile i8 2, ptr %end
  ret i32 0
}
"""


def dynamic() -> Executable:
    """Needs as many MiB of workspace as its input is long."""
    symbols = (Symbol("n"), Symbol("bytes", value=("*", "n", MIB)))
    manifest = Manifest((TensorSpec("x", dt.u8, ("n",)),), (), symbols=symbols, workspace="bytes")
    return NativeExecutable(manifest, image_of(_TOUCH), threads=1)


def run(model: Executable, mebibytes: int, times: int = 1) -> int:
    """Bytes that are kept after so many calls of that size."""
    for _ in range(times):
        model.run({"x": np.zeros(mebibytes, np.uint8)})
    return model.kept_bytes


def test_one_large_call_leaves_nothing() -> None:
    model = dynamic()
    assert run(model, SMALL) == SMALL * MIB
    assert run(model, BIG) == 0
    assert run(model, SMALL, 3) == SMALL * MIB


def test_calls_of_one_size_keep_theirs() -> None:
    model = dynamic()
    assert run(model, BIG, 2) == BIG * MIB
    kept = model._free[-1].address
    assert run(model, BIG, 2 * REMEMBERED_CALLS) == BIG * MIB
    assert model._free[-1].address == kept
    assert run(model, SMALL, 10) == BIG * MIB, "large calls may come again"
    assert run(model, BIG) == BIG * MIB


def test_after_many_smaller_calls_it_goes() -> None:
    model = dynamic()
    run(model, BIG, 2)
    assert run(model, 1, REMEMBERED_CALLS) <= MIB
    assert run(model, 1) == MIB


def test_what_is_small_is_kept_in_any_case() -> None:
    model = dynamic()
    most = KEPT_BYTES // MIB
    assert run(model, most) == most * MIB
    assert run(model, 1, 2 * REMEMBERED_CALLS) == most * MIB


def test_of_calls_at_the_same_time() -> None:
    """A burst leaves no more than its calls needed together, and calls one by one after it only theirs."""
    model, together = dynamic(), threading.Barrier(4, timeout=30)
    native = model._entry.releasing

    def enter(context: int) -> int:
        together.wait()
        return native(context)

    model._entry.call = enter
    callers = [threading.Thread(target=run, args=(model, BIG)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    model._entry.call = native
    assert model.kept_bytes <= KEPT_BYTES + 3 * BIG * MIB
    assert run(model, SMALL, REMEMBERED_CALLS) <= KEPT_BYTES + REMEMBERED_CALLS * SMALL * MIB


@pytest.mark.parametrize("size", [1, BIG])
def test_of_fixed_sizes(size: int) -> None:
    manifest = Manifest((), (), workspace=size * MIB)
    model = NativeExecutable(
        manifest, image_of("define i32 @tw_main(ptr %b, ptr %d, ptr %w, ptr %c) {\n  ret i32 0\n}\n")
    )
    for _ in range(3):
        model.run({})
    assert model.kept_bytes == size * MIB


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_the_system_gets_it_back() -> None:
    model = dynamic()
    run(model, 1)
    before, size = resident(), 256 * MIB
    context = model._free[-1]
    context.reserve(size)
    context._arena.fill(1)
    assert resident() > before + size // 2
    del context
    run(model, 256)
    assert resident() < before + size // 2
