"""The classes for macOS and Windows keep the protocols of those systems, on libraries that pretend to be theirs."""

import ctypes
import gc
import mmap

import numpy as np
import pytest

from tests.runtime.images import ADD, TORTURE, compile_text, image_of, support_object
from tests.runtime.pool_stress import torture
from tests.runtime.pretended import FIRST_HANDLE, Pretended, PretendedMacOS, PretendedWindows
from tilewright.backend.cpu.support import DECLARATIONS, support_text
from tilewright.base.errors import BadArtifact, InternalError, MeasureError, OutOfMemory, UnsupportedTarget
from tilewright.runtime import abi
from tilewright.runtime.imports import process_imports
from tilewright.runtime.loader import load_image
from tilewright.runtime.memory import PAGE, Pages
from tilewright.runtime.objectfile import host_machine
from tilewright.runtime.pool import Pool
from tilewright.runtime.system import here
from tilewright.runtime.system.api import Access, OperatingSystem
from tilewright.runtime.system.macos import MacOS
from tilewright.runtime.system.windows import Windows

ALONE = [
    compile_text(DECLARATIONS + ADD.format(n=6)),
    compile_text(support_text(host_machine().value, threads=False)),
]
"""An image without imports."""


def test_windows_maps_then_protects_then_flushes() -> None:
    library = PretendedWindows()
    image = load_image(ALONE, system=Windows(library.find))
    (_, _, size, _, _), *protected = library.calls
    assert [call[0] for call in library.calls] == [
        "VirtualAlloc",
        "VirtualProtect",
        "FlushInstructionCache",
        "VirtualProtect",
    ]
    code, flushed, constants = protected
    start = code[1]
    assert code[3] == 0x20
    assert constants[3] == 0x02
    assert flushed[1:] == ((1 << 64) - 1, start, code[2]), "this process; what was protected"
    assert (size, start, constants[1]) == (code[2] + constants[2], image._pages.address, start + code[2])
    assert all(number % PAGE == 0 for number in (size, start, code[2], constants[1], constants[2]))
    del image
    gc.collect()
    assert library.calls[-1] == ("VirtualFree", start, 0, 0x8000)


def test_macos_writes_between_the_turns_of_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    library = PretendedMacOS()
    turns: list[bool] = []
    monkeypatch.setattr("tilewright.runtime.loader.link", lambda *_: turns.append(library.may_write))
    image = load_image(ALONE, system=MacOS(library.find))
    assert turns == [True]
    started = [call for call in library.calls if not str(call[0]).startswith("pthread_attr")]
    mapped, on, off, shown = started
    assert mapped[2:5] == (image.size, 7, 0x1802)
    assert (on, off) == (("pthread_jit_write_protect_np", 0), ("pthread_jit_write_protect_np", 1))
    assert shown[:2] == ("sys_icache_invalidate", image._pages.address)
    assert shown[2] == image._pages.size - PAGE, "all but the constants"
    address, size = image._pages.address, image.size
    del image
    gc.collect()
    assert library.calls[-1] == ("munmap", address, size)


def test_a_link_that_fails_leaves_macos_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    library = PretendedMacOS()

    def failing(*_: object) -> None:
        raise BadArtifact("damaged")

    monkeypatch.setattr("tilewright.runtime.loader.link", failing)
    with pytest.raises(BadArtifact, match="damaged"):
        load_image(ALONE, system=MacOS(library.find))
    assert not library.may_write
    assert library.named("pthread_jit_write_protect_np")[-1][1] == 1


def test_macos_has_no_data_beside_code() -> None:
    system = MacOS(PretendedMacOS().find)
    pages = Pages(1, for_code=True, system=system)
    with pytest.raises(InternalError, match=f"{PAGE} bytes can't be made read, write: no data can be written beside"):
        pages.protect(0, PAGE, Access.WRITE)


@pytest.mark.parametrize("size", [0, 1, PAGE, PAGE + 1])
def test_pages_are_whole(size: int) -> None:
    windows, macos = PretendedWindows(), PretendedMacOS()
    for library, system in ((windows, Windows(windows.find)), (macos, MacOS(macos.find)), (None, here())):
        pages = Pages(size, system=system)
        assert pages.size == max(1, -(-size // mmap.PAGESIZE)) * mmap.PAGESIZE
        view = pages.view()
        assert len(view) == pages.size
        assert not any(view)
        view[:] = bytes(range(256)) * (pages.size // 256)
        pages.protect(0, 0, Access.READ)
        assert library is None or len(library.named("VirtualProtect", "mprotect")) == 0


def test_views_keep_pages_mapped() -> None:
    library = PretendedWindows()
    kept = np.frombuffer(Pages(1, system=Windows(library.find)).view(), np.uint8)
    gc.collect()
    assert not library.named("VirtualFree")
    kept[:] = 7
    del kept
    gc.collect()
    assert len(library.named("VirtualFree")) == 1


@pytest.mark.parametrize("system", [Windows(PretendedWindows().find), MacOS(PretendedMacOS().find)])
def test_what_was_written_is_what_runs(system: OperatingSystem) -> None:
    """Its convention of calls is Linux's here."""
    image = load_image(ALONE, system=system)
    assert image.constant(abi.VERSION_SYMBOL, 4) == abi.VERSION.to_bytes(4, "little")
    x, y, z = (np.arange(6, dtype=np.float32) * factor for factor in (1, 10, 0))
    buffers = np.array([array.ctypes.data for array in (x, y, z)])
    main = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)(image.symbol(abi.MAIN))
    assert main(buffers.ctypes.data, 0, 0, 0) == 0
    np.testing.assert_array_equal(z, x + y)


SYSTEMS = pytest.mark.parametrize(("pretended", "kind"), [(PretendedWindows, Windows), (PretendedMacOS, MacOS)])


@SYSTEMS
def test_threads_run_and_end(pretended: type[Pretended], kind: type[Windows | MacOS]) -> None:
    """A pool's, which runs code for Linux here."""
    library = pretended()
    pool = Pool(system=kind(library.find))
    image = load_image(image_of(TORTURE))
    assert pool.ensure(3, image) == 3
    assert torture(image, pool, 3, 1) == 0
    pool.stop()
    created = library.named("CreateThread", "pthread_create")
    ended = library.named("WaitForSingleObject", "pthread_join")
    assert len(created) == len(ended) == 2
    if kind is Windows:
        assert {call[1] for call in ended} == {FIRST_HANDLE, FIRST_HANDLE + 1}
        assert [call[2] for call in created] == [8 << 20] * 2
        assert [call[1] for call in library.named("CloseHandle")] == [call[1] for call in ended]
    else:
        ((_, attributes),) = library.named("pthread_attr_init")
        assert library.named("pthread_attr_setstacksize") == [("pthread_attr_setstacksize", attributes, 8 << 20)]
        assert [call[2] for call in created] == [attributes] * 2


@SYSTEMS
def test_what_a_system_refuses(pretended: type[Pretended], kind: type[Windows | MacOS]) -> None:
    library = pretended()
    system = kind(library.find)
    pool, image = Pool(system=system), load_image([*image_of(TORTURE)[:1], support_object()])
    library.fails |= {"CreateThread", "pthread_create"}
    with pytest.warns(UserWarning, match=r"only 1 threads: the system refused another \((CreateThread|.*pthread_cr)"):
        assert pool.ensure(2, image) == 1
    library.fails |= {"VirtualAlloc", "mmap"}
    told = "VirtualAlloc failed, and Windows gives the error 1455|Cannot allocate memory, by mmap"
    with pytest.raises(OutOfMemory, match=rf"{PAGE} bytes for code can't be mapped: ({told})"):
        Pages(1, system=system)
    library.fails = {"VirtualProtect", "mprotect"}
    with pytest.raises(InternalError, match=r"can't be made none: .*(VirtualProtect failed|by mprotect)"):
        Pages(1, system=system).protect(0, 1, Access.NONE)
    with system.pinned([], ()):
        pass
    with pytest.raises(MeasureError, match=r"kept on one processor: (Windows|macOS) has no such thing"):
        pool.pinned([0])


@SYSTEMS
def test_an_old_system(pretended: type[Pretended], kind: type[Windows | MacOS]) -> None:
    missing = "FlushInstructionCache" if kind is Windows else "pthread_jit_write_protect_np"
    library = pretended()
    with pytest.raises(UnsupportedTarget, match=f"its libraries have no function {missing}"):
        kind(lambda name: None if name == missing else library.find(name))


def test_each_system_offers_its_own_functions() -> None:
    names = {"syscall", "clock_gettime", "memset", "__chkstk", "WaitOnAddress", "__ulock_wait", "system"}

    def offered(system: OperatingSystem) -> set[str]:
        return {*process_imports(names, system)}

    windows, macos = Windows(PretendedWindows().find), MacOS(PretendedMacOS().find)
    windows.function = macos.function = lambda name: 1
    assert offered(windows) == {"memset", "__chkstk", "WaitOnAddress"}
    assert offered(macos) == {"memset", "clock_gettime", "__ulock_wait"}
    assert offered(here()) == {"memset", "clock_gettime", "syscall"}
