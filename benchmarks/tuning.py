"""What tuning finds by itself: `python -m benchmarks.tuning`. Wants a quiet machine; needs LightGBM.

A network is tuned for some minutes, from the analytic choices or from random candidates; with `--ways`, other
algorithms and layouts are measured first. Then it is compiled with the best that was *found* for each kernel, and timed
beside the network as it is compiled without records, in turns. A search that begins with the analytic choice has found
that, too; one from random candidates may have found nothing so good. Prints both times, their ratio, and how many were
measured.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tilewright.api import compile as compile_model
from tilewright.base.search import Scheduling
from tilewright.base.settings import Settings
from tilewright.cli.feeds import make_feeds
from tilewright.measure.pool import Pool
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.turns import Plan, measure, ratio
from tilewright.model import CompiledModel
from tilewright.networks.network import computed_of
from tilewright.tune.kernel_tuner import Setup, Start
from tilewright.tune.measurer import Measurer
from tilewright.tune.model_tuner import ModelTuner, between_bytes
from tilewright.tune.recorded import SEARCHING
from tilewright.tune.scheduler.round_robin import RoundRobin
from tilewright.tune.ways import WayTuner

from .networks import ZOO


def compiled(options: argparse.Namespace, records: Path | None) -> CompiledModel:
    """The network, with what is in `records`."""
    settings = replace(Settings.from_environment(), records=records)
    path = options.zoo / f"{options.network}.onnx"
    return compile_model(path, threads=options.threads, target=options.target, math=options.math, settings=settings)


def compare_ways(
    before: CompiledModel, options: argparse.Namespace, measurer: Measurer, records: Records, draft: Records
) -> None:
    """Measure all ways to compute convolutions, and write the times to `draft`."""
    between = between_bytes(computed_of(before), before.options.target)
    ways = WayTuner(before.compiled.choices, options.threads, between)
    for _ in ways.measure(measurer, lambda: True):
        pass
    ways.accept(measurer)
    with draft.session({"benchmark": "tuning"}) as session:
        for record in ways.used(records):
            draft.add(session, record.job, record.outcome, State.COMPARED)


def searched(base: CompiledModel, options: argparse.Namespace, measurer: Measurer, end: float) -> ModelTuner:
    """The search, when its time is over."""
    setup = Setup(seed=options.seed, start=Start(options.start), threads=options.threads)
    scheduler = RoundRobin() if Scheduling(options.scheduler) is Scheduling.ROUND_ROBIN else None
    tuner = ModelTuner([computed_of(base)], base.options.target, measurer, setup, scheduler=scheduler)
    for _ in tuner.run(lambda: time.monotonic() < end):
        pass
    return tuner


def keep_found(tuner: ModelTuner, start: Start, records: Records, draft: Records) -> None:
    """Write the best that was found for each kernel to a database of its own, and print what all of them take."""
    total_found, total_analytic = 0.0, 0.0
    with draft.session({"benchmark": "tuning"}) as session:
        for kernel in tuner.kernels:
            analytic, *found = kernel.tuner.confirm()
            searched = replace(analytic.job, seed=SEARCHING, timing=kernel.tuner.timing)
            if start is Start.ANALYTIC or records.find(searched) is not None:
                found.append(analytic)
            best = min(found, key=lambda candidate: candidate.microseconds, default=None)
            if best is not None:
                print(
                    f"{kernel.name}: {kernel.weight} x {best.microseconds:.1f} us, {analytic.microseconds:.1f} analytic"
                )
                total_found += kernel.weight * best.microseconds
                total_analytic += kernel.weight * analytic.microseconds
            outcome = None if best is None else records.find(best.job)
            if best is not None and outcome is not None:
                draft.add(session, best.job, outcome, State.CONFIRMED)
    print(f"all kernels: {total_found / 1e3:.3f} ms found, {total_analytic / 1e3:.3f} ms analytic")


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, compile with what was found, compare."""
    options = _options(arguments)
    before = compiled(options, None)
    with TemporaryDirectory(prefix="tilewright-tuning-") as folder:
        path = Path(folder) / "draft.db"
        with (
            Records.open(Path(folder) / "records.db") as records,
            records.session({"benchmark": "tuning"}) as session,
            Records.open(path) as draft,
            Pool(2) as pool,
        ):
            measurer, end = Measurer(pool, records, session), time.monotonic() + 60 * options.minutes
            if options.ways:
                compare_ways(before, options, measurer, records, draft)
            tuner = searched(compiled(options, path), options, measurer, end)
            searching = measurer.measured
            keep_found(tuner, Start(options.start), records, draft)
        after = compiled(options, path)
    feeds = make_feeds(before.inputs, {}, 0)
    runs = {"analytic": lambda: before.run(None, feeds), "found": lambda: after.run(None, feeds)}
    timings = measure(runs, Plan(rounds=40, slot=0.1, rest=0.02))
    times = {name: timing.median * 1e3 for name, timing in timings.items()}
    print(
        f"{options.network}, {options.start} start, {options.scheduler}, {options.minutes:g} minutes:"
        f" {searching} measured"
    )
    print(f"{times['analytic']:.3f} ms analytic, {times['found']:.3f} ms found")
    found, analytic = timings["found"], timings["analytic"]
    first, third = statistics.quantiles((b / a for a, b in zip(found.medians, analytic.medians, strict=True)), n=4)[::2]
    speed = f"{1 / ratio(found, analytic):.3f} of the analytic choice's, in turns (quartiles {first:.3f}, {third:.3f})"
    print(f"speed of what was found: {speed}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description="What tuning finds by itself.")
    parser.add_argument("--network", default="resnet18", help="default %(default)s")
    parser.add_argument("--zoo", type=Path, default=ZOO, help="folder of the zoo, default %(default)s")
    parser.add_argument("--minutes", type=float, default=5.0, help="of searching, default %(default)s")
    parser.add_argument("--start", choices=[start.value for start in Start], default="random", help="default random")
    schedulers = [scheduling.value for scheduling in Scheduling]
    parser.add_argument(
        "--scheduler", choices=schedulers, default=Scheduling.GRADIENT.value, help="default %(default)s"
    )
    parser.add_argument("--ways", action="store_true", help="measure other algorithms and layouts first")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--threads", type=int, default=1, help="default 1")
    parser.add_argument("--target", default="host", help="a processor with fewer features, say; default this one")
    parser.add_argument("--math", default="default", help="default, strict or fast")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
