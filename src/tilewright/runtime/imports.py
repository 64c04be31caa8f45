"""The C functions that an image may import: a closed list. The loader refuses others."""

from collections.abc import Iterable

from tilewright.runtime.system.api import OperatingSystem

_MEMORY = ("memcpy", "memmove", "memset", "memcmp", "bcmp")
# LLVM turns some intrinsics into these on processors without the instruction.
_MATH = tuple(
    f"{name}{suffix}"
    for name in ("ceil", "floor", "trunc", "rint", "nearbyint", "round", "roundeven", "fma", "fmod", "sqrt",
                 "exp", "exp2", "log", "log2", "log10", "pow", "sin", "cos", "tan", "tanh", "ldexp", "fmin", "fmax")
    for suffix in ("", "f")
)  # fmt: skip
_ALLOWED = frozenset((*_MEMORY, *_MATH))


def process_imports(names: Iterable[str], system: OperatingSystem) -> dict[str, int]:
    """Addresses of those of ``names`` that are on the list, or the system's, and available in the process."""
    found = {name: system.function(name) for name in names if name in _ALLOWED or name in system.imports}
    return {name: address for name, address in found.items() if address is not None}
