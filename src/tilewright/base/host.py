"""Detects this machine's processor, from files of the Linux kernel, without LLVM.

The processor's name only guides LLVM's scheduling and the cost model; the features that the kernel reports decide which
instructions code may use. A processor newer than this list gets the name of the newest one of its family, and one of an
unknown family a name that fits its features.
"""

import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright.base.errors import UnsupportedTarget
from tilewright.base.files import text_of
from tilewright.base.processors import BASELINE, FEATURES, Architecture, closure, features_of
from tilewright.base.sizes import parse_size
from tilewright.base.tile_permission import may_use_tiles
from tilewright.base.vector_length import vector_bytes


@dataclass(frozen=True, slots=True)
class Host:
    """The processor, usable features, data caches by level (bytes), and the number of cores that this process may use.

    ``name``: the vendor's name of the processor; LLVM's name if unknown.
    """

    arch: Architecture
    cpu: str
    features: frozenset[str]
    caches: dict[int, int]
    cores: int
    name: str = ""

    def __str__(self) -> str:
        """What tells processors apart; virtual machines may hide part of the vendor's name."""
        return f"{self.name} ({self.cpu})"


def detect(
    root: Path = Path("/"),
    machine: str | None = None,
    vector_bytes: Callable[[], int] = vector_bytes,
    may_use_tiles: Callable[[], bool] = may_use_tiles,
) -> Host:
    """Detect this machine. ``root``: the folder of ``proc`` and ``sys``; ``machine``: the kernel's name of the
    architecture; ``vector_bytes``: asked for the length of vector registers that have any; ``may_use_tiles``: asked
    whether this process may use a matrix unit that the processor has.

    Raises ``UnsupportedTarget`` if the architecture is not in ``Architecture``.
    """
    name = machine or platform.machine()
    arch = next((arch for arch in Architecture if arch.value == name), None)
    if arch is None:
        known = ", ".join(arch.value for arch in Architecture)
        raise UnsupportedTarget(f"this machine is {name}; code can be made for {known}")
    described = _first_processor(text_of(root / "proc/cpuinfo"))
    features = _features(arch, described)
    if arch is Architecture.RISCV64 and "v" in features:
        features |= _lengths(8 * vector_bytes())
    if TILES in features and not may_use_tiles():
        features = frozenset(name for name in features if TILES not in closure(arch, frozenset((name,))))
    processors = os.sched_getaffinity(0)
    cpu, caches = _cpu(arch, described, features), dict(_caches(root, min(processors)))
    called = (described.get(field) for field in ("model name", "uarch", "cpu part"))
    return Host(arch, cpu, features, caches, len(processors), next(filter(None, called), cpu))


def _first_processor(text: str) -> dict[str, str]:
    """The fields of the first processor, with lower-case names."""
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


# The kernel's names of features where they are not LLVM's.
_LINUX_TO_LLVM = {
    Architecture.X86_64: {
        "lahf_lm": "sahf",
        "abm": "lzcnt",
        "bmi1": "bmi",
        "pni": "sse3",
        "sse4_1": "sse4.1",
        "sse4_2": "sse4.2",
        "avx_vnni": "avxvnni",
        "avx_vnni_int8": "avxvnniint8",
        "avx_ifma": "avxifma",
        "avx_ne_convert": "avxneconvert",
        "avx512_vnni": "avx512vnni",
        "avx512_vbmi2": "avx512vbmi2",
        "avx512_bitalg": "avx512bitalg",
        "avx512_vpopcntdq": "avx512vpopcntdq",
        "avx512_vp2intersect": "avx512vp2intersect",
        "avx512_bf16": "avx512bf16",
        "avx512_fp16": "avx512fp16",
        "amx_tile": "amx-tile",
        "amx_int8": "amx-int8",
        "amx_bf16": "amx-bf16",
        "amx_fp16": "amx-fp16",
    },
    Architecture.AARCH64: {
        "atomics": "lse",
        "asimdrdm": "rdm",
        "lrcpc": "rcpc",
        "asimdhp": "fullfp16",
        "asimdfhm": "fp16fml",
        "asimddp": "dotprod",
    },
    Architecture.RISCV64: {},
    Architecture.WASM32: {},
    Architecture.WASM64: {},
}
_NEVER = frozenset(("sme",))  # needs a mode before it may be used
TILES = "amx-tile"
"""The feature that a process must ask the kernel for."""


def _features(arch: Architecture, described: dict[str, str]) -> frozenset[str]:
    """The features that the kernel reports, less those whose implied ones it does not report."""
    match arch:
        case Architecture.X86_64:
            words = described.get("flags", "").split()
        case Architecture.AARCH64:
            words = described.get("features", "").split()
        case Architecture.RISCV64:
            first, *rest = described.get("isa", "rv64imafdc").lower().split("_")
            words = [*first.removeprefix("rv64").replace("g", "imafd"), *rest]
        case Architecture.WASM32 | Architecture.WASM64:
            words = []
    names = {_LINUX_TO_LLVM[arch].get(word, word) for word in words} & FEATURES[arch].keys()
    return frozenset(n for n in names if (needs := closure(arch, frozenset((n,)))) <= names and not needs & _NEVER)


def _lengths(bits: int) -> frozenset[str]:
    """The features that say how long RISC-V's vectors are at least."""
    return frozenset(f"zvl{least}b" for least in (256, 512) if bits >= least)


def _cpu(arch: Architecture, described: dict[str, str], features: frozenset[str]) -> str:
    match arch:
        case Architecture.X86_64:
            return _x86_cpu(described, features)
        case Architecture.AARCH64:
            part = (_number(described.get("cpu implementer")), _number(described.get("cpu part")))
            return _ARM_PARTS.get(part, BASELINE[arch])
        case Architecture.RISCV64:
            return _RISCV_CORES.get(described.get("uarch", ""), BASELINE[arch])
        case Architecture.WASM32 | Architecture.WASM64:
            return BASELINE[arch]


# (implementer, part), from the "main ID register" of the cores' manuals.
_ARM_PARTS = {
    (0x41, 0xD03): "cortex-a53",
    (0x41, 0xD05): "cortex-a55",
    (0x41, 0xD07): "cortex-a57",
    (0x41, 0xD08): "cortex-a72",
    (0x41, 0xD0B): "cortex-a76",
    (0x41, 0xD41): "cortex-a78",
    (0x41, 0xD44): "cortex-x1",
    (0x41, 0xD0C): "neoverse-n1",
    (0x41, 0xD40): "neoverse-v1",
    (0x41, 0xD49): "neoverse-n2",
    (0x41, 0xD4F): "neoverse-v2",
    (0x61, 0x022): "apple-m1",
    (0x61, 0x023): "apple-m1",
    (0x61, 0x032): "apple-m2",
    (0x61, 0x033): "apple-m2",
}
_RISCV_CORES = {"sifive,u74-mc": "sifive-u74", "sifive,bullet0": "sifive-u74", "spacemit,x60": "spacemit-x60"}
_INTEL_MODELS = {
    "haswell": (0x3C, 0x3F, 0x45, 0x46),
    "broadwell": (0x3D, 0x47, 0x4F, 0x56),
    "skylake": (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6),
    "icelake-client": (0x7D, 0x7E),
    "icelake-server": (0x6A, 0x6C),
    "tigerlake": (0x8C, 0x8D),
    "rocketlake": (0xA7,),
    "alderlake": (0x97, 0x9A, 0xB7, 0xBA, 0xBF),
    "sapphirerapids": (0x8F,),
    "emeraldrapids": (0xCF,),
    "graniterapids": (0xAD, 0xAE),
}


def _x86_cpu(described: dict[str, str], features: frozenset[str]) -> str:
    vendor, family, model = (
        described.get("vendor_id"),
        _number(described.get("cpu family")),
        _number(described.get("model")),
    )
    if vendor == "AuthenticAMD":
        name = _amd_cpu(family, model)
    elif vendor == "GenuineIntel" and family >= 6:
        name = _intel_cpu(model if family == 6 else -1, features)
    else:
        name = None
    return name or _generic_x86(features)


def _amd_cpu(family: int, model: int) -> str | None:
    match family:
        case 0x17:
            return "znver1" if model < 0x30 else "znver2"
        case 0x19:
            return "znver4" if 0x10 <= model < 0x20 or 0x60 <= model < 0xB0 else "znver3"
        case 0x1A:
            return "znver5"
        case _:
            return "znver5" if family > 0x1A else None


def _intel_cpu(model: int, features: frozenset[str]) -> str | None:
    named = _intel_named(model, features)
    vectors = frozenset(name for name in features if TILES not in closure(Architecture.X86_64, frozenset((name,))))
    # A hypervisor may state another model than the processor's: its features do not lie.
    if named and vectors <= features_of(Architecture.X86_64, named):
        return named
    return _intel_relative(features) or named


def _intel_named(model: int, features: frozenset[str]) -> str | None:
    if model == 0x55:  # one model number for three generations
        return (
            "cooperlake"
            if "avx512bf16" in features
            else "cascadelake"
            if "avx512vnni" in features
            else "skylake-avx512"
        )
    return next((name for name, models in _INTEL_MODELS.items() if model in models), None)


def _intel_relative(features: frozenset[str]) -> str | None:
    """The newest processor with vectors of the same width, for one that the list does not have."""
    known = {"avx512fp16": "graniterapids", "avx512f": "icelake-server", "avxvnni": "alderlake", "avx2": "skylake"}
    return next((name for feature, name in known.items() if feature in features), None)


def _generic_x86(features: frozenset[str]) -> str:
    levels = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
    return next((cpu for cpu in levels if features_of(Architecture.X86_64, cpu) <= features), "x86-64")


@cache  # each compilation asks, and reading these files takes a millisecond
def _caches(root: Path, processor: int) -> tuple[tuple[int, int], ...]:
    """Levels and bytes of the data caches that ``processor`` uses."""
    found: dict[int, int] = {}
    for entry in _entries(root / f"sys/devices/system/cpu/cpu{processor}/cache", "index"):
        level, size = _number(text_of(entry / "level")), parse_size(text_of(entry / "size"))
        if size and level > 0 and text_of(entry / "type") in ("Data", "Unified"):
            found[level] = size
    return tuple(found.items())


def _entries(folder: Path, prefix: str) -> list[Path]:
    """Paths in ``folder`` whose names start so; none if it can't be listed."""
    try:
        return sorted(folder / name for name in os.listdir(folder) if name.startswith(prefix))
    except OSError:
        return []


def _number(text: str | None) -> int:
    """The number that ``text`` starts with, decimal or hexadecimal; -1 if none."""
    match = re.match(r"0[xX][0-9a-fA-F]+|[0-9]+", text or "")
    return int(match[0], 0 if match[0][:2].lower() == "0x" else 10) if match else -1
