"""Replays searches in the recorded tables: `python -m benchmarks.ablation`.

Prints for each layer after how many trials (the median over seeds) a search has something within 2 % of the table's
best, and writes a picture of all searches. With `--transfer`, models of the layers before C7 are passed on to C7 to C9;
then it also prints when these searches are where those without are after 400 trials.
"""

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tilewright.report.charts import HEIGHT, WIDTH, Axis, Mark, Series, chart
from tilewright.tune.models.model import Objective
from tilewright.tune.search.annealing import Plan

from ..options import names
from .features import Floats
from .layers import LAYERS
from .replay import Baseline, Learned, View, Way, curve, transferred, tree_gru, trees
from .table import FOLDER, RECORDING, Table

GOAL = 1.02
LATE = 400
"""Trials after which a search without transfer is looked at."""
MORE_AT_RANDOM = 20
"""Times as many seeds of the random search, whose luck differs most, and which takes no time."""
COLUMNS = 3
COLORS = ("#7f7f7f", "#c98b2b", "#1a7f37", "#0068b5", "#8d4bb3", "#b33a3a", "#3aa6a6")
SOURCES, TARGETS = ("C1", "C2", "C3", "C4", "C5", "C6"), ("C7", "C8", "C9")


def ways() -> dict[str, Way]:
    """All searches that are compared."""
    found: dict[str, Way] = {
        "random": Baseline.RANDOM,
        "genetic": Baseline.GENETIC,
        "trees, rank": Learned(trees(Objective.RANK)),
        "trees, regression": Learned(trees(Objective.REGRESSION)),
        "trees, rank, not diverse": Learned(trees(Objective.RANK), plan=Plan(diversity=0.0)),
    }
    if find_spec("torch"):
        found["TreeGRU, rank"] = Learned(tree_gru(Objective.RANK))
        found["TreeGRU, regression"] = Learned(tree_gru(Objective.REGRESSION))
    return found


def transfers(tables: Mapping[str, Table]) -> dict[str, Way]:
    """With and without what other layers have taught."""
    others = [tables[name] for name in SOURCES]
    alone = Learned(trees(Objective.RANK), View.CURVES)
    return {"alone": alone, "transfer": Learned(transferred(others), View.CURVES)}


def trials_to(curves: Floats, goal: float) -> float:
    """The median over seeds, (seeds, trials), of the first trial that reaches `goal`; infinity if most never do."""
    reached = curves <= goal
    first = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, np.inf)
    return float(np.median(first))


def replayed(table: Table, compared: Mapping[str, Way], trials: int, seeds: int) -> dict[str, Floats]:
    """The curves of each way, (seeds, trials); on all cores, as nothing is timed."""
    with ProcessPoolExecutor() as processes:
        found = processes.map(partial(_curves, table, trials=trials, seeds=seeds), compared.values())
        return dict(zip(compared, found, strict=True))


def _curves(table: Table, way: Way, trials: int, seeds: int) -> Floats:
    more = MORE_AT_RANDOM if way is Baseline.RANDOM else 1
    return np.stack([curve(table, way, trials, seed) for seed in range(more * seeds)])


def picture(results: Mapping[str, Mapping[str, Floats]]) -> str:
    """An SVG with a chart for each layer: the table's best as a part of what was found, over trials."""
    rows = -(-len(results) // COLUMNS)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * WIDTH} {rows * HEIGHT}">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for number, (layer, curves) in enumerate(results.items()):
        series = [
            Series(way, list(enumerate((1.0 / np.median(of_seeds, axis=0)).tolist(), 1)), color, Mark.STEPS)
            for (way, of_seeds), color in zip(curves.items(), COLORS, strict=False)
        ]
        at = f"translate({number % COLUMNS * WIDTH} {number // COLUMNS * HEIGHT})"
        parts.append(f'<g transform="{at}">{chart(layer, Axis("trials"), Axis("of the best"), series)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay, print, draw."""
    options = _options(arguments)
    tables = {
        name: Table.load(options.folder / f"{name}.npz") for name in LAYERS if (options.folder / f"{name}.npz").exists()
    }
    chosen = TARGETS if options.transfer else options.layers
    needed = (*SOURCES, *TARGETS) if options.transfer else chosen
    if missing := [name for name in needed if name not in tables]:
        raise SystemExit(f"no table of {', '.join(missing)} in {options.folder}: {RECORDING}")
    compared = transfers(tables) if options.transfer else ways()
    overtaken = [f"transfer to alone's at {LATE}"] if options.transfer else []
    print("layer", *compared, *overtaken, sep=" | ")
    results: dict[str, dict[str, Floats]] = {}
    for layer in chosen:
        results[layer] = replayed(tables[layer], compared, options.trials, options.seeds)
        trials = [trials_to(curves, GOAL) for curves in results[layer].values()]
        if options.transfer:
            level = float(np.median(results[layer]["alone"][:, LATE - 1]))
            trials.append(trials_to(results[layer]["transfer"], level))
        print(layer, *(f"{count:.0f}" for count in trials), sep=" | ", flush=True)
    options.picture.write_text(picture(results))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description="Searches in recorded tables.")
    parser.add_argument("--layers", type=names, default=list(LAYERS), help=f"default {','.join(LAYERS)}")
    parser.add_argument("--trials", type=int, default=1000, help="of each search, default 1000")
    parser.add_argument("--seeds", type=int, default=10, help="searches of each kind, default 10")
    parser.add_argument("--transfer", action="store_true", help="what C1 to C6 teach for C7 to C9")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the tables, default %(default)s")
    parser.add_argument("--picture", type=Path, default=Path("ablation.svg"), help="written, default %(default)s")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
