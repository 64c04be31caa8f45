"""Networks as the search knows them: layers in elements, whose blocks depend on the configuration."""

from dataclasses import dataclass, field, replace
from typing import Protocol

from tilewright.backend.vta.compiler import translated
from tilewright.backend.vta.config import Config
from tilewright.backend.vta.config_file import Design
from tilewright.backend.vta.convolution import loop_program
from tilewright.backend.vta.cycles import simulate
from tilewright.backend.vta.layers import Convolution
from tilewright.backend.vta.runtime import Runtime
from tilewright.backend.vta.schedules import chosen, schedule_tiles
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.base.errors import BadProgram
from tilewright.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution with square filters; ``calls``: how often the network computes it."""

    height: int
    width: int
    channels: int
    filters: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    calls: int = 1

    def blocked(self, config: Config) -> Convolution:
        """The convolution of whole blocks."""
        channels, filters = -(-self.channels // config.block_in), -(-self.filters // config.block_out)
        return Convolution(self.height, self.width, channels, filters, self.kernel, self.stride, self.padding)


class Network(Protocol):
    """What is searched for."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What is screened: layers that take about as long."""
        ...

    def cycles(self, design: Design) -> int | None:
        """What all of it takes, compiled, by the cycle simulator; None if a layer does not fit the memories."""
        ...


@dataclass(slots=True)
class LayerNetwork:
    """Convolutions, each compiled by the analytic choice, and run alone, with no micro-ops on the chip before."""

    layers: tuple[Layer, ...]
    _known: dict[object, int] = field(default_factory=dict[object, int])

    def cycles(self, design: Design) -> int | None:
        """The sum over all calls."""
        try:
            return sum(layer.calls * self._layer(layer.blocked(design.config), design) for layer in self.layers)
        except BadProgram:
            return None

    def _layer(self, layer: Convolution, design: Design) -> int:
        config, timing = design.config, design.timing
        key = layer, replace(config, name="", clock_mhz=1), timing
        if key not in self._known:
            naive = loop_program(layer, config)
            s = Schedule(naive)
            schedule_tiles(s, chosen(naive, config, timing), config)
            instructions = Runtime(SimulatedDevice(config)).linked(translated(s.program, config))
            self._known[key] = simulate(instructions, config, timing).total
        return self._known[key]


RESNET18 = (
    Layer(56, 56, 64, 64, 3, padding=1, calls=4),
    Layer(56, 56, 64, 128, 3, 2, padding=1),
    Layer(56, 56, 64, 128, 1, 2),
    Layer(28, 28, 128, 128, 3, padding=1, calls=3),
    Layer(28, 28, 128, 256, 3, 2, padding=1),
    Layer(28, 28, 128, 256, 1, 2),
    Layer(14, 14, 256, 256, 3, padding=1, calls=3),
    Layer(14, 14, 256, 512, 3, 2, padding=1),
    Layer(14, 14, 256, 512, 1, 2),
    Layer(7, 7, 512, 512, 3, padding=1, calls=3),
)
"""The convolutions of ResNet-18 (He et al., arXiv:1512.03385) but the first: C2 to C11 as VTA numbers them."""
