"""Sketches for the accelerator: schedules that are derived from a program and the accelerator's structure.

In: a te program of tiles, a configuration. Out: a space for each sketch, all searched as one. ::

    placed         each buffer in its memory: what all sketches begin with
    computation    the blocks: what they are, which part of each buffer a tile of the result needs, passes of ALU
    rules          a file for each: how the result is cut, products in stages, what ALU computes, where loads are
    decision       the decisions of a candidate by name
    room           what a candidate takes of the memories: others than those that fit are not in the space
    estimate       about how many cycles it takes
    spaces         the spaces, each with its best candidate by the estimate

A new rule is a file in ``rules/`` and a line in ``rules.rules_for``. Against the template (``vta.schedules``), any
number of reductions and products is allowed, loops around tiles have all orders, every summed axis may be cut, and
operands may stay on the chip while others change.
"""

from tilewright.sketch.accelerator.spaces import InCycles, best_schedule, sketch_space, sketches_for

__all__ = ["InCycles", "best_schedule", "sketch_space", "sketches_for"]
