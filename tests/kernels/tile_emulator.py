"""The matrix unit of x86 in Python: code that uses it runs natively but for these instructions, on any processor.

LLVM compiles the text for the processor at hand, with calls of these functions in place of the instructions. They do
what Intel's manual says (volume 2: ``LDTILECFG``, ``TILELOADD``, ``TILESTORED``, ``TDPBF16PS``, ``TDPBUSD``,
``TDPBSSD``), and note what would be a fault there, and each access outside of the arrays given.
"""

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tilewright.runtime import abi

Array = NDArray[np.generic]

_ROWS, _ROW_BYTES, _TILES, _CONFIGURATION = 16, 64, 8, 64
_TYPES = {
    "ldtilecfg": (ctypes.c_void_p,),
    "tilerelease": (),
    "tilezero": (ctypes.c_int8,),
    "tileloadd64": (ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64),
    "tilestored64": (ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64),
    "tdpbf16ps": (ctypes.c_int8,) * 3,
    "tdpbusd": (ctypes.c_int8,) * 3,
    "tdpbssd": (ctypes.c_int8,) * 3,
}
_PRODUCTS = {"tdpbf16ps": (ml_dtypes.bfloat16, ml_dtypes.bfloat16), "tdpbusd": ("u1", "i1"), "tdpbssd": ("i1", "i1")}


_NEVER_ENDS = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int64)(lambda context, worker: False)
"""In place of the runtime's question of whether a call is to end."""


@dataclass(slots=True)
class TileEmulator:
    """The state of the unit, and what went wrong."""

    faults: list[str] = field(default_factory=list[str])
    log: list[str] = field(default_factory=list[str])
    """The instructions in order."""
    heights: list[int] = field(default_factory=list[int])
    """The rows that each store wrote."""
    _shapes: list[tuple[int, int]] | None = None
    """Rows, and bytes of a row, of each register; None: not configured."""
    _tiles: dict[int, NDArray[np.uint8]] = field(default_factory=dict[int, NDArray[np.uint8]])
    _readable: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _writable: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def allow(self, read: Sequence[Array], written: Sequence[Array]) -> None:
        """The arrays that code may access, besides its own stack. Others count as faults."""
        self._writable = [_stack(), *((a.ctypes.data, a.ctypes.data + a.nbytes) for a in written)]
        self._readable = [*self._writable, *((a.ctypes.data, a.ctypes.data + a.nbytes) for a in read)]

    def check(self) -> None:
        """Fails if there was a fault, or the unit is still configured."""
        assert not self.faults, self.faults[:3]
        assert self._shapes is None, "the registers are not released"

    # Instructions -----------------------------------------------------------------------------------------------------

    def ldtilecfg(self, at: int) -> None:
        table = ctypes.string_at(at, _CONFIGURATION)
        widths, heights = np.frombuffer(table, "<u2")[8:16], np.frombuffer(table, "u1")[48:56]
        shapes = [(int(h), int(w)) for h, w in zip(heights, widths, strict=True)]
        self._require(table[0] == 1 and not any(table[1:16]), "the palette is 1, and nothing is reserved")
        self._require(not any(table[32:48]) and not any(table[56:]), "what is reserved is 0")
        for height, width in shapes:
            self._require((height == 0) is (width == 0), "rows and bytes are 0 together")
            self._require(height <= _ROWS and width <= _ROW_BYTES, f"a tile of {height} x {width} bytes")
        self._shapes = shapes
        self._tiles = {n: np.zeros(shape, np.uint8) for n, shape in enumerate(shapes)}

    def tilerelease(self) -> None:
        self._shapes = None

    def tilezero(self, tile: int) -> None:
        self._tile(tile)[...] = 0

    def tileloadd64(self, tile: int, at: int, stride: int) -> None:
        for row, numbers in enumerate(self._tile(tile)):
            start = at + row * stride
            if self._allowed(self._readable, start, len(numbers)):
                numbers[:] = np.frombuffer(ctypes.string_at(start, len(numbers)), np.uint8)

    def tilestored64(self, tile: int, at: int, stride: int) -> None:
        numbers = self._tile(tile)
        self.heights.append(len(numbers))
        for row, one in enumerate(numbers):
            if self._allowed(self._writable, at + row * stride, len(one)):
                ctypes.memmove(at + row * stride, one.tobytes(), len(one))

    def product(self, name: str, c: int, a: int, b: int) -> None:
        sums, left, right = self._tile(c), self._tile(a), self._tile(b)
        are_alike = sums.shape == (left.shape[0], right.shape[1]) and left.shape[1] == 4 * right.shape[0]
        self._require(len({a, b, c}) == 3 and are_alike, f"{name} of {left.shape} by {right.shape} to {sums.shape}")
        if not are_alike:
            return
        of_a, of_b = _PRODUCTS[name]
        wide, kind = (np.float64, np.float32) if name == "tdpbf16ps" else (np.int64, np.int32)
        group = 4 // np.dtype(of_a).itemsize
        x = left.view(of_a).astype(wide).reshape(left.shape[0], -1, group)
        y = right.view(of_b).astype(wide).reshape(right.shape[0], -1, group)
        sums.view(kind)[...] = (sums.view(kind).astype(wide) + np.einsum("ikg,kjg->ij", x, y)).astype(kind)

    # Checks -----------------------------------------------------------------------------------------------------------

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            self.faults.append(what)

    def _tile(self, number: int) -> NDArray[np.uint8]:
        if self._shapes is None or self._shapes[number] == (0, 0):
            self.faults.append(f"register {number} is not configured")
            return np.zeros((0, 0), np.uint8)
        return self._tiles[number]

    def _allowed(self, ranges: Sequence[tuple[int, int]], start: int, count: int) -> bool:
        is_inside = any(low <= start and start + count <= high for low, high in ranges)
        self._require(is_inside, "an access outside of the arrays")
        return is_inside


def _stack() -> tuple[int, int]:
    """The addresses of the main thread's stack."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        (line,) = (line for line in maps if line.rstrip().endswith("[stack]"))
    low, high = line.split()[0].split("-")
    return int(low, 16), int(high, 16)


class Emulated:
    """LLVM IR that uses the unit, compiled for the processor at hand. ``unit``: what its instructions act on."""

    def __init__(self, text: str) -> None:
        self.unit = TileEmulator()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._kept = [self._install(name, kinds) for name, kinds in _TYPES.items()]
        llvm.add_symbol("tw_check", ctypes.cast(_NEVER_ENDS, ctypes.c_void_p).value or 0)
        moved = re.sub(r"@llvm\.x86\.(\w+)\(", lambda found: f"@emulated_{found[1]}(", text)
        module = llvm.parse_assembly(re.sub(r"define (internal|hidden) ", "define ", moved))
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()

    def _install(self, name: str, kinds: Sequence[type]) -> object:
        unit = self.unit

        def call(*operands: int) -> None:
            unit.log.append(name)
            if name in _PRODUCTS:
                unit.product(name, *operands)
            else:
                getattr(unit, name)(*operands)

        function = ctypes.CFUNCTYPE(None, *kinds)(call)
        llvm.add_symbol(f"emulated_{name}", ctypes.cast(function, ctypes.c_void_p).value or 0)
        return function

    def run(self, kernel: str, arrays: Sequence[Array], dims: Sequence[int]) -> None:
        """Call a kernel without parallel loops and workspace on the arrays of its parameters, and its run-time extents;
        no other memory may be accessed, and at the end the unit has to be free."""
        buffers, extents = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)), np.array(dims, np.int64)
        ticks, context = np.zeros(1, np.int64), np.zeros(abi.CONTEXT_BYTES, np.uint8)
        context[abi.CONTEXT_TICKS :][:8] = np.frombuffer(ticks.ctypes.data.to_bytes(8, "little"), np.uint8)
        self.unit.allow(arrays[:-1], arrays[-1:])
        addresses = (ctypes.addressof(buffers), extents.ctypes.data, None, context.ctypes.data)
        self.function(kernel, *[ctypes.c_void_p] * 4)(*addresses)
        self.unit.check()

    def function(self, name: str, *kinds: type) -> Callable[..., None]:
        """A function of the text, which returns nothing."""
        return ctypes.CFUNCTYPE(None, *kinds)(self._engine.get_function_address(name))
