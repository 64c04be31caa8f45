"""Iteration-variable features: the context of each loop (Chen et al., NeurIPS 2018, and AutoTVM's ``itervar``).

For each loop, by first appearance: length, nest level, the product of the lengths from the outside up to it
(``topdown``) and from it inwards (``bottomup``), its kind as one of eleven, operations on floats directly in it, and
for each access inside it (sorted by buffer, then by occurrence) stride, mod, count, reuse, thread_count and
thread_reuse. The number of features depends on the structure, so a model can't mix structures. Options not visible in
loops are appended by ``np.hstack`` with their ``knob_features``, as in AutoTVM.
"""

from collections.abc import Callable

import numpy as np

from tilewright.loops.ir import LoopKind
from tilewright.tune.features.nest import Structure
from tilewright.tune.features.quantities import Extractor, Factors, Floats, Quantities, TouchQuantities

ANNOTATIONS = (
    LoopKind.BLOCK_X,
    LoopKind.BLOCK_Y,
    LoopKind.BLOCK_Z,
    LoopKind.THREAD_X,
    LoopKind.THREAD_Y,
    LoopKind.THREAD_Z,
    LoopKind.UNROLLED,
    LoopKind.VECTORIZED,
    LoopKind.PARALLEL,
    LoopKind.SERIAL,
    LoopKind.VIRTUAL_THREAD,
)
_OF_LOOP = ("length", "level", "topdown", "bottomup", *(kind.value for kind in ANNOTATIONS), "add", "mul", "div")
_OF_TOUCH = ("stride", "mod", "count", "reuse", "thread_count", "thread_reuse")


def itervar_columns(structure: Structure) -> tuple[str, ...]:
    """The names of the features: ``k.length`` and so on, ``k.A_0.stride`` of an access."""
    columns: list[str] = []
    for position, loop in enumerate(structure.loops):
        columns.extend(f"{loop.var}.{name}" for name in _OF_LOOP)
        touches = (structure.touches[touch].name for touch, _ in structure.touching(position))
        columns.extend(f"{loop.var}.{touch}.{name}" for touch in touches for name in _OF_TOUCH)
    return tuple(columns)


def itervar_features(extractor: Extractor, factors: Factors, *, logarithms: bool = True) -> Floats:
    """The features of all candidates, (candidates, ``itervar_columns``).

    Numbers ``x`` other than the nest level and the kind are given as ``sign(x) * log2(|x| + 1)``, or unchanged without
    ``logarithms``. Raises ``BadInput`` if ``factors`` lacks a positive number for a symbol.
    """
    structure = extractor.structure
    width = len(structure.loops) * len(_OF_LOOP) + sum(len(touch.steps) for touch in structure.touches) * len(_OF_TOUCH)
    scale = _logarithm if logarithms else np.asarray
    return extractor.features(factors, width, lambda quantities: _columns(structure, quantities, scale))


def _columns(structure: Structure, quantities: Quantities, scale: Callable[[Floats], Floats]) -> Floats:
    """The features, (``itervar_columns``, candidates); ``scale`` is applied to numbers."""
    candidates = quantities.lengths.shape[1]
    attributes = scale(np.stack([quantities.lengths, quantities.topdown, quantities.bottomup], axis=1))
    of_touch = [scale(_listed(touch)) for touch in quantities.touches]
    groups: list[Floats] = []
    for position, loop in enumerate(structure.loops):
        length, topdown, bottomup = attributes[position]
        level = np.full(candidates, float(loop.level))
        kind = np.array([[float(loop.kind is annotation)] for annotation in ANNOTATIONS])
        counts = (loop.arithmetic.additions, loop.arithmetic.multiplications, loop.arithmetic.divisions)
        arithmetic = scale(np.array(counts, np.float64)[:, None])
        groups.append(np.stack([length, level, topdown, bottomup]))
        groups.append(np.broadcast_to(kind, (len(kind), candidates)))
        groups.append(np.broadcast_to(arithmetic, (len(counts), candidates)))
        groups.extend(of_touch[touch][:, step] for touch, step in structure.touching(position))
    return np.concatenate(groups)


def _listed(touch: TouchQuantities) -> Floats:
    """(features, steps, candidates)."""
    numbers = (touch.strides, touch.mods, touch.counts, touch.reuses, touch.thread_counts, touch.thread_reuses)
    return np.stack(numbers)


def _logarithm(numbers: Floats) -> Floats:
    return np.copysign(np.log2(np.abs(numbers) + 1.0), numbers)
