"""A quantized model's layers on the accelerator beside the CPU: `python -m benchmarks.vta --model FILE`.

For each layer that can be offloaded: micro-ops of GEMM, cycles of its program alone by the cycle simulator, the time of
these at the configuration's clock, and the time of the CPU's kernels for the same layer, on one thread, as measured
here. Then all regions as the model runs them if everything is offloaded, and what stays on the CPU.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Timing
from tilewright.base.settings import Settings
from tilewright.compilation import ALONE, Options
from tilewright.frontend.opening import opened
from tilewright.graph import Graph
from tilewright.offload.accelerator import Accelerator, Placing
from tilewright.offload.costs import Costs
from tilewright.offload.device import timed
from tilewright.offload.forms import ProductForm, form_of
from tilewright.offload.partition import Split, split
from tilewright.offload.units import Unit
from tilewright.target.target import Target


@dataclass(frozen=True, slots=True)
class Row:
    """A layer, or several: times in milliseconds."""

    name: str
    products: int
    cycles: int
    accelerator: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.name:<44.44}{self.products:>10}{self.cycles:>10}{self.accelerator:>10.3f}{self.cpu:>10.3f}"


def load(path: Path) -> Graph:
    """The graph of a model."""
    return opened(path).load({}, {}, Settings.from_environment().model_bytes)


def rows(made: Split, options: Options) -> Iterator[Row]:
    """All layers that are offloaded, in order."""
    measured = replace(made.accelerator, placing=Placing.MEASURED)
    costs = Costs(made.source, measured, options, ALONE)
    for region in made.regions.values():
        for unit in region.units:
            cycles = costs.cycles(unit)
            yield Row(
                _name(unit), _products(unit, costs), cycles, costs.offloaded(unit) / 1000, costs.kept(unit) / 1000
            )


def _name(unit: Unit) -> str:
    return f"{unit.nodes[0].op.name} {unit.place.removeprefix('node ').split(' ')[0]}"


def _products(unit: Unit, costs: Costs) -> int:
    form = form_of(unit, costs.accelerator.config)
    return form.products if isinstance(form, ProductForm) else 0


def table(path: Path, config: Config, timing: Timing) -> Iterable[str]:
    """The lines that are printed."""
    options, graph = Options(Target.host(), threads=1), load(path)
    made = split(graph, Accelerator(config, Placing.ALWAYS, timing=timing), options, ALONE)
    yield f"{path.name} on {config.name}, {config.clock_mhz} MHz, beside {options.target.arch.value}, one thread"
    yield f"{'':<44}{'gemm':>10}{'cycles':>10}{'ms':>10}{'CPU ms':>10}"
    found: list[Row] = []
    for row in rows(made, options):
        found.append(row)
        yield str(row)
    columns = zip(*((row.products, row.cycles, row.accelerator, row.cpu) for row in found), strict=True)
    yield str(Row("all layers alone", *map(sum, columns)))
    yield from _regions(made, timing)
    for item in made.stays:
        yield f"on the CPU: {item.place}: {item.reason}"


def _regions(made: Split, timing: Timing) -> Iterator[str]:
    total = 0
    for region in made.regions.values():
        report = timed(region, timing, runs=2)
        assert report.cycles is not None
        total += report.cycles.total
    milliseconds = total / (1000 * made.accelerator.config.clock_mhz)
    yield f"as {len(made.regions)} regions: {total} cycles, {milliseconds:.3f} ms"
