"""The analytic choice and the tuner in simulated cycles of ARM cores: `python -m benchmarks.simulated`.

For each convolution of ResNet-18 (C1 to C12), and each core, a search of some candidates. Printed are simulated cycles
of the best one, and as multiples of them: of the analytic choice; of the choice by the figures that are fitted to
AVX-512 (those of a processor without a table); and of the schedule that is chosen for an x86 with AVX-512, as it is.
Cycles are simulated, so nothing has to be quiet, and the same command prints the same numbers. What is measured is kept
in a database, and not measured again. Needs the extra `simulation`.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.simulated import simulating
from tilewright.schedule.schedule import Schedule
from tilewright.simulation.cores import device_of
from tilewright.target.machine import Machine
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import QUICK, KernelTuner, Setup
from tilewright.tune.measurer import Measurer
from tilewright.tune.recorded import SEARCHING
from tilewright.tune.untuned import schedule

from .ablation.layers import LAYERS, space_of
from .options import names
from .scheduling import CALLS
from .tables import geometric_mean

TARGETS = ("aarch64,cortex-a72", "aarch64,cortex-a76")
X86 = Target.parse("x86_64,znver4")
RECORDS = Path("build/simulated.db")
WITHIN = 1.1
"""By how much a choice may be slower than the best one, to count as good."""


@dataclass(frozen=True, slots=True)
class Row:
    """Thousands of cycles of a layer: by the analytic choice, by that of figures of AVX-512, by that for an x86, and at
    best."""

    layer: str
    analytic: float
    figures: float
    x86: float
    best: float
    tried: int
    macs: int

    def __str__(self) -> str:
        per_vector = 4e3 * self.best / self.macs
        others = " ".join(f"{one / self.best:8.2f}" for one in (self.analytic, self.figures, self.x86))
        return f"{self.layer:>6} {self.tried:6} {self.best:10.0f} {per_vector:10.2f} {others}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing; print a table for each core."""
    options = _options(arguments)
    options.records.parent.mkdir(parents=True, exist_ok=True)
    for name in options.targets:
        target = Target.parse(name)
        print(f"{target}: {device_of(target)}")
        print(" layer  tried    kcycles per vector analytic  figures  for x86", flush=True)
        rows: list[Row] = []
        for row in measured(target, options.layers, options.trials, options.records, options.lanes):
            rows.append(row)
            print(row, flush=True)
        print(*summary(rows), sep="\n", flush=True)


def measured(target: Target, layers: Sequence[str], trials: int, path: Path, lanes: int) -> Iterator[Row]:
    """A row for each layer."""
    with (
        Records.open(path) as records,
        records.session({"benchmark": "simulated", "target": str(target)}) as session,
        simulating(lanes) as runner,
    ):
        measurer = Measurer(runner, records, session)
        for layer in layers:
            yield _row(layer, target, trials, measurer)


def _row(layer: str, target: Target, trials: int, measurer: Measurer) -> Row:
    facts, space = LAYERS[layer], space_of(LAYERS[layer], target)
    setup = Setup(simulated=device_of(target), transfer=False)
    tuner = KernelTuner(space, measurer, setup)
    usual = replace(target, machine=Machine(), l1_bytes=32 << 10, l2_bytes=512 << 10, l3_bytes=8 << 20)
    figures = _cycles(schedule(space.naive, usual), target, str(space.naive), setup, measurer)
    other = space_of(facts, X86)
    x86 = _cycles(schedule(other.naive, X86), target, str(other.naive), setup, measurer)
    while len(tuner.history.digits) < trials and not tuner.is_over:
        tuner.round()
    if tuner.history.details:
        raise RuntimeError(tuner.history.causes())
    analytic, best = tuner.analytic_seconds, tuner.best_seconds
    assert analytic is not None and best is not None
    size = -(-facts.size // facts.stride)
    macs = size**2 * facts.inputs * facts.outputs * facts.kernel**2
    least = min(best * 1e6, figures)
    return Row(layer, analytic * 1e6, figures, x86, least, 2 + len(tuner.history.digits), macs)


def _cycles(made: Schedule, target: Target, program: str, setup: Setup, measurer: Measurer) -> float:
    timing = replace(QUICK, simulated=setup.simulated)
    job = Job(program, made.trace.to_json(), str(target), 1, SEARCHING, timing, str(made.program))
    (outcome,) = measurer.measure([job])
    if outcome.median_us is None:
        raise RuntimeError(outcome.detail)
    return outcome.median_us


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """What the table says."""
    good = sum(row.analytic <= WITHIN * row.best for row in rows)
    yield f"schedules: {sum(row.tried for row in rows)}"
    yield f"analytic choice within 10 % of the best: {good} of {len(rows)} layers"
    for name, others in (
        ("the analytic choice", [row.analytic for row in rows]),
        ("the choice by figures of AVX-512", [row.figures for row in rows]),
        ("the schedule for an x86", [row.x86 for row in rows]),
    ):
        gain = geometric_mean([other / row.best for other, row in zip(others, rows, strict=True)])
        calls = [CALLS[row.layer] for row in rows]
        before = sum(count * other for count, other in zip(calls, others, strict=True))
        after = sum(count * row.best for count, row in zip(calls, rows, strict=True))
        yield f"tuned, over {name}: {gain:.2f}; all layers as often as the network has them: {before / after:.2f}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulated", description="Choices in simulated cycles.")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), help="default %(default)s")
    parser.add_argument("--layers", type=names, default=list(LAYERS), help=f"default {','.join(LAYERS)}")
    parser.add_argument("--trials", type=int, default=8, help="candidates of each search, default %(default)s")
    parser.add_argument("--records", type=Path, default=RECORDS, help="database, default %(default)s")
    parser.add_argument("--lanes", type=int, default=2, help="candidates at once, default %(default)s")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
