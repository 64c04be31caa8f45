"""One function of `tilewright.backend.cpu.vecmath` as a native loop over arrays, for tests and benchmarks."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.cpu.vecmath import MathFunction, emit_math
from tilewright.base.dtypes import DType, f32
from tilewright.runtime.loader import LoadedImage, load_image
from tilewright.target.target import Target

Floats = NDArray[np.floating]
TWO_OPERANDS = frozenset({MathFunction.POW, MathFunction.ATAN2})


class _Lines:
    """Collects instructions and declarations."""

    def __init__(self) -> None:
        self.instructions: list[str] = []
        self.declarations: dict[str, None] = {}

    def emit(self, text: str) -> str:
        name = f"%t{len(self.instructions)}"
        self.instructions.append(f"  {name} = {text}")
        return name

    def declare(self, text: str) -> None:
        self.declarations[text] = None


def kernel_text(function: MathFunction, dtype: DType, lanes: int) -> str:
    """LLVM IR of `void k(ptr in0, ..., ptr out, i64 n)`: n elements, a multiple of the lanes and not 0."""
    lines = _Lines()
    scalar = "float" if dtype == f32 else "double"
    vector = scalar if lanes == 1 else f"<{lanes} x {scalar}>"
    inputs = range(2 if function in TWO_OPERANDS else 1)
    result = emit_math(lines, function, [f"%x{i}" for i in inputs], dtype, lanes)
    parameters = ", ".join([*(f"ptr %in{i}" for i in inputs), "ptr noalias %out", "i64 %n"])
    body = [
        f"define void @k({parameters}) {{",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *(f"  %p{i} = getelementptr {scalar}, ptr %in{i}, i64 %i" for i in inputs),
        *(f"  %x{i} = load {vector}, ptr %p{i}, align {dtype.itemsize}" for i in inputs),
        *lines.instructions,
        f"  %q = getelementptr {scalar}, ptr %out, i64 %i",
        f"  store {vector} {result}, ptr %q, align {dtype.itemsize}",
        f"  %next = add i64 %i, {lanes}",
        "  %more = icmp slt i64 %next, %n",
        "  br i1 %more, label %loop, label %exit",
        "exit:",
        "  ret void",
        "}",
    ]
    return "\n".join([*lines.declarations, *body, ""])


@dataclass(frozen=True)
class MathKernel:
    """The compiled loop."""

    image: LoadedImage
    dtype: DType
    lanes: int
    operands: int

    def bound(self, inputs: Sequence[Floats], out: Floats) -> Callable[[], object]:
        """A call on these arrays, which must live as long; without the time that looking at them takes.

        Raises ValueError for arrays that the loop can't do.
        """
        for array in (*inputs, out):
            if array.dtype != self.dtype.numpy or array.size != out.size or not array.flags.c_contiguous:
                raise ValueError(f"needs contiguous {self.dtype} arrays of one size")
        if len(inputs) != self.operands or out.size == 0 or out.size % self.lanes:
            raise ValueError(f"needs {self.operands} arrays of a positive multiple of {self.lanes} elements")
        pointers = [ctypes.c_void_p] * (len(inputs) + 1)
        function = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(self.image.symbol("k"))
        arguments = [array.ctypes.data for array in (*inputs, out)]
        size = out.size
        return lambda: function(*arguments, size)

    def __call__(self, *inputs: Floats) -> Floats:
        """The function of the arrays."""
        out = np.empty_like(inputs[0])
        self.bound(inputs, out)()
        return out


def compile_kernel(function: MathFunction, dtype: DType, lanes: int, target: Target) -> MathKernel:
    """Native code for `function`, to run on this machine."""
    image = load_image([compile_object(kernel_text(function, dtype, lanes), target)])
    return MathKernel(image, dtype, lanes, 2 if function in TWO_OPERANDS else 1)
