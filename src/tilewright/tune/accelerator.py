"""``tune_accelerator``: tunes a program for the accelerator, by the cycles that its simulator counts.

best = tilewright.tune.accelerator.tune_accelerator(te.create_schedule(result).program, VTA, trials=64)
print(best.cycles, best.analytic_cycles, best.schedule.trace)
"""

import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from tilewright.backend.vta.config import VTA, Config
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.schedules.template import space_of
from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.errors import BadInput, MeasureError
from tilewright.base.search import Model, Search
from tilewright.loops.program import Program
from tilewright.measure.records import Records
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.tune.cycle_bench import CycleBench
from tilewright.tune.kernel import DEFAULT_TRIALS, MOST_MINUTES, MOST_TRIALS
from tilewright.tune.kernel_tuner import KernelTuner, Setup
from tilewright.tune.measurer import Measurer
from tilewright.tune.recorded import named
from tilewright.tune.strategy import Models, Searches, model_named, search_named


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
    trials: Annotated[int, Within(1, MOST_TRIALS)] | None = None,
    minutes: Annotated[float, Within(0.0, MOST_MINUTES)] | None = None,
    search: Searches | str = Search.ANNEALING,
    cost_model: Models | str = Model.TREES,
    seed: int = 0,
    records: FilePath | None = None,
) -> TunedAccelerator:
    """The schedule of ``naive`` with the fewest cycles of about ``trials`` ones, or of those simulated in ``minutes``.

    The tuner is that of ``tune_kernel``, the space that of the template (``vta.schedules``); each candidate is checked.
    ``records``: a database of its own, in which each outcome has the cycles, and the session the configuration.
    ``compile`` does not use it. Raises ``BadInput`` for run-time extents and records of other devices, ``BadProgram``
    if no tile fits the memories, ``MeasureError`` if no candidate is right.
    """
    if naive.dims:
        raise BadInput(f"{naive.name} has run-time extents: the accelerator's programs have fixed ones")
    times, kernel = timing or Timing(), named(naive)
    space = space_of(kernel, config, times, Target.host())
    setup = Setup(
        seed=seed,
        search=search_named(search) if isinstance(search, str) else search,
        model=model_named(cost_model) if isinstance(cost_model, str) else cost_model,
        transfer=False,
    )
    device = {"simulator": "cycles", "config": asdict(config), "timing": asdict(times)}
    told = {"tune": naive.name, "trials": trials, "seed": seed, "device": device}
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="tilewright-tune-"))
        path = Path(folder) / "records.db" if records is None else Path(records)
        kept = stack.enter_context(Records.open(path))
        if any(earlier.get("device") != device for earlier in kept.configs()):
            raise BadInput(f"{path} has measurements of another device, or other times; give each a file of its own")
        session = stack.enter_context(kept.session(told))
        tuner = KernelTuner(space, Measurer(CycleBench(config, times), kept, session), setup)
        end = None if minutes is None else time.monotonic() + 60 * minutes
        most = DEFAULT_TRIALS if trials is None and minutes is None else trials or MOST_TRIALS
        while not tuner.is_over and len(tuner.history.digits) < most:
            tuner.round()
            if end is not None and time.monotonic() >= end:
                break
    best = tuner.history.best
    if best is None or tuner.best_seconds is None:
        raise MeasureError(f"no schedule of {naive.name} is right: {tuner.history.causes()}")
    schedule = space.schedule(tuner.history.digits[best])
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
