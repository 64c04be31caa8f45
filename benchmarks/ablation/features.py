"""What the models of the ablation see of a candidate: the contexts of the loops around its products, and curves."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.loops.program import Program
from tilewright.tune.features import (
    NO_FACTORS,
    Extractor,
    curve_buffers,
    curve_features,
    itervar_columns,
    itervar_features,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """`contexts`: (loops, numbers), outermost loop first; `curves`: (numbers,)."""

    contexts: Floats
    curves: Floats


def seen(program: Program) -> Seen:
    """The features of a scheduled program."""
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
    return Seen(np.array(rows), curve_features(extractor, NO_FACTORS)[0])


def stacked(contexts: list[Floats]) -> Floats:
    """(candidates, loops, numbers): a candidate with fewer loops has NaN for the outermost ones."""
    loops = max(map(len, contexts))
    result = np.full((len(contexts), loops, contexts[0].shape[1]), np.nan)
    for place, context in enumerate(contexts):
        result[place, loops - len(context) :] = context
    return result
