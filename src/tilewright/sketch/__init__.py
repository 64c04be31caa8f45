"""Sketches: spaces of schedules that are derived from the structure of a program, without a template.

*In*: a naive program and a target. *Out*: one ``Space`` for each sketch. After Zheng et al., "Ansor: Generating
High-Performance Tensor Programs for Deep Learning" (OSDI 2020).

``rules/`` has the derivation rules, a file for each: whether a rule applies to a block, and what it does. ``derive``
applies them to all blocks, from the outputs to the inputs; ``annotate`` asks for what all sketches leave open: where
blocks are computed, lanes, unrolled and parallel loops; ``annotate_threads``, where there are blocks and threads.
``finishing`` says which loops become lanes, are written out, or run in parallel, and ``finish`` makes them so.
``structure``: how loops are tiled on a kind of target. ``pattern`` has what candidates that differ in numbers have in
common, for cost models that look at many.
"""

from tilewright.sketch.derive import Sketch, sketch_spaces, sketches
from tilewright.sketch.rule import Answer, Draft, SketchRule
from tilewright.sketch.structure import BLOCKS_AND_THREADS, CORES, Structure

__all__ = [
    "BLOCKS_AND_THREADS",
    "CORES",
    "Answer",
    "Draft",
    "Sketch",
    "SketchRule",
    "Structure",
    "sketch_spaces",
    "sketches",
]
