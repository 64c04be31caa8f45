"""A quantized model as a network: what the accelerator can compute of it, in regions as the model would run them."""

from collections import Counter
from dataclasses import dataclass, replace
from math import isqrt

from tilewright.backend.vta.config_file import Design
from tilewright.base.errors import BadInput
from tilewright.codesign.networks import Layer
from tilewright.compilation import ALONE, Options
from tilewright.graph import Graph
from tilewright.offload.accelerator import Accelerator, Placing
from tilewright.offload.device import timed
from tilewright.offload.partition import Split, split
from tilewright.offload.units import Product, Unit
from tilewright.target.target import Target


@dataclass(slots=True)
class ModelNetwork:
    """``units``: what is computed by every design. The CPU's part of the model is not in the cycles."""

    graph: Graph
    units: tuple[Unit, ...]

    @staticmethod
    def of(graph: Graph, base: Design) -> "ModelNetwork":
        """That of an imported graph, on ``base``. Raises ``BadInput`` if the accelerator can compute nothing of it."""
        made = _split(graph, base)
        units = _units(made)
        if not units:
            reasons = "; ".join(sorted({item.reason for item in made.stays})) or "it has no quantized layers"
            raise BadInput(f"{base.config.name} can compute nothing of {graph.name}: {reasons}")
        return ModelNetwork(graph, units)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The products, each as a convolution with as many products of about the same form."""
        found = Counter(_layer(unit) for unit in self.units if isinstance(unit, Product))
        return tuple(replace(layer, calls=calls) for layer, calls in found.items())

    def cycles(self, design: Design) -> int | None:
        """The sum over all regions, whose micro-ops are on the chip where they have room."""
        config = design.config
        if config.batch != 1 or config.block_in != config.block_out:
            return None
        made = _split(self.graph, design)
        if len(_units(made)) < len(self.units):
            return None
        return sum(_cycles(made, name, design) for name in made.regions)


def _split(graph: Graph, design: Design) -> Split:
    accelerator = Accelerator(design.config, Placing.ALWAYS, timing=design.timing)
    return split(graph, accelerator, Options(Target.host(), threads=1), ALONE)


def _units(made: Split) -> tuple[Unit, ...]:
    return tuple(unit for region in made.regions.values() for unit in region.units)


def _cycles(made: Split, name: str, design: Design) -> int:
    cycles = timed(made.regions[name], design.timing, runs=2).cycles
    assert cycles is not None, "a stopwatch has them"
    return cycles.total


def _layer(unit: Product) -> Layer:
    kernel, stride = isqrt(unit.rows.taps * unit.columns.taps), max(unit.rows.stride, unit.columns.stride)
    height, width = unit.rows.outputs * stride, unit.columns.outputs * stride
    return Layer(height, width, unit.channels, unit.filters, kernel, stride, kernel // 2)
