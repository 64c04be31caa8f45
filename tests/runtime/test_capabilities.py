"""What a machine runs: by Linux's word, by Apple's oldest processor, and by the processor's own."""

import ctypes

import pytest

from tilewright.base import host
from tilewright.base.errors import UnsupportedTarget
from tilewright.base.processors import Architecture, System, features_of
from tilewright.runtime.capabilities import (
    CPUID,
    XGETBV,
    Capabilities,
    capabilities,
    capabilities_of,
    processor_features,
)
from tilewright.runtime.elsewhere import misfit
from tilewright.runtime.memory import Pages
from tilewright.runtime.objectfile import Machine, host_machine
from tilewright.runtime.system.api import Access

ALL = (1 << 32) - 1
NO_CODE = frozenset(("amx-", "avx10."))
"""Beginnings of features that are never reported: they need more than the processor."""

# mov ecx, edi; mov r8, rdx; mov edx, esi: from the convention of Linux to that of Windows.
_FROM_LINUX = bytes.fromhex("89f9 4989d0 89f2")


@pytest.mark.skipif(host_machine() is not Machine.X86_64, reason="it is code of x86-64")
def test_the_processor_says_what_linux_says() -> None:
    pages = Pages(1, for_code=True)
    with pages.written() as memory:
        for at, code in ((0, _FROM_LINUX + CPUID), (64, XGETBV)):
            memory[at : at + len(code)] = code
    pages.protect(0, pages.size, Access.EXECUTE)
    ask = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(pages.address)
    saved = ctypes.CFUNCTYPE(ctypes.c_uint32)(pages.address + 64)

    def registers(leaf: int, subleaf: int) -> tuple[int, int, int, int]:
        found = (ctypes.c_uint32 * 5)(0, 0, 0, 0, 77)
        ask(leaf, subleaf, ctypes.addressof(found))
        assert found[4] == 77
        return found[0], found[1], found[2], found[3]

    told = {name for name in host.detect().features if not name.startswith(tuple(NO_CODE))}
    assert processor_features(registers, lambda: saved()) == told


@pytest.mark.parametrize(
    ("states", "there", "missing"),
    [
        (0x00, "sse4.2", "avx"),
        (0x02, "sse4.2", "avx"),
        (0x06, "avxvnni", "avx512f"),
        (0x66, "avx2", "avx512f"),
        (0xE6, "avx512fp16", "amx-tile"),
    ],
)
def test_vectors_need_the_system(states: int, there: str, missing: str) -> None:
    found = processor_features(lambda *_: (ALL, ALL, ALL, ALL), lambda: states)
    assert there in found
    assert missing not in found


def test_leaves_that_a_processor_has_not() -> None:
    """What it gives for them is of no meaning; nor may it be asked for saved states."""

    def old(leaf: int, subleaf: int) -> tuple[int, int, int, int]:
        return (1 if leaf == 0 else 0, ALL, ALL & ~(1 << 27), ALL)

    def never() -> int:
        raise AssertionError

    found = processor_features(old, never)
    assert {"sse4.2", "cx16"} <= found
    assert not found & {"avx", "bmi", "lzcnt", "avx512f"}


def test_machines_of_other_systems() -> None:
    asked = frozenset(("avx2",))
    m1 = features_of(Architecture.AARCH64, "apple-m1")
    assert capabilities_of(System.MACOS, "arm64", lambda: asked) == Capabilities(
        Architecture.AARCH64, "aarch64-macos", m1
    )
    expected = Capabilities(Architecture.X86_64, "x86_64-windows", asked)
    assert capabilities_of(System.WINDOWS, "AMD64", lambda: asked) == expected
    for system, machine in ((System.MACOS, "x86_64"), (System.WINDOWS, "ARM64"), (System.WINDOWS, "x86")):
        with pytest.raises(UnsupportedTarget, match=rf"{machine} with {system.value}; code .* x86_64, x86_64-windows"):
            capabilities_of(system, machine, lambda: asked)


def test_code_for_another_system_is_refused() -> None:
    here = capabilities()
    assert here.platform == host.detect().arch.value
    assert misfit(f"{here.platform}-windows", ()) == (
        f"it is code for {here.platform}-windows, and this machine is {here.platform}"
    )
