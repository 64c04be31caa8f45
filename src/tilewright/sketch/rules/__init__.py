"""The derivation rules for CPUs, in the order in which they are asked (Zheng et al., OSDI 2020, table 1)."""

from tilewright.sketch.rule import SketchRule
from tilewright.sketch.rules.cache_write import CacheWrite
from tilewright.sketch.rules.constant_matrix import ConstantMatrix
from tilewright.sketch.rules.inline import Inline
from tilewright.sketch.rules.rfactor import FactorReduction
from tilewright.sketch.rules.skip import Skip
from tilewright.sketch.rules.tile import TileBlock
from tilewright.sketch.rules.tile_and_fuse import TileAndFuse

CPU_RULES: tuple[SketchRule, ...] = (
    Inline(),
    ConstantMatrix(),
    FactorReduction(),
    CacheWrite(),
    TileAndFuse(),
    TileBlock(),
    Skip(),
)
