"""Schedules for the accelerator: of products and convolutions, pooling, and what is done element by element after them.

In: the loop program of a te expression whose last two dimensions are tiles. Out: a schedule that ``compiler`` makes a
program of. ::

    roles       which block multiplies or reduces, which ones copy, which ones compute on its result
    tiling      sizes of tiles; how many tiles of memories they take, and about how many cycles: the analytic choice
    tiled       the schedule for given sizes
    template    the same with the sizes as knobs: a space for the tuner
"""

from tilewright.backend.vta.schedules.roles import has_template
from tilewright.backend.vta.schedules.template import space_of, template
from tilewright.backend.vta.schedules.tiled import schedule_tiles
from tilewright.backend.vta.schedules.tiling import Tiles, chosen, estimate, fitting

__all__ = ["Tiles", "chosen", "estimate", "fitting", "has_template", "schedule_tiles", "space_of", "template"]
