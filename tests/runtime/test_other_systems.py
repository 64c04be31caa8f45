"""Code for Windows and macOS: its threads, clock and time-outs, on functions of Linux in place of those systems'.

What ran here is the code of those systems, not the systems: neither was there.
"""

import re
import time
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
from tilewright.base.errors import Timeout
from tilewright.base.processors import System
from tilewright.runtime import abi
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.linker import undefined
from tilewright.runtime.manifest import Manifest
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


@pytest.mark.parametrize(
    ("target", "imports"), [("x86_64-windows", Windows.imports), ("aarch64-macos,apple-m1", MacOS.imports)]
)
def test_images_import_what_their_system_offers(target: str, imports: frozenset[str]) -> None:
    parts = tilewright.compile(lenet(), target=several(Target.parse(target))).contents()
    needed = undefined([parse_elf(data) for data in parts.objects])
    assert needed & imports
    assert needed <= imports | {"memset", "memcpy", "floorf"}


def test_code_for_macos_leaves_the_register_of_the_system_alone() -> None:
    text = compile_assembly(support_text("aarch64", System.MACOS), Target.parse("aarch64-macos,apple-m1"))
    assert "__ulock_wait" in text
    assert not re.search(r"\b[xw]18\b", text)
