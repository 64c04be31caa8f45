"""Context features of the loops around a program's innermost work, outermost loop first, for models over loops."""

import numpy as np

from tilewright.loops.program import Program
from tilewright.tune.features.curve import curve_buffers
from tilewright.tune.features.itervar import itervar_columns, itervar_features
from tilewright.tune.features.quantities import NO_FACTORS, Extractor, Floats

MOST_LOOPS = 24
"""Maximum number of loops around one piece of work."""


def loop_contexts(program: Program) -> Floats:
    """(loops, numbers) of a scheduled program; the numbers are those of ``itervar``, and of the same buffers for all
    schedules of a program. Raises ``Unsupported`` as ``Extractor.of`` does."""
    extractor = Extractor.of(program)
    structure = extractor.structure
    values: dict[str, list[float]] = {}
    for column, value in zip(itervar_columns(structure), itervar_features(extractor, NO_FACTORS)[0], strict=True):
        values.setdefault(column.rpartition(".")[0], []).append(value)
    buffers = curve_buffers(structure)
    rows: list[list[float]] = []
    for step in buffers[0].steps:
        loop = str(structure.loops[step.loop].var)
        of_buffers = (values.get(f"{loop}.{buffer.name}", []) for buffer in buffers)
        rows.append([*values[loop], *(value for of_buffer in of_buffers for value in of_buffer)])
    return np.array(rows)
