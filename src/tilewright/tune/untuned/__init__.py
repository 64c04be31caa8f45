"""The schedule of a program of which nothing was measured.

In: a naive program, a target. Out: a schedule, by estimates alone: that of ``cost.analytic`` for the classes of kernels
that it knows, and else the best of some candidates of sketches, if the estimate says that it is clearly faster.

    choice      when sketches are asked, and whether what they have is better
    drawing     candidates of sketches, and the best of them
    tiles       estimates the tiles of a block, without a schedule
    spread      parallel loops
"""

from tilewright.tune.untuned.choice import schedule

__all__ = ["schedule"]
