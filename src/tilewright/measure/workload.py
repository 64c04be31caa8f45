"""Inputs (from a seed) and expected results (of the naive program) for a candidate."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilewright.base.arrays import Array, random_array
from tilewright.base.dtypes import DType, Kind
from tilewright.base.errors import MeasureError, TilewrightError
from tilewright.cost.work import count
from tilewright.kernels.packing import pack
from tilewright.loops.interpreter import interpret
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.measure.build import RefusedError, image_of, shape_of
from tilewright.measure.difference import Reference
from tilewright.measure.exact import with_exact_sums
from tilewright.measure.verdicts import Phase, Verdict
from tilewright.runtime.memory import aligned_array, aligned_copy
from tilewright.schedule.trace import Trace
from tilewright.schedule.transform_layout import layouts_of
from tilewright.target.target import Target

INTERPRETED_OPERATIONS = 20_000
"""Maximum operations and bytes for the interpreter, which shares no code with code generation."""

_TOLERANCES = {DType(Kind.FLOAT, 64): 1e-9, DType(Kind.FLOAT, 32): 1e-4, DType(Kind.FLOAT, 16): 1e-2}
_BFLOAT_TOLERANCE = 5e-2


@dataclass(frozen=True, slots=True)
class Workload:
    """A naive program with inputs and their correct results, by name; arrays are read-only."""

    program: Program
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    references: Mapping[str, Reference]
    """``expected``, prepared for comparison."""

    def stored_for(self, trace: str) -> "Workload":
        """The same with constants in the layouts that the schedule ``trace`` gives them. Raises ``RefusedError``."""
        constants = [buffer.name for buffer in self.program.inputs if self.program.is_constant(buffer.name)]
        if not constants:
            return self
        try:
            layouts = layouts_of(Trace.from_json(trace), constants)
            packed = {name: pack(self.inputs[name], by, aligned_array) for name, by in layouts.items()}
        except TilewrightError as error:
            raise RefusedError(Verdict.BUILD_ERROR, Phase.BUILD, str(error)) from error
        for array in packed.values():
            array.flags.writeable = False
        return replace(self, inputs={**self.inputs, **packed}) if packed else self

    def fault(self, results: Mapping[str, Array]) -> str:
        """The differences of ``results`` from the expected ones; empty if they agree."""
        for buffer in self.program.results:
            found, wanted = results[buffer.name], self.expected[buffer.name]
            worst = self.references[buffer.name].difference(found).worst
            if worst > tolerance(buffer.dtype):
                return f"{buffer.name} differs from the reference by {worst:.1e} ({_place(found, wanted)})"
        return ""


def load(text: str, seed: int, target: Target) -> Workload:
    """The workload of a program. Raises ``MeasureError`` if it has no reference, which is no fault of a candidate."""
    try:
        program = parse_program(text)
        verify(program)
        for buffer in program.params:
            shape_of(buffer)
        inputs = {name: aligned_copy(array) for name, array in draw(program, seed).items()}
        expected = _reference(program, inputs, target)
    except TilewrightError as error:
        raise MeasureError(f"the program can't be run as a reference: {error}") from error
    except MemoryError as error:
        raise MeasureError("the program and its reference need more memory than a measurement may have") from error
    for array in (*inputs.values(), *expected.values()):
        array.flags.writeable = False
    references = {name: Reference.of(array) for name, array in expected.items()}
    return Workload(program, inputs, expected, references)


def draw(program: Program, seed: int) -> dict[str, Array]:
    """Inputs by name (see ``random_array``)."""
    generator = np.random.default_rng(seed)
    return {buffer.name: random_array(buffer.dtype, shape_of(buffer), generator) for buffer in program.inputs}


def tolerance(dtype: DType) -> float:
    """The largest difference due to reordered sums; integers are exact."""
    if dtype.kind is Kind.BFLOAT:
        return _BFLOAT_TOLERANCE
    return _TOLERANCES.get(dtype, 0.0)


def _reference(program: Program, inputs: Mapping[str, Array], target: Target) -> dict[str, Array]:
    """The results of the naive program: interpreted, or compiled with bounds checks, and its long sums exact."""
    work = count(program, {})
    if work is not None and work.operations + work.bytes <= INTERPRETED_OPERATIONS:
        return interpret(program, inputs)
    results = image_of(with_exact_sums(program), target, checked=True).executable(1).run(inputs)
    return {buffer.name: result for buffer, result in zip(program.results, results, strict=True)}


def _place(found: Array, wanted: Array) -> str:
    """The element with the largest difference."""
    apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    at = np.unravel_index(int(np.nanargmax(apart)) if np.isfinite(apart).any() else 0, apart.shape)
    where = ", ".join(map(str, at))
    return f"element [{where}] is {found[at]}, not {wanted[at]}"
