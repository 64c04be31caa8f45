"""The derivation rules for the accelerator, in the order in which they are asked. All are alone where they apply."""

from tilewright.backend.vta.config import Config
from tilewright.sketch.accelerator.computation import Computation
from tilewright.sketch.accelerator.rules.compute import ComputeTile
from tilewright.sketch.accelerator.rules.load import Load
from tilewright.sketch.accelerator.rules.multiply import Multiply
from tilewright.sketch.accelerator.rules.tile_result import TileResult
from tilewright.sketch.rule import SketchRule


def rules_for(computation: Computation, config: Config) -> tuple[SketchRule, ...]:
    """The rules for the blocks of a program."""
    return TileResult(computation), Multiply(computation, config), ComputeTile(computation), Load(computation)
