"""The derivation rules, in the order in which they are asked (Zheng et al., OSDI 2020, table 1)."""

from tilewright.sketch.rule import SketchRule
from tilewright.sketch.rules.cache_read import CacheRead
from tilewright.sketch.rules.cache_write import CacheWrite
from tilewright.sketch.rules.constant_matrix import ConstantMatrix
from tilewright.sketch.rules.cross_thread import CrossThread
from tilewright.sketch.rules.inline import Inline
from tilewright.sketch.rules.rfactor import FactorReduction
from tilewright.sketch.rules.skip import Skip
from tilewright.sketch.rules.special_location import SpecialLocation
from tilewright.sketch.rules.tensorize import Tensorize
from tilewright.sketch.rules.tile import TileBlock
from tilewright.sketch.rules.tile_and_fuse import TileAndFuse

CPU_RULES: tuple[SketchRule, ...] = (
    Inline(),
    ConstantMatrix(),
    Tensorize(),
    FactorReduction(),
    CacheWrite(),
    TileAndFuse(),
    TileBlock(),
    Skip(),
)
THREAD_RULES: tuple[SketchRule, ...] = (
    CacheRead(),
    SpecialLocation(),
    Inline(),
    ConstantMatrix(),
    CrossThread(),
    CacheWrite(),
    TileAndFuse(),
    TileBlock(),
    Skip(),
)
"""For targets with blocks and threads."""
