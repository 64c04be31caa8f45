"""Schedulers of tasks, replayed in the recorded tables: `python -m benchmarks.scheduling`. Nothing is timed.

The tasks are ResNet-18's layers C1 to C12, as often as the network computes each. What the search of a layer (boosted
trees, as `benchmarks.ablation` replays it) has found after each trial does not depend on the other layers. A scheduler
gives rounds to layers until a budget of trials is spent; printed is what all layers of a run then take together, as a
multiple of what they take with the best candidates of the tables: the median over seeds, and quartiles. At last, after
how many trials a scheduler is within 5, 2 and 1 %.
"""

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from tilewright.tune.models.model import Objective
from tilewright.tune.scheduler.gradient import Gradient
from tilewright.tune.scheduler.groups import RATIO
from tilewright.tune.scheduler.round_robin import RoundRobin
from tilewright.tune.scheduler.state import Point, TaskScheduler, TaskState

from .ablation.features import Floats
from .ablation.layers import LAYERS, Layer
from .ablation.replay import SETUP, Learned, curve, trees
from .ablation.table import FOLDER, RECORDING, Table

CALLS = dict(zip(LAYERS, (1, 4, 1, 1, 1, 3, 1, 1, 3, 1, 1, 3), strict=True))
"""How often ResNet-18 computes each layer; C3, a projection, is of the version that the paper numbers."""
BUDGETS = (120, 240, 480, 960, 1920, 3840)
NEAR = (1.05, 1.02, 1.01)


def flops(layer: Layer) -> int:
    """Operations of a layer; a multiply-add is two."""
    size = -(-layer.size // layer.stride)
    return 2 * size**2 * layer.inputs * layer.outputs * layer.kernel**2


def tag(layer: Layer) -> str:
    """Convolutions of one kind and of about as many operations are similar."""
    return f"{layer.kernel} {layer.stride} {int(np.log(flops(layer)) / np.log(RATIO))}"


def schedulers(seed: int) -> dict[str, TaskScheduler]:
    """All that are compared."""
    return {
        "round robin": RoundRobin(),
        "gradient": Gradient(seed=seed),
        "without decay": Gradient(seed=seed, decay=0.0),
        "without epsilon": Gradient(seed=seed, epsilon=0.0),
        "without groups": Gradient(seed=seed, beta=np.inf),
    }


def curves(tables: Mapping[str, Table], trials: int, seed: int) -> dict[str, Floats]:
    """Seconds of the best candidate of each layer after each trial: (trials,)."""
    search = Learned(trees(Objective.RANK))
    return {
        name: curve(table, search, trials, seed) * table.microseconds.min() * 1e-6 for name, table in tables.items()
    }


def replayed(scheduler: TaskScheduler, found: Mapping[str, Floats], budget: int) -> Floats:
    """Seconds of all layers of a run after each trial: (budget,); infinity until each layer has had a round.

    A round counts when it is over.
    """
    tasks = [TaskState((CALLS[name],), flops=flops(LAYERS[name]), tag=tag(LAYERS[name])) for name in found]
    seconds = list(found.values())
    total, spent = np.full(budget + 1, np.inf), 0
    while spent < budget:
        chosen = scheduler.next(tasks)
        if chosen is None:
            break
        tasks[chosen] = _after_round(tasks[chosen], seconds[chosen])
        spent = sum(task.points[-1].trials for task in tasks if task.points)
        total[spent:] = sum(task.calls[0] * task.seconds for task in tasks)
    return total[1:]


def _after_round(task: TaskState, seconds: Floats) -> TaskState:
    before = task.points[-1].trials if task.points else 0
    trials = min(before + SETUP.round_size(before), len(seconds))
    point = Point(trials, float(seconds[trials - 1]))
    return TaskState(
        task.calls,
        (*task.points, point),
        task.flops,
        task.tag,
        SETUP.round_size(trials),
        is_over=trials == len(seconds),
    )


def compared(tables: Mapping[str, Table], trials: int, budget: int, seed: int) -> dict[str, Floats]:
    """What a run takes by each scheduler after each trial, as a multiple of the tables' best: (budget,)."""
    found = curves(tables, trials, seed)
    best = sum(CALLS[name] * table.microseconds.min() * 1e-6 for name, table in tables.items())
    return {name: replayed(scheduler, found, budget) / best for name, scheduler in schedulers(seed).items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay, print."""
    options = _options(arguments)
    paths = {name: options.folder / f"{name}.npz" for name in LAYERS}
    if missing := [name for name, path in paths.items() if not path.exists()]:
        raise SystemExit(f"no table of {', '.join(missing)} in {options.folder}: {RECORDING}")
    tables = {name: Table.load(path) for name, path in paths.items()}
    with ProcessPoolExecutor() as processes:
        replay = partial(compared, tables, options.trials, max(BUDGETS))
        results = list(processes.map(replay, range(options.seeds)))
    ways = list(results[0])
    of_seeds = {way: np.stack([result[way] for result in results]) for way in ways}
    print("trials", *ways, sep=" | ")
    for budget in BUDGETS:
        cells = (np.percentile(of_seeds[way][:, budget - 1], (50, 25, 75)) for way in ways)
        print(budget, *(f"{middle:.3f} ({low:.3f}, {high:.3f})" for middle, low, high in cells), sep=" | ")
    for goal in NEAR:
        print(f"to {goal:g}", *(f"{_trials_to(of_seeds[way], goal):.0f}" for way in ways), sep=" | ")


def _trials_to(found: Floats, goal: float) -> float:
    """The median over seeds, (seeds, trials), of the first trial that reaches `goal`; infinity if most never do."""
    reached = found <= goal
    return float(np.median(np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, np.inf)))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scheduling", description="Schedulers of tasks.")
    parser.add_argument("--trials", type=int, default=1000, help="of one layer at most, default 1000")
    parser.add_argument("--seeds", type=int, default=10, help="searches of each layer, default 10")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the tables, default %(default)s")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
