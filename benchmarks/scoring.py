"""How many individuals of an evolution are looked at in a second: `python -m benchmarks.scoring [PROGRAM ...]`.

For each program of benchmarks/unseen, a population of all its sketches (`--population`, 2048): CPU seconds of one core
for the features of all of them, when their patterns are new and when they are known (others are scheduled, once); the
same for siblings, which are of one pattern, as in an evolution that has converged; with the scores of a statement model
(trees fitted on made-up times); and what scheduling one candidate and looking at its statements takes.
"""

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

from tilewright import te
from tilewright.base.errors import BadInput, ScheduleError
from tilewright.sketch import sketch_spaces
from tilewright.sketch.pattern import NoPattern, Pattern, pattern_of
from tilewright.space.space import Digits, Space
from tilewright.space.union import Union
from tilewright.target.target import Target
from tilewright.tune.features.individuals import Individuals
from tilewright.tune.features.statements import statement_features
from tilewright.tune.models.statements import MeasuredPrograms, StatementModel

from .unseen.programs import PROGRAMS

REPLAYED = 20
"""Candidates that are scheduled one by one."""
FITTED = 256
"""Candidates that the model is fitted on."""
COLUMNS = ("new patterns", "known", "patterns", "by patterns", "scheduled", "one pattern", "and scores", "one by one")


def seconds(run: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def siblings(union: Union, count: int, random: np.random.Generator) -> Digits:
    """Candidates of one pattern: that of the first candidate that has one."""
    member = int(random.integers(len(union.members)))
    space = union.members[member]
    pattern = first_pattern(space, space.sample(count, random))
    found = space.sample(2 * count, random)
    for knob, allowed in pattern.options.items():
        found[:, knob] = random.choice(np.flatnonzero(allowed), len(found))
    alike = found[pattern.matches(found)]
    return union.digits_in(member, alike[np.arange(count) % len(alike)])


def first_pattern(space: Space, digits: Digits) -> Pattern:
    """The pattern of the first candidate that has one."""
    for own in digits:
        try:
            return pattern_of(space, own, tiles_only=True)
        except (NoPattern, ScheduleError):
            continue
    raise BadInput("no candidate has a pattern")


def measured(name: str, population: int, target: Target) -> list[str]:
    """A row of the table: individuals a second."""
    random = np.random.default_rng(0)
    found = sketch_spaces(te.create_schedule(PROGRAMS[name].outputs()).program, target)
    union = Union(tuple(space for _, space in found), tuple(str(sketch) for sketch, _ in found))
    individuals, digits = Individuals(union), union.sample(population, random)
    new = seconds(lambda: individuals.of(digits))
    counts = individuals.counts
    patterns, looked_at, scheduled = counts.patterns, counts.by_pattern, counts.by_replay
    known = seconds(lambda: individuals.of(digits))
    alike = siblings(union, population, random)
    individuals.of(alike)
    one = seconds(lambda: individuals.of(alike))
    model = StatementModel()
    rows = individuals.of(alike[:FITTED])
    model.fit([MeasuredPrograms(rows, random.random(len(rows)))])
    scored = seconds(lambda: model.score(individuals.of(alike)))
    each = seconds(lambda: [_scheduled(union, own, target) for own in digits[:REPLAYED]]) / REPLAYED
    return [
        *(f"{population / spent:,.0f}" for spent in (new, known)),
        *map(str, (patterns, looked_at, scheduled)),
        *(f"{population / spent:,.0f}" for spent in (one, scored)),
        f"{1 / each:,.0f}",
    ]


def _scheduled(union: Union, digits: Digits, target: Target) -> None:
    try:
        statement_features(union.schedule(digits).program, target)
    except ScheduleError:
        return


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Individuals of an evolution that are looked at in a second.")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"default all: {', '.join(PROGRAMS)}")
    parser.add_argument("--population", type=int, default=2048)
    parser.add_argument("--target", type=Target.parse, default=Target.host())
    given = parser.parse_args(arguments)
    print(f"| program | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}", flush=True)
    for name in given.programs or PROGRAMS:
        print(f"| {name} | {' | '.join(measured(name, given.population, given.target))} |", flush=True)


if __name__ == "__main__":
    main()
