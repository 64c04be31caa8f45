"""The C functions that an image may import: a closed list. The loader refuses others."""

import ctypes
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

_MEMORY = ("memcpy", "memmove", "memset", "memcmp", "bcmp")
_SYSTEM = ("syscall", "clock_gettime")
# LLVM turns some intrinsics into these on processors without the instruction.
_MATH = tuple(
    f"{name}{suffix}"
    for name in ("ceil", "floor", "trunc", "rint", "nearbyint", "round", "roundeven", "fma", "fmod", "sqrt",
                 "exp", "exp2", "log", "log2", "log10", "pow", "sin", "cos", "tan", "tanh", "ldexp", "fmin", "fmax")
    for suffix in ("", "f")
)  # fmt: skip
_ALLOWED = frozenset((*_MEMORY, *_SYSTEM, *_MATH))


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    """The process itself, and the C math library for a Python without it."""
    found = [ctypes.CDLL(None)]
    with suppress(OSError):  # not glibc: libm is then part of libc
        found.append(ctypes.CDLL("libm.so.6"))
    return tuple(found)


@cache
def _address(name: str) -> int | None:
    for library in _libraries():
        function = getattr(library, name, None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value
    return None


def process_imports(names: Iterable[str]) -> dict[str, int]:
    """Addresses of those of ``names`` that are on the list and available in the process."""
    found = {name: _address(name) for name in names if name in _ALLOWED}
    return {name: address for name, address in found.items() if address is not None}
