"""Rules of generation, one file per family of operators: each proposes a node from what a ``Draw`` gives.

A rule answers for the operands (shapes, ranges in which the operator is well-conditioned, indices in range). Dtypes
come from ONNX's schemas. ``None`` is no node this time. Whatever is wrong with a proposal otherwise (no kernel in ONNX
Runtime, results that are too large, or that rounding decides) the generator finds out, and asks another rule.
"""

from collections.abc import Callable, Mapping

from tests.random_graphs.draw import Draw, Proposal
from tests.random_graphs.rules import (
    contraction,
    elementwise,
    indexing,
    movement,
    normalization,
    quantization,
    recurrent,
    reduction,
    resizing,
    signal,
    windows,
)

Rule = Callable[[Draw], Proposal | None]

FAMILIES: Mapping[str, Mapping[str, Rule]] = {
    "contraction": contraction.RULES,
    "elementwise": elementwise.RULES,
    "indexing": indexing.RULES,
    "movement": movement.RULES,
    "normalization": normalization.RULES,
    "quantization": quantization.RULES,
    "recurrent": recurrent.RULES,
    "reduction": reduction.RULES,
    "resizing": resizing.RULES,
    "signal": signal.RULES,
    "windows": windows.RULES,
}
WEIGHTS: Mapping[str, float] = {
    "contraction": 1.5,
    "elementwise": 5,
    "indexing": 1,
    "movement": 2.5,
    "normalization": 1.5,
    "quantization": 0.4,
    "recurrent": 0.2,
    "reduction": 1.5,
    "resizing": 0.4,
    "signal": 0.2,
    "windows": 2,
}
"""How often a family is asked."""

RULES: Mapping[str, Rule] = {name: rule for family in FAMILIES.values() for name, rule in family.items()}
