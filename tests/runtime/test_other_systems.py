"""Code for Windows and macOS: its threads, clock and time-outs, on functions of Linux in place of those systems'.

What ran here is the code of those systems, not the systems: neither was there.
"""

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.backend.shipping.networks import lenet, sample
from tests.backend.shipping.test_open_sizes_and_threads import several
from tests.runtime.images import ENDLESS, TORTURE
from tests.runtime.other_systems import TORTURED, interpreter_for, objects_for, windows_support
from tests.runtime.test_pool import stress
from tests.runtime.test_stopping import Rung, alarm, ring
from tilewright.backend.cpu.llvm import compile_assembly
from tilewright.backend.cpu.support import support_text
from tilewright.base import dtypes as dt
from tilewright.base.errors import CorruptArtifact, Timeout
from tilewright.base.processors import System
from tilewright.runtime import abi
from tilewright.runtime.artifact import save
from tilewright.runtime.capabilities import capabilities
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.linker import undefined
from tilewright.runtime.manifest import Manifest, TensorSpec
from tilewright.runtime.native import NativeExecutable
from tilewright.runtime.objectfile import Machine, host_machine
from tilewright.runtime.pool import Pool
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
    assert stress(tmp_path, callers, threads, spins, 0, 0.5, objects=objects) > 300


@needs_x86
@pytest.mark.parametrize("system", OTHERS)
def test_time_outs_and_signals(system: System) -> None:
    model = NativeExecutable(Manifest((), ()), objects_for(system, ENDLESS), threads=1)
    begin = time.perf_counter()
    with interpreter_for(system), pytest.raises(Timeout):
        model.run({}, timeout=0.1)
    assert time.perf_counter() - begin >= 0.1
    with interpreter_for(system), alarm(0.1, ring), pytest.raises(Rung):
        model.run({})


@needs_x86
def test_a_network_for_windows_gives_the_bits_of_one_for_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all vectors of this processor, on threads: other registers survive calls there."""
    here = Target.host()
    there = Target.parse(str(here).replace("x86_64", "x86_64-windows", 1))
    feeds = {"x": sample((1, 1, 28, 28))}
    expected = tilewright.compile(lenet(), target=several(here)).run(None, feeds)
    parts = tilewright.compile(lenet(), target=several(there)).contents()
    own = [data for data in parts.objects if all(symbol.name != abi.ENTER for symbol in parse_elf(data).symbols)]
    assert len(own) == len(parts.objects) - 1
    pool = Pool()  # the threads of the process's own may run code for Linux already, and call kernels as Linux does
    for threads in (1, 3):
        model = NativeExecutable(parts.manifest, [*own, *windows_support()], parts.constants, threads=threads)
        monkeypatch.setattr(model, "_pool", pool)
        for result, wanted in zip(model.run(feeds), expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
    pool.stop()


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


def test_artifacts_for_other_systems_are_saved_here_and_refused(tmp_path: Path) -> None:
    here = capabilities().platform
    for platform in ("x86_64-windows", "aarch64-macos"):
        path = tmp_path / platform
        tilewright.compile(lenet(), target=platform).save(path)
        with pytest.raises(CorruptArtifact, match=f"it is code for {platform}, and this machine is {here};"):
            tilewright.load(path, trust=True)


@pytest.mark.parametrize(
    ("target", "imports"), [("x86_64-windows", Windows.imports), ("aarch64-macos,apple-m1", MacOS.imports)]
)
def test_images_import_what_their_system_offers(target: str, imports: frozenset[str]) -> None:
    parts = tilewright.compile(lenet(), target=several(Target.parse(target))).contents()
    needed = undefined([parse_elf(data) for data in parts.objects])
    assert needed & imports
    assert needed <= imports | {"floorf"}, "of the C library"


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
from tilewright.base.processors import Architecture, features_of
capabilities.processor_by_code = lambda: features_of(Architecture.X86_64, "x86-64-v3")
model = tilewright.load(folder / "m.tw", trust=True, threads=3)
y, _ = model.run(None, {"x": np.load(folder / "x.npy")})
np.save(folder / "y.npy", y)
assert names == ["kernel32", "api-ms-win-core-synch-l1-2-0", "ucrtbase", "ntdll"], names
asked = [call[0] for call in library.calls]
assert asked.count("CreateThread") == 3, "two workers, and who counts ticks"
assert asked.index("FlushInstructionCache") < asked.index("CreateThread")
"""


@needs_x86
@pytest.mark.skipif("avx2" not in Target.host().features, reason="it is code of x86-64-v3")
def test_an_artifact_for_windows_is_loaded_as_there(tmp_path: Path) -> None:
    """From the file to the result, in a process that takes itself for one of Windows."""
    parts = tilewright.compile(lenet(), target=several(Target.parse("x86_64-windows,x86-64-v3"))).contents()
    own = [data for data in parts.objects if all(symbol.name != abi.ENTER for symbol in parse_elf(data).symbols)]
    *support, functions = windows_support()
    save(replace(parts, objects=(*own, *support)), tmp_path / "m.tw", None, signed=False)
    (tmp_path / "functions.o").write_bytes(functions)
    x = sample((1, 1, 28, 28))
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, "-c", _AS_WINDOWS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    expected, _ = tilewright.compile(lenet(), target=several(Target.parse("x86_64,x86-64-v3"))).run(None, {"x": x})
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
