"""Code for Windows and macOS: its threads, clock and time-outs, on functions of Linux in place of those systems'.

What ran here is the code of those systems, not the systems: neither was there.
"""

import re
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.backend.shipping.networks import lenet, sample
from tests.backend.shipping.test_open_sizes_and_threads import several
from tests.runtime.images import ENDLESS, TORTURE
from tests.runtime.other_systems import TORTURED, objects_for, pool_for, windows_support
from tests.runtime.test_pool import stress
from tests.runtime.test_stopping import Rung, alarm, ring
from tilewright.backend.cpu.llvm import compile_assembly
from tilewright.backend.cpu.support import support_text
from tilewright.base import dtypes as dt
from tilewright.base.errors import CorruptArtifact, Timeout
from tilewright.base.processors import Architecture, System
from tilewright.model import CompiledModel
from tilewright.runtime import abi
from tilewright.runtime.artifact import save
from tilewright.runtime.capabilities import capabilities
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.linker import undefined
from tilewright.runtime.manifest import Manifest, TensorSpec
from tilewright.runtime.native import NativeExecutable
from tilewright.runtime.objectfile import Machine, host_machine
from tilewright.runtime.system.macos import MacOS
from tilewright.runtime.system.windows import Windows
from tilewright.target.target import Target

needs_x86 = pytest.mark.skipif(host_machine() is not Machine.X86_64, reason="it is code of x86-64")
OTHERS = [System.MACOS, System.WINDOWS]


@needs_x86
@pytest.mark.parametrize("system", OTHERS)
@pytest.mark.parametrize(("callers", "threads", "spins"), [(1, 3, 0), (4, 8, 50)])
def test_stress(tmp_path: Path, system: System, callers: int, threads: int, spins: int) -> None:
    objects = objects_for(system, TORTURE, TORTURED)
    assert stress(tmp_path, callers, threads, spins, 0, 0.3, objects=objects) > 300


@needs_x86
@pytest.mark.parametrize("system", OTHERS)
def test_time_outs_and_signals(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    model = NativeExecutable(Manifest((), ()), objects_for(system, ENDLESS), threads=1)
    with pool_for(system) as pool:
        monkeypatch.setattr(model, "_pool", pool)
        begin = time.perf_counter()
        with pytest.raises(Timeout):
            model.run({}, timeout=0.1)
        assert time.perf_counter() - begin >= 0.1
        with alarm(0.1, ring), pytest.raises(Rung):
            model.run({})


@needs_x86
@pytest.mark.parametrize("system", OTHERS)
def test_the_clock_is_python_s(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines are of Python's."""
    model = NativeExecutable(Manifest((), ()), objects_for(system, _LOOKS_AT_THE_CLOCK), threads=1)
    times = np.zeros(1, np.int64)
    monkeypatch.setattr(model, "_new_times", lambda: times)
    before = time.perf_counter_ns()
    model._run({}, {}, None, None, 1)
    assert before - 1000 < times[0] < time.perf_counter_ns() + 1000


_LOOKS_AT_THE_CLOCK = """
define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
  call void @tw_mark(ptr %context, i64 0)
  ret i32 0
}
"""

HERE = Target.host()
THERE = Target.parse(str(HERE).replace("x86_64", "x86_64-windows", 1)) if HERE.arch is Architecture.X86_64 else None
APPLE = Target.parse("aarch64-macos,apple-m1")


@cache
def network(target: Target) -> CompiledModel:
    """With parallel regions."""
    return tilewright.compile(lenet(), target=several(target))


@needs_x86
def test_a_large_frame_on_windows_is_touched_page_by_page() -> None:
    """By a function of the system, which changes no register that the call passes."""
    objects = objects_for(System.WINDOWS, _LARGE_FRAME)
    assert "__chkstk" in undefined([parse_elf(objects[0])])
    specs = [TensorSpec(name, dt.i64, ()) for name in "xy"]
    model = NativeExecutable(Manifest((specs[0],), (specs[1],)), objects, threads=1)
    assert model.run({"x": np.array(9999)}) == [9999]


_LARGE_FRAME = """
define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
  %frame = alloca [10000 x i64]
  %x = load ptr, ptr %buffers
  %value = load i64, ptr %x
  %last = getelementptr i64, ptr %frame, i64 %value
  store volatile i64 %value, ptr %last
  %back = load volatile i64, ptr %last
  %y.at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y.at
  store i64 %back, ptr %y
  ret i32 0
}
"""


@pytest.mark.parametrize(
    ("target", "imports"),
    [
        pytest.param(THERE, Windows.imports, marks=needs_x86, id="windows"),
        pytest.param(APPLE, MacOS.imports, id="macos"),
    ],
)
def test_artifacts_for_other_systems(tmp_path: Path, target: Target, imports: frozenset[str]) -> None:
    """They import what their system offers; they are saved here, and refused."""
    model = network(target)
    needed = undefined([parse_elf(data) for data in model.contents().objects])
    assert needed & imports
    assert needed <= imports | {"floorf"}, "of the C library"
    model.save(tmp_path / "m.tw")
    refused = f"it is code for {target.platform}, and this machine is {capabilities().platform};"
    with pytest.raises(CorruptArtifact, match=refused):
        tilewright.load(tmp_path / "m.tw", trust=True)


def test_code_for_macos_leaves_the_register_of_the_system_alone() -> None:
    text = compile_assembly(support_text("aarch64", System.MACOS), Target.parse("aarch64-macos,apple-m1"))
    assert "__ulock_wait" in text
    assert not re.search(r"\b[xw]18\b", text)


# Windows in this process: its name, its libraries, and what its x86 processor says.
_AS_WINDOWS = """
import ctypes, sys
from pathlib import Path
import numpy as np
from tests.runtime.pretended import PretendedWindows
from tilewright.runtime.loader import load_image

folder, library, names = Path(sys.argv[1]), PretendedWindows(), []
made = load_image([(folder / "functions.o").read_bytes()], system=library.linux)

class Library:
    def __init__(self, name):
        names.append(name)
    def __getattr__(self, name):
        address = made.symbol(name) if name in made else library.find(name)
        if address is None:
            raise AttributeError(name)
        return ctypes.c_void_p(address)

ctypes.CDLL = Library
sys.platform = "win32"
import tilewright
import tilewright.runtime.capabilities as capabilities
capabilities.processor_by_code = lambda: frozenset(sys.argv[2].split(","))
for threads in (1, 3):
    model = tilewright.load(folder / "m.tw", trust=True, threads=threads)
    np.save(folder / f"y{threads}.npy", model.run(None, {"x": np.load(folder / "x.npy")})[0])
assert names == ["kernel32", "api-ms-win-core-synch-l1-2-0", "ucrtbase", "ntdll"], names
asked = [call[0] for call in library.calls]
assert asked.count("CreateThread") == 3, "two workers, and who counts ticks"
assert asked.index("FlushInstructionCache") < asked.index("CreateThread")
"""


@needs_x86
def test_an_artifact_for_windows_is_loaded_as_there(tmp_path: Path) -> None:
    """From the file to the bits, on threads, in a process that takes itself for one of Windows.

    With all vectors of this processor: other registers survive calls there.
    """
    parts = network(THERE).contents()
    own = [data for data in parts.objects if all(symbol.name != abi.ENTER for symbol in parse_elf(data).symbols)]
    *support, functions = windows_support()
    save(replace(parts, objects=(*own, *support)), tmp_path / "m.tw", None, signed=False)
    (tmp_path / "functions.o").write_bytes(functions)
    x = sample((1, 1, 28, 28))
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, "-c", _AS_WINDOWS, str(tmp_path), ",".join(HERE.features)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    expected, _ = network(HERE).run(None, {"x": x})
    for threads in (1, 3):
        np.testing.assert_array_equal(np.load(tmp_path / f"y{threads}.npy"), expected)
