"""Replays searches in the recorded tables of sketches: `python -m benchmarks.ablation.sketches [--write]`.

The ablation of Zheng et al., "Ansor" (OSDI 2020), section 7.4: the whole search, and searches without one of its parts.
Prints for each program after how many trials a search has something within 5 % of the table's best, and how good its
best is after some trials: medians over seeds, and quartiles. `--write` puts that into `docs/appendix/searches.md`, with
a picture of the curves.

A box has a few thousand candidates where the space of a sketch has millions, so fewer are bred, kept in a beam and
measured in a round, all by about the same factor: a search must not see the whole table in a batch.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import exp, log
from pathlib import Path

import numpy as np

from tilewright.base.search import Model
from tilewright.report.charts import HEIGHT, WIDTH, Axis, Mark, Series, chart
from tilewright.space.space import Candidates, Digits, Floats
from tilewright.tune.kernel_tuner import Setup
from tilewright.tune.search.beam import Beam, BeamSearch
from tilewright.tune.search.evolution import Breeding, EvolutionSearch
from tilewright.tune.search.random import RandomSearcher
from tilewright.tune.search.searcher import Score, Searcher, Searching
from tilewright.tune.strategy import rater_of

from ..options import names
from ..tables import markdown, splice
from .programs import PROGRAMS
from .record_sketches import path_of
from .sketch_table import SketchTable, TableCandidates
from .table import FOLDER

DOCUMENT = Path(__file__).parents[2] / "docs" / "appendix" / "searches.md"
PICTURE = DOCUMENT.parents[1] / "ablation-sketches.svg"
CAPTION = "The table's best as a part of what was found, over trials: medians and quartiles"
COLUMNS = 2
COLORS = ("#1a7f37", "#0068b5", "#8d4bb3", "#3aa6a6", "#b33a3a", "#c98b2b", "#7f7f7f")
BLOCK = "sketch ablation"
GOAL = 1.05
AFTER = (64, 256, 1000)
SETUP = Setup(first=4, batch=16)
BREEDING = Breeding(population=32)
RATED = BREEDING.population * (BREEDING.generations + 1)
"""Candidates that are rated for a batch."""
LIMITED = ("cache_write", "tile_and_fuse", "rfactor")
"""Rules that are not asked in a limited space, as templates have none of it."""


@dataclass(frozen=True, slots=True)
class RandomSearch:
    """A `Searching`."""

    asks_a_model: bool = False

    def searcher(self, space: Candidates, score: Score, seed: int) -> Searcher:
        """See `Searching`."""
        return RandomSearcher(space, seed)


@dataclass(frozen=True, slots=True)
class Way:
    """A search, what rates candidates for it, and whether some sketches are left out."""

    search: Searching = field(default_factory=lambda: EvolutionSearch(BREEDING))
    model: Model = Model.TREES
    is_limited: bool = False


WAYS: dict[str, Way] = {
    "full": Way(),
    "without evolution": Way(EvolutionSearch(Breeding(population=RATED, generations=0, measured=0.0))),
    "without the learned model": Way(model=Model.RANDOM),
    "without crossover": Way(EvolutionSearch(Breeding(population=BREEDING.population, mutation=1.0))),
    "limited space": Way(is_limited=True),
    "beam search": Way(BeamSearch(Beam(width=4, rated=16))),
    "random": Way(RandomSearch()),
}


def curve(table: SketchTable, way: Way, trials: int, seed: int) -> Floats:
    """The best time after each trial, as a multiple of the table's best one: (trials,). Infinity before the first
    candidate that is right. A search that has seen all that it may see stays where it is."""
    space = TableCandidates(table, _simple(table.union.labels) if way.is_limited else None)
    rater = rater_of(way.model, space, seed, with_estimates=False) if way.search.asks_a_model else None

    def score(digits: Digits) -> Floats:
        assert rater is not None, "only a search with a model asks for scores"
        return rater.score(digits)

    searcher = way.search.searcher(space, score, seed)
    throughputs, best = 1.0 / table.microseconds, table.microseconds.min()
    tried, seen = np.zeros((0, len(space.radices)), np.int64), np.zeros(0, np.int64)
    while len(seen) < trials and not (table.microseconds[seen] == best).any():
        batch = searcher.propose(min(SETUP.round_size(len(seen)), trials - len(seen)))
        if not len(batch):
            break
        rows = space.rows(batch)
        tried, seen = np.concatenate([tried, batch]), np.concatenate([seen, rows])
        searcher.learn(batch, throughputs[rows])
        if rater is not None:
            rater.fit(tried, throughputs[seen])
    found = np.minimum.accumulate(table.microseconds[seen]) / best
    return np.concatenate([found, np.full(trials - len(found), found[-1])])


def _simple(labels: Sequence[str]) -> list[str]:
    """The sketches of a limited space."""
    return [label for label in labels if not any(rule in label for rule in LIMITED)]


def trials_to(curves: Floats, goal: float) -> Floats:
    """(seeds,) from (seeds, trials): the first trial that reaches `goal`; infinity for none."""
    reached = curves <= goal
    return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, np.inf)


def replayed(tables: Mapping[str, SketchTable], trials: int, seeds: int) -> dict[tuple[str, str], Floats]:
    """The curves of each program and way, (seeds, trials); on all cores, as nothing is timed."""
    keys = [(program, way) for program in tables for way in WAYS]
    with ProcessPoolExecutor() as processes:
        ask = partial(_curves, tables, trials=trials, seeds=seeds)
        return dict(zip(keys, processes.map(ask, keys), strict=True))


def _curves(tables: Mapping[str, SketchTable], key: tuple[str, str], trials: int, seeds: int) -> Floats:
    program, way = key
    return np.stack([curve(tables[program], WAYS[way], trials, seed) for seed in range(seeds)])


def report(tables: Mapping[str, SketchTable], curves: Mapping[tuple[str, str], Floats]) -> str:
    """The tables as Markdown, and the order of the searches."""
    trials = next(iter(curves.values())).shape[1]
    columns = [f"trials to {GOAL:.2f}", *(f"best after {count}" for count in AFTER if count <= trials)]
    parts = [_order(tables, curves, trials)]
    for program, table in tables.items():
        rows = [[way, *_cells(curves[program, way])] for way in WAYS]
        right = table.microseconds[np.isfinite(table.microseconds)]
        good = int((right <= GOAL * right.min()).sum())
        said = f"{len(table.digits)} candidates of {len(table.union.labels)} sketches, {len(right)} of them right"
        parts.append(f"**{program}**: {said}; {right.min():.0f} us at best, {good} within 5 % of it.")
        parts.append(markdown([["search", *columns], *rows]))
    return "\n\n".join(parts)


def picture(tables: Mapping[str, SketchTable], curves: Mapping[tuple[str, str], Floats]) -> str:
    """An SVG with a chart for each program: the table's best as a part of what was found, over trials; medians, and
    between quartiles."""
    rows = -(-len(tables) // COLUMNS)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * WIDTH} {rows * HEIGHT}">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for number, program in enumerate(tables):
        series = [_drawn(way, curves[program, way], color) for way, color in zip(WAYS, COLORS, strict=True)]
        at = f"translate({number % COLUMNS * WIDTH} {number // COLUMNS * HEIGHT})"
        parts.append(f'<g transform="{at}">{chart(program, Axis("trials"), Axis("of the best"), series)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _drawn(way: str, curves: Floats, color: str) -> Series:
    """A point where the median or a quartile changes."""
    low, middle, high = np.quantile(1.0 / curves, (0.25, 0.5, 0.75), axis=0, method="nearest")
    changes = np.any(np.diff(np.stack([low, middle, high]), axis=1) != 0, axis=0)
    places = [0, *(np.flatnonzero(changes) + 1).tolist(), curves.shape[1] - 1]
    band = [(place + 1.0, float(low[place]), float(high[place])) for place in places]
    return Series(way, [(place + 1.0, float(middle[place])) for place in places], color, Mark.STEPS, band)


def _cells(curves: Floats) -> list[str]:
    trials = curves.shape[1]
    counts = [count for count in AFTER if count <= trials]
    return [
        _quartiles(trials_to(curves, GOAL), lambda value: f"{value:.0f}" if value <= trials else f"> {trials}"),
        *(_quartiles(curves[:, count - 1], lambda value: f"{value:.2f}") for count in counts),
    ]


def _quartiles(values: Floats, said: Callable[[float], str]) -> str:
    """The median, and the quartiles in parentheses. Of values that may be infinite, each is one of them."""
    low, middle, high = (float(np.quantile(values, part, method="nearest")) for part in (0.25, 0.5, 0.75))
    return f"{said(middle)} ({said(low)} to {said(high)})"


def _order(tables: Mapping[str, SketchTable], curves: Mapping[tuple[str, str], Floats], trials: int) -> str:
    """The searches, fastest first, by the geometric mean over programs of the median number of trials."""

    def needed(way: str) -> float:
        medians = [float(np.median(np.minimum(trials_to(curves[name, way], GOAL), trials))) for name in tables]
        return exp(sum(map(log, medians)) / len(medians))

    ordered = sorted(WAYS, key=needed)
    said = ", ".join(f"{way} {needed(way):.0f}" for way in ordered)
    return (
        f"Trials until something is within 5 % of the table's best, fewest first (geometric means over programs of the"
        f" medians, {trials} where it is never found): {said}."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay, print, and write."""
    options = _options(arguments)
    paths = {name: path_of(options.folder, name) for name in options.programs}
    if missing := [name for name, path in paths.items() if not path.exists()]:
        raise SystemExit(
            f"no table of {', '.join(missing)} in {options.folder}: python -m benchmarks.ablation.record_sketches"
        )
    tables = {name: SketchTable.load(path) for name, path in paths.items()}
    curves = replayed(tables, options.trials, options.seeds)
    text = report(tables, curves)
    print(text)
    if options.write:
        options.picture.write_text(picture(tables, curves))
        link = f"![{CAPTION}](../{options.picture.name})"
        options.document.write_text(splice(options.document.read_text(), BLOCK, f"{text}\n\n{link}"))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation.sketches", description="Searches in tables.")
    parser.add_argument("--programs", type=names, default=list(PROGRAMS), help=f"default {','.join(PROGRAMS)}")
    parser.add_argument("--trials", type=int, default=1000, help="of each search, default %(default)s")
    parser.add_argument("--seeds", type=int, default=8, help="searches of each kind, default %(default)s")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the tables, default %(default)s")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="default %(default)s")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="written beside it, default %(default)s")
    parser.add_argument("--write", action="store_true", help="put the tables into the document, and draw the picture")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
