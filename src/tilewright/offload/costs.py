"""What a unit costs on the accelerator and on the CPU, and what it costs to pass a value between them: microseconds.

The accelerator's time is that of the cycle simulator at the configuration's clock. The CPU's is estimated as the
compiler estimates kernels, on one core, or measured. Constants that nobody measured are assumptions, and say so.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType
from tilewright.compilation import Options, Services, prepare
from tilewright.driver import compile_graph
from tilewright.graph import Graph, Node, Value
from tilewright.offload.accelerator import Accelerator, Placing
from tilewright.offload.device import timed
from tilewright.offload.forms import Form, form_of
from tilewright.offload.region import packed, region_of, unpacked
from tilewright.offload.units import Image, Unit, image_of
from tilewright.superopt.costs.kernel_model import KernelCosts

CPU_CYCLES_PER_US = 3000.0
"""An assumption: targets do not say their clock. Only used where times are not measured."""
PACKED_BYTES_PER_US = 500.0
"""To pack or unpack a value. An assumption; used where times are not measured."""
HANDOVER_US = 20.0
"""To start the accelerator, or to go on without it, for each value that passes. An assumption."""
_LEAST_RUNS = 5
_LEAST_SECONDS = 0.01


@dataclass(slots=True)
class Costs:
    """Times by what they depend on; equal layers are timed once."""

    graph: Graph
    accelerator: Accelerator
    options: Options
    services: Services
    _cycles: dict[Form, int] = field(default_factory=dict[Form, int])
    _kept: dict[object, float] = field(default_factory=dict[object, float])
    _passing: dict[tuple[Image, int], float] = field(default_factory=dict[tuple[Image, int], float])

    def offloaded(self, unit: Unit) -> float:
        """On the accelerator."""
        return self.cycles(unit) / self.accelerator.config.clock_mhz

    def cycles(self, unit: Unit) -> int:
        """On the accelerator, alone."""
        config, timing = self.accelerator.config, self.accelerator.timing
        key = form_of(unit, config)
        if key not in self._cycles:
            report = timed(region_of([unit], [unit.result], config, timing, self.accelerator.records), timing)
            assert report.cycles is not None, "a stopwatch has them"
            self._cycles[key] = report.cycles.total
        return self._cycles[key]

    def kept(self, unit: Unit) -> float:
        """On the CPU."""
        key = (form_of(unit, self.accelerator.config), unit.inputs[0].shape, unit.result.shape)
        if key not in self._kept:
            graph = graph_of(unit, self.graph)
            is_measured = self.accelerator.placing is Placing.MEASURED
            self._kept[key] = self._measured(graph) if is_measured else self._estimated(graph)
        return self._kept[key]

    def _estimated(self, graph: Graph) -> float:
        options, made = self.options, prepare(graph, math=self.options.math)
        costs = KernelCosts.of(made, options.target, options.math, options.bounds, options.alternatives)
        return costs.of_graph(made) / CPU_CYCLES_PER_US

    def _measured(self, graph: Graph) -> float:
        executable = compile_graph(graph, self.options, self.services).executable
        feeds = {spec.name: _any_array(spec.static_shape or (), spec.dtype) for spec in executable.manifest.inputs}
        binding = executable.bind(feeds)
        return _microseconds(lambda: binding.run(None))

    def passing(self, value: Value) -> float:
        """To pass a value to the other device: packed or unpacked, whichever takes longer."""
        image = image_of(value)
        assert image is not None, "units have images"
        key = image, len(value.shape)
        if key not in self._passing:
            self._passing[key] = HANDOVER_US + self._packing(value, image)
        return self._passing[key]

    def _packing(self, value: Value, image: Image) -> float:
        config = self.accelerator.config
        if self.accelerator.placing is not Placing.MEASURED:
            return image.bytes(config) / PACKED_BYTES_PER_US
        shape = (
            (image.width, image.channels) if len(value.shape) == 2 else (1, image.channels, image.height, image.width)
        )
        array = np.zeros(shape, np.int8)
        tiles = packed(array, config)
        return max(_microseconds(lambda: packed(array, config)), _microseconds(lambda: unpacked(tiles, value)))


def graph_of(unit: Unit, graph: Graph) -> Graph:
    """The nodes of a unit as a graph of their own, with what dequantizes their operands."""
    producers, wanted = graph.producers(), [unit.result]
    needed: set[Node] = set()
    while wanted:
        value = wanted.pop()
        node = producers.get(value)
        if value in unit.inputs or node is None or node in needed:
            continue
        needed.add(node)
        wanted.extend(operand for operand in node.inputs if operand is not None)
    nodes = tuple(node for node in graph.nodes if node in needed)
    read = {value for node in nodes for value in node.inputs}
    constants = {value: array for value, array in graph.constants.items() if value in read}
    return replace(
        graph, name="unit", inputs=unit.inputs, outputs=(unit.result,), nodes=nodes, constants=constants, limits=()
    )


def _any_array(shape: tuple[int, ...], dtype: DType) -> Array:
    return np.random.default_rng(0).integers(-100, 100, shape).astype(dtype.numpy)


def _microseconds(run: Callable[[], object]) -> float:
    """The median of some runs."""
    run()
    times: list[float] = []
    while len(times) < _LEAST_RUNS or sum(times) < _LEAST_SECONDS:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return median(times) * 1e6
