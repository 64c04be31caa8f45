"""``tune_accelerator``: tunes a program for the accelerator, by the cycles that its simulator counts.

best = tilewright.tune.accelerator.tune_accelerator(te.create_schedule(result).program, VTA, trials=64, space="all")
print(best.cycles, best.analytic_cycles, best.schedule.trace)
"""

import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from tilewright.backend.vta.config import VTA, Config
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.memories import gemm
from tilewright.backend.vta.schedules.roles import has_template
from tilewright.backend.vta.schedules.template import space_of
from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.errors import BadInput, MeasureError
from tilewright.base.search import Model, Spaces
from tilewright.loops.program import Program
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.schedule.intrinsics import IntrinsicSet
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.sketch.accelerator import InCycles, sketch_space
from tilewright.space.space import Candidates
from tilewright.target.target import Target
from tilewright.tune.cycle_bench import CycleBench
from tilewright.tune.kernel import DEFAULT_TRIALS, MOST_MINUTES, MOST_TRIALS
from tilewright.tune.kernel_tuner import KernelTuner, Setup
from tilewright.tune.measurer import Measurer
from tilewright.tune.recorded import named
from tilewright.tune.spaces import TEMPLATE
from tilewright.tune.strategy import Models, Searches, model_named, search_for, spaces_named


@dataclass(frozen=True, slots=True)
class TunedAccelerator:
    """The fastest schedule that was found; ``analytic_cycles``: those of the analytic choice. ``tried``: candidates."""

    schedule: Schedule
    cycles: int
    analytic_cycles: int | None
    tried: int


@checked(BadInput)
def tune_accelerator(
    naive: Program,
    config: Config = VTA,
    timing: Timing | None = None,
    *,
    space: Spaces | str = Spaces.TEMPLATES,
    trials: Annotated[int, Within(1, MOST_TRIALS)] | None = None,
    minutes: Annotated[float, Within(0.0, MOST_MINUTES)] | None = None,
    search: Searches | str | None = None,
    cost_model: Models | str = Model.TREES,
    seed: int = 0,
    records: FilePath | None = None,
) -> TunedAccelerator:
    """The schedule of ``naive`` with the fewest cycles of about ``trials`` ones, or of those simulated in ``minutes``.

    The tuner is that of ``tune_kernel``; each candidate is checked. ``space``: the template's (``vta.schedules``), that
    of sketches (``sketch.accelerator``), or both. ``records``: a database of its own, in which each outcome has the
    cycles, and the session the configuration; ``kept_schedule`` finds the best there. Raises ``BadInput`` for run-time
    extents and records of other devices, ``BadProgram`` if no tile fits the memories, ``Unsupported`` for what the
    accelerator can't compute, or for several reductions if only the template is asked for; ``MeasureError`` if no
    candidate is right.
    """
    if naive.dims:
        raise BadInput(f"{naive.name} has run-time extents: the accelerator's programs have fixed ones")
    times, kernel = timing or Timing(), named(naive)
    what = spaces_named(space) if isinstance(space, str) else space
    searched = accelerator_space(kernel, config, times, what)
    setup = Setup(
        seed=seed,
        search=search_for(search, what),
        model=model_named(cost_model) if isinstance(cost_model, str) else cost_model,
        transfer=False,
    )
    device = _device(config, times)
    told = {"tune": naive.name, "trials": trials, "seed": seed, "device": device}
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="tilewright-tune-"))
        path = Path(folder) / "records.db" if records is None else Path(records)
        kept = stack.enter_context(Records.open(path))
        _require_device(kept, path, device)
        session = stack.enter_context(kept.session(told))
        measurer = Measurer(CycleBench(config, times), kept, session)
        tuner = KernelTuner(searched, measurer, setup)
        end = None if minutes is None else time.monotonic() + 60 * minutes
        most = DEFAULT_TRIALS if trials is None and minutes is None else trials or MOST_TRIALS
        while not tuner.is_over and len(tuner.history.digits) < most:
            tuner.round()
            if end is not None and time.monotonic() >= end:
                break
        best = tuner.history.best
        if best is None or tuner.best_seconds is None:
            raise MeasureError(f"no schedule of {naive.name} is right: {tuner.history.causes()}")
        measurer.put(tuner.job(tuner.history.digits[best]), State.CONFIRMED)
    schedule = searched.schedule(tuner.history.digits[best])
    schedule.program = replace(schedule.program, name=naive.name)

    def cycles(seconds: float) -> int:
        return round(seconds * config.clock_mhz * 1e6)

    analytic = tuner.analytic_seconds
    return TunedAccelerator(
        schedule,
        cycles(tuner.best_seconds),
        None if analytic is None else cycles(analytic),
        len(tuner.history.digits),
    )


def accelerator_space(naive: Program, config: Config, timing: Timing, spaces: Spaces) -> Candidates:
    """What is searched for a program. Raises ``Unsupported``, ``BadProgram``: see ``tune_accelerator``."""
    target = Target.host()
    if spaces is Spaces.TEMPLATES:
        return space_of(naive, config, timing, target)
    sketched = sketch_space(naive, config, timing, target)
    if spaces is Spaces.SKETCHES or not has_template(naive):
        return sketched
    return InCycles.of([(TEMPLATE, space_of(naive, config, timing, target)), *sketched.labelled])


def kept_schedule(naive: Program, config: Config, timing: Timing, records: Path) -> Schedule | None:
    """The schedule with fewest cycles that ``records`` have of a program; None if they have none.

    Raises ``BadInput`` if there is no such file, or it is of another device.
    """
    with ExitStack() as stack:
        kept = Records.open_to_read(records)
        if kept is None:
            return None
        stack.enter_context(kept)
        _require_device(kept, records, _device(config, timing))
        found = [record for record in kept.of(named(naive)) if record.state is State.CONFIRMED]
    if not found:
        return None
    best = min(found, key=lambda record: record.outcome.median_us or inf)
    trace = Trace.from_json(best.job.trace)
    return replay(trace, naive, intrinsics=IntrinsicSet((gemm(config),)))


def _device(config: Config, timing: Timing) -> dict[str, object]:
    """What records say of the simulator."""
    return {"simulator": "cycles", "config": asdict(config), "timing": asdict(timing)}


def _require_device(records: Records, path: Path, device: dict[str, object]) -> None:
    if any(earlier.get("device") != device for earlier in records.configs()):
        raise BadInput(f"{path} has measurements of another device, or other times; give each a file of its own")
