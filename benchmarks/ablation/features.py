"""What the models of the ablation see of a candidate: the contexts of the loops around its products, and curves."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.loops.program import Program
from tilewright.tune.features import NO_FACTORS, Extractor, curve_features, loop_contexts

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """`contexts`: (loops, numbers), outermost loop first; `curves`: (numbers,)."""

    contexts: Floats
    curves: Floats


def seen(program: Program) -> Seen:
    """The features of a scheduled program."""
    return Seen(loop_contexts(program), curve_features(Extractor.of(program), NO_FACTORS)[0])


def stacked(contexts: list[Floats]) -> Floats:
    """(candidates, loops, numbers): a candidate with fewer loops has NaN for the outermost ones."""
    loops = max(map(len, contexts))
    result = np.full((len(contexts), loops, contexts[0].shape[1]), np.nan)
    for place, context in enumerate(contexts):
        result[place, loops - len(context) :] = context
    return result
