"""``tune_models``: tunes models in one budget of time, as ``tilewright tune`` does.

results = tilewright.tune_models(["a.onnx", "b.onnx"], minutes=10, records="records.db", threads=1)
settings = tilewright.Settings(records=Path("records.db"))
model = tilewright.compile("a.onnx", threads=1, settings=settings)
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from tilewright.api import compile as compile_model
from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.errors import BadInput
from tilewright.base.events import Listener
from tilewright.base.numerics import Math, Precision
from tilewright.base.search import Goal, Model, Scheduling, Spaces
from tilewright.base.settings import Settings
from tilewright.model import CompiledModel
from tilewright.networks.network import Network, Untuned
from tilewright.networks.plan import Plan
from tilewright.networks.tuning import NetworkResult, prepared, tune_networks
from tilewright.runtime.abi import MAX_THREADS
from tilewright.target.target import Target
from tilewright.tune.strategy import (
    Models,
    Searches,
    goal_named,
    model_named,
    scheduling_named,
    search_for,
    spaces_named,
)

MOST_MINUTES, MOST_SECONDS, MOST_PATIENCE = 1e6, 1e6, 1_000_000


@checked(BadInput)
def tune_models(
    models: Sequence[FilePath],
    *,
    records: FilePath,
    minutes: Annotated[float, Within(0.0, MOST_MINUTES)] = 10.0,
    objective: Goal | str = Goal.SUM,
    requirements: Sequence[Annotated[float, Within(1e-9, MOST_SECONDS)]] = (),
    scheduler: Scheduling | str = Scheduling.GRADIENT,
    patience: Annotated[int, Within(1, MOST_PATIENCE)] | None = None,
    space: Spaces | str = Spaces.TEMPLATES,
    search: Searches | str | None = None,
    cost_model: Models | str = Model.TREES,
    seed: int = 0,
    transfer: bool = True,
    shapes: Sequence[Mapping[str, Iterable[int | str]]] = (),
    threads: Annotated[int, Within(1, MAX_THREADS)] | None = None,
    target: Target | str = "host",
    math: Math | str = Math.DEFAULT,
    precision: Precision | str = Precision.FP32,
) -> tuple[NetworkResult, ...]:
    """Search faster schedules for the kernels of ONNX models for ``minutes``, all together, and keep them in
    ``records``, a database that ``compile`` reads. A kernel of several models is searched once.

    At the end each model is timed without and with what was found, in turns. Schedules are accepted that make a model
    faster and none of the others slower. Returns what became of each model, in order.

    ``objective``: what is minimized (``base.search.Goal``); ``requirements``: seconds of each model, for the objective
    of that name. ``patience``: rounds without a gain after which a kernel is searched no more. ``scheduler``,
    ``space``, ``search``, ``cost_model``, ``seed``, ``transfer``: as for ``tune_kernel`` and ``tilewright tune``.
    ``shapes``: for each model, shapes of its inputs by name. ``threads``, ``target``, ``math``, ``precision``: as for
    ``compile``.

    Raises, before anything is measured, ``BadInput`` for arguments that are wrong or do not go together, for records
    that can't be written, and for a model in which nothing is open; and what ``compile`` raises.
    """
    if not models:
        raise BadInput("models=[]: name one at least")
    if shapes and len(shapes) != len(models):
        raise BadInput(f"shapes= has {len(shapes)} entries, one for each of {len(models)} models is needed")
    spaces = space if isinstance(space, Spaces) else spaces_named(space)
    plan = Plan(
        minutes=minutes,
        search=search_for(search, spaces),
        model=model_named(cost_model) if isinstance(cost_model, str) else cost_model,
        spaces=spaces,
        seed=seed,
        transfer=transfer,
        goal=goal_named(objective) if isinstance(objective, str) else objective,
        requirements=tuple(requirements),
        scheduling=scheduling_named(scheduler) if isinstance(scheduler, str) else scheduler,
        patience=patience,
    )
    path = prepared(Path(records))

    def network(place: int, model: FilePath) -> Network:
        own = shapes[place] if shapes else None

        def compile_it(settings: Settings, listener: Listener) -> CompiledModel:
            return compile_model(
                model,
                shapes=own,
                threads=threads,
                target=target,
                math=math,
                precision=precision,
                settings=settings,
                listener=listener,
            )

        return Network(str(model), compile_it)

    untuned = [Untuned.of(network(place, model)) for place, model in enumerate(models)]
    told = {"tune_models": list(map(str, models)), "minutes": minutes, "seed": seed, "objective": plan.goal.value}
    return tune_networks(untuned, plan, path, told).networks
