"""Mathematical functions on vectors, as target-independent LLVM IR.

LLVM computes ``exp``, ``tanh`` and most others of a vector by one library call for each lane. Here they are polynomials
in straight-line code on any number of lanes, so they vectorize, fuse into the kernels around them, and need no library.

In: an emitter of instructions, a function, operand names, f32 or f64, a number of lanes. Out: the name of the result::

    y = emit_math(emitter, MathFunction.TANH, ["%x"], f32, 16)

``notation`` writes instructions by Python operators; ``tables`` has the coefficients; ``exponential``, ``logarithm``,
``power`` and ``trigonometric`` are the functions; ``functions`` finds them by name. Add new functions there.
"""

from tilewright.backend.cpu.vecmath.functions import MathFunction, emit_math
from tilewright.backend.cpu.vecmath.notation import Emitter

__all__ = ["Emitter", "MathFunction", "emit_math"]
