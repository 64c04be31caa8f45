"""Splits a quantized graph between the CPU and the accelerator.

Units (``recognize``) are offloaded so that the sum of all times is smallest (``costs``, ``cut``), or all of them. Units
with no node of the CPU between them become a region: one program, one node of the graph. Regions are levels: a unit is
on the level of the units that it reads, or above whatever the CPU computes for it; so no region waits for itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.arrays import Array
from tilewright.base.dtypes import i8
from tilewright.base.errors import Unsupported
from tilewright.compilation import Options, Services
from tilewright.graph import Graph, Node, Value, verify
from tilewright.offload.accelerator import Accelerator, Placing
from tilewright.offload.costs import Costs
from tilewright.offload.cut import Passing, cheapest
from tilewright.offload.device import Device
from tilewright.offload.forms import form_of, scheduled
from tilewright.offload.recognize import Stays, find_units
from tilewright.offload.region import Region, region_of
from tilewright.offload.units import Product, Unit, shape_of
from tilewright.ops import Trait
from tilewright.ops.called import CalledOperator, Caller, TensorType, called
from tilewright.passes.between import Between
from tilewright.passes.normalize import normalize


@dataclass(frozen=True, slots=True)
class Offload(CalledOperator):
    """The operator of a region's node."""

    region: Region = field(kw_only=True, compare=False)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A graph with a node for each region, the device that they share, and why other nodes stay on the CPU.

    ``source``: the graph that was split, whose nodes the units name.
    """

    graph: Graph
    source: Graph
    accelerator: Accelerator
    device: Device
    regions: Mapping[str, Region]
    stays: tuple[Stays, ...]


@dataclass(slots=True)
class Offloading:
    """An accelerator, and how it splits graphs: a graph that is imported again is split as it was."""

    accelerator: Accelerator
    _splits: dict[str, Split] = field(default_factory=dict[str, Split])

    def split(self, graph: Graph, options: Options, services: Services) -> Split:
        """The split of an imported graph."""
        key = str(graph)
        if key not in self._splits:
            self._splits[key] = split(graph, self.accelerator, options, services)
        return self._splits[key]

    def of(self, graph: Graph) -> Split | None:
        """The split that made ``graph``."""
        return next((found for found in self._splits.values() if found.graph is graph), None)


def split(graph: Graph, accelerator: Accelerator, options: Options, services: Services) -> Split:
    """``graph`` with its regions. Raises ``Unsupported`` for a model in stages."""
    if (found := Between.first(graph)) is not None:
        raise Unsupported(f"accelerator=: a model in stages can't be split; leave accelerator= out. {found}")
    graph = normalize(graph, kept=Trait.WIDENS)
    found = find_units(graph)
    fitting, stays = _fitting(found.units, accelerator)
    chosen = fitting
    if accelerator.placing is not Placing.ALWAYS:
        chosen, slower = _worth(graph, fitting, Costs(graph, accelerator, options, services))
        stays = (*stays, *slower)
    device = Device(accelerator)
    made, regions = _Splitting(graph, chosen, accelerator, device).result()
    verify(made)
    order = {node.source or node.outputs[0].name: at for at, node in enumerate(graph.nodes)}
    told = sorted((*found.stays, *stays), key=lambda item: order[item.place])
    return Split(made, graph, accelerator, device, regions, tuple(told))


def _fitting(units: Sequence[Unit], accelerator: Accelerator) -> tuple[tuple[Unit, ...], tuple[Stays, ...]]:
    """The units that the accelerator's blocks and memories have room for."""
    reasons = {unit: _reason(unit, accelerator) for unit in units}
    stays = (Stays(unit.place, unit.nodes[0].op.name, reason) for unit, reason in reasons.items() if reason is not None)
    return tuple(unit for unit, reason in reasons.items() if reason is None), tuple(stays)


def _reason(unit: Unit, accelerator: Accelerator) -> str | None:
    """Why a unit does not fit."""
    config = accelerator.config
    if isinstance(unit, Product) and unit.groups > 1 and config.block_in % (size := unit.channels // unit.groups):
        return f"its groups of {size} channels do not divide the blocks of {config.block_in} of {config.name}"
    if scheduled(form_of(unit, config), config, accelerator.timing, accelerator.records) is None:
        return f"no tile of it fits the memories of {config.name}"
    return None


def _worth(graph: Graph, units: Sequence[Unit], costs: Costs) -> tuple[tuple[Unit, ...], tuple[Stays, ...]]:
    """The units with which the model takes least time, and the others."""
    offloaded = {unit.result: costs.offloaded(unit) for unit in units}
    kept = {unit.result: costs.kept(unit) for unit in units}
    best = cheapest(offloaded, kept, list(_passing(graph, units, costs)))
    stays = (
        Stays(
            unit.place,
            unit.nodes[0].op.name,
            f"it takes {kept[unit.result]:.4g} us on the CPU, and {offloaded[unit.result]:.4g} us on the accelerator, "
            "without packing",
        )
        for unit in units
        if unit.result not in best
    )
    return tuple(unit for unit in units if unit.result in best), tuple(stays)


def _passing(graph: Graph, units: Sequence[Unit], costs: Costs) -> Iterator[Passing]:
    """The values that units make and read. Nodes of a unit other than it read what dequantizes its operands."""
    own = {node.outputs[0] for unit in units for node in unit.nodes}
    consumers = graph.consumers()
    makers = {unit.result for unit in units}
    for value in dict.fromkeys(value for unit in units for value in (*unit.inputs, unit.result)):
        readers: list[Value | None] = [unit.result for unit in units if value in unit.inputs]
        others = [
            reader.outputs[0]
            for node in consumers.get(value, ())
            for reader in (consumers.get(node.outputs[0], ()) if node.op.name == "DequantizeLinear" else (node,))
        ]
        if value in graph.outputs or any(other not in own for other in others):
            readers.append(None)
        yield Passing(value if value in makers else None, tuple(readers), costs.passing(value))


@dataclass(slots=True)
class _Splitting:
    """A graph as it is split."""

    graph: Graph
    units: Sequence[Unit]
    accelerator: Accelerator
    device: Device
    nodes: list[Node] = field(default_factory=list[Node])
    regions: dict[str, Region] = field(default_factory=dict[str, Region])

    def result(self) -> tuple[Graph, Mapping[str, Region]]:
        """The new graph, and its regions by the names of their operators."""
        made = {unit.result: unit for unit in self.units}
        live = _live(self.graph, made)
        levels = _levels(self.graph, made, live)
        last = max(levels.values(), default=0)
        for level in range(last + 1):
            self.nodes += (node for node in self.graph.nodes if node in live and levels[node.outputs[0]] == level)
            own = [unit for unit in self.units if levels[unit.result] == level]
            if own:
                self._offload(own, live)
        read = {value for node in self.nodes for value in node.inputs}.union(self.graph.outputs)
        constants = {value: array for value, array in self.graph.constants.items() if value in read}
        return replace(self.graph, nodes=tuple(self.nodes), constants=constants), self.regions

    def _offload(self, units: Sequence[Unit], live: frozenset[Node]) -> None:
        """Add the node of a region."""
        own = set(units)
        needed = {value for node in live for value in node.inputs}.union(self.graph.outputs)
        needed.update(value for unit in self.units if unit not in own for value in unit.inputs)
        outputs = [unit.result for unit in units if unit.result in needed]
        given = self.accelerator
        region = region_of(units, outputs, given.config, given.timing, given.records)
        self.device.reserve(region)

        def call(arrays: Sequence[Array]) -> list[Array]:
            return self.device.run(region, arrays)

        name = f"accelerator{len(self.regions)}"
        types = [TensorType(i8, shape_of(value)) for value in outputs]
        plain = called(name, call, types)
        op = Offload(
            name, plain.function, plain.kind, call=call, results=plain.results, by=Caller.ACCELERATOR, region=region
        )
        self.regions[name] = region
        self.nodes.append(Node(op, region.inputs, region.outputs, (), name))


def _live(graph: Graph, made: Mapping[Value, Unit]) -> frozenset[Node]:
    """The nodes that the CPU runs: what outputs and units need, without what units make."""
    wanted = {*graph.outputs, *(value for unit in made.values() for value in unit.inputs)}
    found: list[Node] = []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs) and node.outputs[0] not in made:
            found.append(node)
            wanted.update(value for value in node.inputs if value is not None)
    return frozenset(found)


def _levels(graph: Graph, made: Mapping[Value, Unit], live: frozenset[Node]) -> Mapping[Value, int]:
    """The level of each value: even ones are of the CPU, odd ones of the accelerator."""
    levels = dict.fromkeys((*graph.inputs, *graph.constants), 0)
    for node in graph.nodes:
        unit = made.get(node.outputs[0])
        if unit is not None:
            levels[unit.result] = max(levels[value] + 1 - levels[value] % 2 for value in unit.inputs)
        elif node in live:
            before = [levels[value] + levels[value] % 2 for value in node.inputs if value is not None]
            levels.update(dict.fromkeys(node.outputs, max(before, default=0)))
    return levels
