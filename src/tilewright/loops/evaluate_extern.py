"""Evaluates externs with the interpreter: the te evaluator uses it for operators written as loops."""

from collections.abc import Sequence
from dataclasses import replace

from tilewright.base.arrays import Array
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.tensor.build import placeholder
from tilewright.tensor.ir import Extern, Tensor


def evaluate_extern(op: Extern, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of ``op``, given the arrays of its inputs. Runs element by element, so it is for small arrays.

    Raises ``OutOfBounds`` or ``BadProgram`` if the body breaks a rule of loop IR.
    """
    inputs = tuple(placeholder(t.shape, t.dtype, t.name) for t in op.inputs)
    alone = replace(op, inputs=inputs)
    results = zip(op.output_names, op.output_dtypes, op.output_shapes, strict=True)
    outputs = [Tensor(alone, position, *result) for position, result in enumerate(results)]
    program = lower(outputs, "extern", inputs=inputs)
    found = interpret(program, {p.name: array for p, array in zip(program.inputs, arrays, strict=True)})
    return [found[result.name] for result in program.results]
