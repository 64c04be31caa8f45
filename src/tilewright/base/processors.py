"""Tables of processors: their features, implied features, vector widths and pipelines.

Names are LLVM's. A feature is listed here if generated code may use it; a processor, if LLVM 20 and later know it (LLVM
aborts on an unknown one, so ``Target`` refuses others). To add a processor: a line in ``PROCESSORS``, and one in
``_CORES`` if its pipelines differ from others of its features. Pipeline figures: the vendors' optimization guides and
uops.info, for 32-bit floats at the widest vector.
"""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache


class Architecture(Enum):
    """Instruction sets; the values are LLVM's names, and Linux's."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"
    RISCV64 = "riscv64"
    WASM32 = "wasm32"
    WASM64 = "wasm64"


class System(Enum):
    """Operating systems that code is made for."""

    LINUX = "linux"
    MACOS = "macos"
    WINDOWS = "windows"


WASM = (Architecture.WASM32, Architecture.WASM64)
"""WebAssembly."""


SYSTEMS = {Architecture.AARCH64: (System.LINUX, System.MACOS), Architecture.X86_64: (System.LINUX, System.WINDOWS)}
"""Those of each architecture; of others, only the first one."""


def platform_of(arch: Architecture, system: System) -> str:
    """The text of targets for an architecture and a system: the architecture alone for Linux."""
    return arch.value if system is System.LINUX else f"{arch.value}-{system.value}"


@dataclass(frozen=True, slots=True)
class Pipelines:
    """What one core does: width and number of vector registers, vector FMAs and loads per cycle."""

    vector_bits: int
    vector_registers: int
    fma_per_cycle: int
    loads_per_cycle: int


def _features(text: str) -> dict[str, tuple[str, ...]]:
    """``name`` or ``name:implied+implied``, separated by spaces."""
    pairs = (word.partition(":") for word in text.split())
    return {name: tuple(implied.split("+")) if implied else () for name, _, implied in pairs}


# What each feature implies directly; an implied feature stands before those that imply it.
FEATURES: dict[Architecture, dict[str, tuple[str, ...]]] = {
    Architecture.X86_64: _features(
        "cx16 sahf popcnt lzcnt bmi bmi2 movbe sse3 ssse3:sse3 sse4.1:ssse3 sse4.2:sse4.1 "
        "avx:sse4.2 f16c:avx fma:avx avx2:avx avxvnni:avx2 avxvnniint8:avx2 avxvnniint16:avx2 avxifma:avx2 "
        "avxneconvert:avx2 gfni:sse4.2 vaes:avx2 vpclmulqdq:avx "
        "avx512f:avx2+fma+f16c avx512cd:avx512f avx512dq:avx512f avx512vl:avx512f avx512bw:avx512f "
        "avx512vnni:avx512f avx512ifma:avx512f avx512vpopcntdq:avx512f avx512vp2intersect:avx512f "
        "avx512vbmi:avx512bw avx512vbmi2:avx512bw avx512bitalg:avx512bw avx512bf16:avx512bw "
        "avx512fp16:avx512bw+avx512dq+avx512vl "
        "avx10.1:avx512fp16+avx512bf16+avx512vnni+avx512ifma+avx512vpopcntdq+avx512vbmi2+avx512vbmi+avx512bitalg+"
        "avx512cd "
        "avx10.2:avx10.1 amx-tile amx-int8:amx-tile amx-bf16:amx-tile amx-fp16:amx-tile"
    ),
    Architecture.AARCH64: _features(
        "lse rdm rcpc fullfp16 fp16fml:fullfp16 dotprod bf16 i8mm sve:fullfp16 sve2:sve sme:bf16+fullfp16"
    ),
    Architecture.RISCV64: _features(
        "m a f d:f c zba zbb zbs zfhmin:f zfh:zfhmin v:d zvl256b:v zvl512b:zvl256b zvfh:v+zfhmin"
    ),
    **dict.fromkeys(
        (Architecture.WASM32, Architecture.WASM64),
        _features("sign-ext nontrapping-fptoint bulk-memory simd128 relaxed-simd:simd128 atomics:bulk-memory"),
    ),
}

_V2 = "cx16 sahf popcnt sse4.2"
_V3 = f"{_V2} lzcnt bmi bmi2 movbe fma f16c avx2"
_V4 = f"{_V3} avx512cd avx512dq avx512vl avx512bw"
_ZEN3 = f"{_V3} vaes vpclmulqdq"
_ICELAKE = f"{_V4} vaes vpclmulqdq gfni avx512vnni avx512ifma avx512vpopcntdq avx512vbmi avx512vbmi2 avx512bitalg"
_ZEN4 = f"{_ICELAKE} avx512bf16"
_SAPPHIRE = f"{_ICELAKE} avx512bf16 avx512fp16 avxvnni"
_ARMV82 = "lse rdm rcpc fullfp16 dotprod"
_RV64GC = "m a d c"
_WASM_SCALAR = "sign-ext nontrapping-fptoint bulk-memory"

# LLVM's processor names, oldest first, and their features, without implied ones. AMX is in no list: a process
# must ask the kernel for it first.
PROCESSORS: dict[Architecture, dict[str, str]] = {
    Architecture.X86_64: {
        "x86-64": "",
        "x86-64-v2": _V2,
        "x86-64-v3": _V3,
        "x86-64-v4": _V4,
        "nehalem": _V2,
        "sandybridge": f"{_V2} avx",
        "ivybridge": f"{_V2} f16c",
        "haswell": _V3,
        "broadwell": _V3,
        "skylake": _V3,
        "skylake-avx512": _V4,
        "cascadelake": f"{_V4} avx512vnni",
        "cooperlake": f"{_V4} avx512vnni avx512bf16",
        "icelake-client": _ICELAKE,
        "icelake-server": _ICELAKE,
        "tigerlake": f"{_ICELAKE} avx512vp2intersect",
        "rocketlake": _ICELAKE,
        "alderlake": f"{_V3} vaes vpclmulqdq gfni avxvnni",
        "sapphirerapids": _SAPPHIRE,
        "emeraldrapids": _SAPPHIRE,
        "graniterapids": _SAPPHIRE,
        "znver1": _V3,
        "znver2": _V3,
        "znver3": _ZEN3,
        "znver4": _ZEN4,
        "znver5": f"{_ZEN4} avxvnni avx512vp2intersect",
    },
    Architecture.AARCH64: {
        "generic": "",
        "cortex-a53": "",
        "cortex-a55": _ARMV82,
        "cortex-a57": "",
        "cortex-a72": "",
        "cortex-a76": _ARMV82,
        "cortex-a78": _ARMV82,
        "cortex-x1": _ARMV82,
        "neoverse-n1": _ARMV82,
        "neoverse-v1": f"{_ARMV82} fp16fml bf16 i8mm sve",
        "neoverse-n2": f"{_ARMV82} fp16fml bf16 i8mm sve2",
        "neoverse-v2": f"{_ARMV82} fp16fml bf16 i8mm sve2",
        "apple-m1": f"{_ARMV82} fp16fml",
        "apple-m2": f"{_ARMV82} fp16fml bf16 i8mm",
        "apple-m3": f"{_ARMV82} fp16fml bf16 i8mm",
    },
    Architecture.RISCV64: {
        "generic-rv64": _RV64GC,
        "sifive-u74": f"{_RV64GC} zba zbb",
        "sifive-p670": f"{_RV64GC} zba zbb zbs zfhmin v",
        "sifive-x280": f"{_RV64GC} zba zbb zfh zvl512b zvfh",
        "spacemit-x60": f"{_RV64GC} zba zbb zbs zfh zvl256b zvfh",
    },
    Architecture.WASM32: {
        "generic": f"{_WASM_SCALAR} simd128",  # WebAssembly 2.0
    },
    Architecture.WASM64: {
        "generic": f"{_WASM_SCALAR} simd128",  # the same with addresses of 64 bits
    },
}

BASELINE = {
    Architecture.X86_64: "x86-64",
    Architecture.AARCH64: "generic",
    Architecture.RISCV64: "generic-rv64",
    Architecture.WASM32: "generic",
    Architecture.WASM64: "generic",
}

# Feature levels that a target can be restricted to, lowest first.
LEVELS: dict[Architecture, dict[str, str]] = {
    Architecture.X86_64: {"sse2": "", "sse4.2": _V2, "avx2": _V3, "avx512": _V4},
    Architecture.AARCH64: {"neon": "", "dotprod": _ARMV82, "sve": f"{_ARMV82} fp16fml bf16 i8mm sve"},
    Architecture.RISCV64: {"scalar": _RV64GC, "v": f"{_RV64GC} zba zbb zbs zfhmin v"},
    Architecture.WASM32: {"scalar": _WASM_SCALAR, "simd128": f"{_WASM_SCALAR} simd128"},
    Architecture.WASM64: {"scalar": _WASM_SCALAR, "simd128": f"{_WASM_SCALAR} simd128"},
}

# FMAs and loads per cycle if not 2 and 2; the number after the slash: at vectors of that many bits only.
_CORES: dict[str, tuple[int, int]] = {
    "znver1/256": (1, 1),
    "znver4/512": (1, 1),
    "icelake-client/512": (1, 2),
    "tigerlake/512": (1, 2),
    "rocketlake/512": (1, 2),
    "alderlake/256": (2, 3),
    "cortex-a53/128": (1, 1),
    "cortex-a55/128": (1, 1),
    "cortex-a57/128": (1, 1),
    "cortex-a72/128": (1, 1),
    "cortex-x1/128": (4, 3),
    "neoverse-v1/128": (4, 3),
    "neoverse-v2/128": (4, 3),
    "apple-m1/128": (4, 3),
    "apple-m2/128": (4, 3),
    "apple-m3/128": (4, 3),
    "generic-rv64/64": (1, 1),
    "sifive-u74/64": (1, 1),
    "spacemit-x60/256": (1, 1),
    "sifive-x280/512": (1, 1),
}


@lru_cache(1024)
def closure(arch: Architecture, names: frozenset[str]) -> frozenset[str]:
    """``names`` and all features that they imply."""
    table, found, open_ = FEATURES[arch], set[str](), list(names)
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_.extend(table[name])
    return frozenset(found)


def without(arch: Architecture, names: frozenset[str], name: str) -> frozenset[str]:
    """``names`` less ``name`` and all features that imply it."""
    return frozenset(one for one in names if name not in closure(arch, frozenset((one,))))


def features_of(arch: Architecture, cpu: str) -> frozenset[str]:
    """All features of the processor ``cpu``. Raises ``KeyError`` for an unknown processor."""
    return closure(arch, frozenset(PROCESSORS[arch][cpu].split()))


def pipelines_of(arch: Architecture, cpu: str, features: frozenset[str]) -> Pipelines:
    """The pipelines of ``cpu``, restricted to code that uses ``features``."""
    bits, registers = _vectors(arch, features)
    fma, loads = _CORES.get(f"{cpu}/{bits}", (2, 2))
    if arch is Architecture.X86_64 and "fma" not in features:
        fma = 1  # a multiplication and an addition
    return Pipelines(bits, registers, fma, loads)


def _vectors(arch: Architecture, features: frozenset[str]) -> tuple[int, int]:
    """Bits of a vector register, and the number of registers. For scalable vectors, the guaranteed bits."""
    match arch:
        case Architecture.X86_64:
            wide = 512 if "avx512f" in features else 256 if "avx" in features else 128
            return wide, 32 if "avx512f" in features else 16
        case Architecture.AARCH64:
            return 128, 32
        case Architecture.RISCV64:
            if "v" not in features:
                return 64, 32
            return 512 if "zvl512b" in features else 256 if "zvl256b" in features else 128, 32
        case Architecture.WASM32 | Architecture.WASM64:
            return 128 if "simd128" in features else 64, 16  # engines run it on processors with as few
