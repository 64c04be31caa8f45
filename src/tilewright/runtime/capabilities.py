"""What code this machine runs: its platform, and the features of its processor.

Linux tells (``base.host``). Elsewhere: all 64-bit ARM processors of Apple have what the first of them has, and an x86
processor is asked itself, by the instruction CPUID (Intel's Software Developer's Manual, volume 2, "CPUID"; AMD's
Architecture Programmer's Manual, volume 3, appendix E).
"""

import ctypes
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from tilewright.base import host
from tilewright.base.errors import UnsupportedTarget
from tilewright.base.processors import FEATURES, SYSTEMS, Architecture, System, closure, features_of, platform_of
from tilewright.runtime.memory import Pages
from tilewright.runtime.system import system
from tilewright.runtime.system.api import Access

_FIRST_OF_APPLE: Final = "apple-m1"
_NAMES: Mapping[str, Architecture] = {
    "amd64": Architecture.X86_64,
    "x86_64": Architecture.X86_64,
    "arm64": Architecture.AARCH64,
    "aarch64": Architecture.AARCH64,
}

Ask = Callable[[int, int], tuple[int, int, int, int]]
"""CPUID of a leaf and a subleaf: the registers eax, ebx, ecx and edx."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """``platform``: as in targets (``x86_64-windows``); ``features``: LLVM's names."""

    arch: Architecture
    platform: str
    features: frozenset[str]


def capabilities() -> Capabilities:
    """Those of this machine. Raises ``UnsupportedTarget`` if no code can be made for it."""
    if system() is System.LINUX:
        found = host.detect()
        return Capabilities(found.arch, found.arch.value, found.features)
    return capabilities_of(system(), platform.machine(), processor_by_code)


def capabilities_of(on: System, machine: str, asked: Callable[[], frozenset[str]]) -> Capabilities:
    """Those of a machine of another system, which calls its architecture ``machine``; ``asked``: features of x86."""
    arch = _NAMES.get(machine.lower())
    if arch is None or on not in SYSTEMS[arch]:
        known = ", ".join(platform_of(arch, one) for arch, systems in SYSTEMS.items() for one in systems)
        raise UnsupportedTarget(f"this machine is {machine} with {on.value}; code can be made for {known}")
    features = features_of(arch, _FIRST_OF_APPLE) if on is System.MACOS else asked()
    return Capabilities(arch, platform_of(arch, on), features)


# push rbx; mov eax, ecx; mov ecx, edx; cpuid; mov [r8], eax; ... [r8+4], ebx; [r8+8], ecx; [r8+12], edx; pop rbx; ret
CPUID: Final = bytes.fromhex("53 89c8 89d1 0fa2 418900 41895804 41894808 4189500c 5b c3")
"""A function of a leaf, a subleaf and the place for four registers, by the convention of Windows."""
# xor ecx, ecx; xgetbv; ret
XGETBV: Final = bytes.fromhex("31c9 0f01d0 c3")
"""A function: the states of registers that the system saves."""


@cache
def processor_by_code() -> frozenset[str]:
    """The features of this x86 processor, which runs Windows."""
    pages = Pages(1, for_code=True)
    with pages.written() as memory:
        memory[: len(CPUID)] = CPUID
        memory[64 : 64 + len(XGETBV)] = XGETBV
    pages.protect(0, pages.size, Access.EXECUTE)
    ask = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(pages.address)
    saved = ctypes.CFUNCTYPE(ctypes.c_uint32)(pages.address + 64)

    def registers(leaf: int, subleaf: int) -> tuple[int, int, int, int]:
        found = (ctypes.c_uint32 * 4)()
        ask(leaf, subleaf, ctypes.addressof(found))
        return found[0], found[1], found[2], found[3]

    return processor_features(registers, lambda: saved())


# By leaf, subleaf and register (0: eax): bits, and LLVM's names of features.
_BITS: Mapping[tuple[int, int, int], Mapping[int, str]] = {
    (1, 0, 2): {0: "sse3", 1: "pclmul", 9: "ssse3", 12: "fma", 13: "cx16", 19: "sse4.1", 20: "sse4.2", 22: "movbe",
                23: "popcnt", 25: "aes", 28: "avx", 29: "f16c"},
    (7, 0, 1): {3: "bmi", 5: "avx2", 8: "bmi2", 16: "avx512f", 17: "avx512dq", 21: "avx512ifma", 28: "avx512cd",
                30: "avx512bw", 31: "avx512vl"},
    (7, 0, 2): {1: "avx512vbmi", 6: "avx512vbmi2", 8: "gfni", 9: "vaes", 10: "vpclmulqdq", 11: "avx512vnni",
                12: "avx512bitalg", 14: "avx512vpopcntdq"},
    (7, 0, 3): {8: "avx512vp2intersect", 23: "avx512fp16"},
    (7, 1, 0): {4: "avxvnni", 5: "avx512bf16", 23: "avxifma"},
    (7, 1, 3): {4: "avxvnniint8", 5: "avxneconvert", 10: "avxvnniint16"},
    (0x80000001, 0, 2): {0: "sahf", 5: "lzcnt"},
}  # fmt: skip
_SAVES: Final = 27
"""The bit of leaf 1, ecx: the system saves registers, and says which (``XGETBV``)."""
_VECTORS_256, _VECTORS_512 = 0x06, 0xE6
"""The states of vectors: registers of 128 and of 256 bits; and masks, upper halves, the other sixteen."""


def processor_features(ask: Ask, saved: Callable[[], int]) -> frozenset[str]:
    """The features that CPUID tells, of vectors only if the system saves them; without those of matrices.

    ``saved``: XGETBV's low half, asked only if there is that instruction.
    """
    deepest = ask(0, 0)[0], ask(0x80000000, 0)[0]
    names = set[str]()
    for (leaf, subleaf, register), bits in _BITS.items():
        if leaf <= deepest[leaf >= 0x80000000] and (not subleaf or ask(leaf, 0)[0] >= subleaf):
            word = ask(leaf, subleaf)[register]
            names |= {name for bit, name in bits.items() if word >> bit & 1}
    states = saved() if ask(1, 0)[2] >> _SAVES & 1 else 0
    needed = {"avx": _VECTORS_256, "avx512f": _VECTORS_512}
    names -= {name for name, state in needed.items() if states & state != state}
    have = names & FEATURES[Architecture.X86_64].keys()
    return frozenset(name for name in have if closure(Architecture.X86_64, frozenset((name,))) <= have)
