"""Tunes the units of a model by the cycles of the accelerator's simulator.

for unit in tune_units(graph, accelerator, Plan(minutes=5), Path("vta.db")): ...
tilewright.compile(model, accelerator="vta,always,vta.db")      uses what is kept there
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.base.errors import BadInput
from tilewright.base.search import Model, Spaces
from tilewright.compilation import ALONE, Options
from tilewright.graph import Graph
from tilewright.offload.accelerator import Accelerator, Placing
from tilewright.offload.forms import Form, form_of, naive_of
from tilewright.offload.partition import split
from tilewright.offload.units import Unit
from tilewright.target.target import Target
from tilewright.tune.accelerator import tune_accelerator
from tilewright.tune.strategy import Models, Searches


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, and what, is searched. ``minutes``: of all units together."""

    minutes: float
    spaces: Spaces = Spaces.TEMPLATES
    search: Searches | None = None
    model: Models = Model.TREES
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TunedUnit:
    """The fewest cycles of units of a form, of which ``place`` is the first; ``analytic``: of the untuned choice."""

    place: str
    calls: int
    analytic: int | None
    cycles: int
    tried: int


def tune_units(graph: Graph, accelerator: Accelerator, plan: Plan, records: Path) -> Iterator[TunedUnit]:
    """Each form of the units of an imported graph, tuned in an equal part of the time.

    Raises ``BadInput`` if the accelerator can compute nothing of it, and for records of another device.
    """
    config, timing = accelerator.config, accelerator.timing
    forms = _forms(graph, accelerator)
    for form, units in forms.items():
        found = tune_accelerator(
            naive_of(form, config),
            config,
            timing,
            space=plan.spaces,
            minutes=plan.minutes / len(forms),
            search=plan.search,
            cost_model=plan.model,
            seed=plan.seed,
            records=records,
        )
        yield TunedUnit(units[0].place, len(units), found.analytic_cycles, found.cycles, found.tried)


def _forms(graph: Graph, accelerator: Accelerator) -> Mapping[Form, list[Unit]]:
    """The units that the accelerator can compute, by form."""
    made = split(graph, replace(accelerator, placing=Placing.ALWAYS), Options(Target.host(), threads=1), ALONE)
    found: dict[Form, list[Unit]] = {}
    for region in made.regions.values():
        for unit in region.units:
            found.setdefault(form_of(unit, accelerator.config), []).append(unit)
    if not found:
        reasons = "; ".join(sorted({item.reason for item in made.stays})) or "it has no quantized layers"
        raise BadInput(f"{accelerator.config.name} can compute nothing of {graph.name}: {reasons}")
    return found
