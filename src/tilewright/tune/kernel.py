"""Tuning one program: in its own space, or in that of a template.

best = tune_kernel(te.create_schedule(C).program, template=matmul, trials=64)
print(best.microseconds, best.schedule.trace)
"""

from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

from tilewright.base.errors import BadInput, MeasureError
from tilewright.base.search import Model, Search
from tilewright.loops.program import Program
from tilewright.measure.pool import Pool
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.space.config import Generator
from tilewright.space.space import Space
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import KernelTuner, Setup
from tilewright.tune.measurer import Measurer
from tilewright.tune.recorded import named
from tilewright.tune.spaces import space_of
from tilewright.tune.strategy import Models, Searches, model_named, search_named


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """The fastest schedule that was found, and what it takes; ``compilers_microseconds``: what the compiler's own
    choice takes, infinity if it is not right. ``tried``: candidates, those that failed included."""

    schedule: Schedule
    microseconds: float
    compilers_microseconds: float
    tried: int


def tune_kernel(
    naive: Program,
    *,
    template: Generator | None = None,
    trials: int = 64,
    search: Searches | str = Search.ANNEALING,
    cost_model: Models | str = Model.TREES,
    threads: int = 1,
    seed: int = 0,
    target: Target | None = None,
    records: Path | None = None,
) -> TunedKernel:
    """The fastest of about ``trials`` schedules of ``naive``, and of what the compiler does with it.

    ``search``, ``cost_model``: by name, or objects of one's own. ``records``: a database, in which what was measured is
    remembered; ``compile`` uses the best if it is not the compiler's own. Each candidate is built, checked and timed in
    child processes. Raises ``BadInput`` for run-time extents and names that nobody has, ``ScheduleError`` for a
    template that has no schedule, ``MeasureError`` if nothing is right.
    """
    if naive.dims:
        raise BadInput(f"{naive.name} has run-time extents: what is measured has fixed ones")
    for_target, kernel = target or Target.host(), named(naive)
    space = space_of(kernel, for_target) if template is None else Space.of(template, kernel, for_target)
    setup = Setup(
        seed=seed,
        threads=threads,
        search=search_named(search) if isinstance(search, str) else search,
        model=model_named(cost_model) if isinstance(cost_model, str) else cost_model,
    )
    with ExitStack() as stack:
        path = records or Path(stack.enter_context(TemporaryDirectory(prefix="tilewright-tune-"))) / "records.db"
        kept = stack.enter_context(Records.open(path))
        session = stack.enter_context(kept.session({"tune": naive.name, "trials": trials, "seed": seed}))
        measurer = Measurer(stack.enter_context(Pool(for_target.cores)), kept, session)
        tuner = KernelTuner(space, measurer, setup)
        while not tuner.is_over and len(tuner.history.digits) < trials:
            tuner.round()
        first, *others = tuner.confirm()
        best = min((first, *others), key=lambda candidate: candidate.microseconds)
        if best.microseconds == inf:
            raise MeasureError(f"no schedule of {naive.name} is right: {tuner.history.causes()}")
        if best is not first:
            measurer.put(best.job, State.CONFIRMED)
    schedule = replay(Trace.from_json(best.job.trace), naive)
    return TunedKernel(schedule, best.microseconds, first.microseconds, len(tuner.history.digits))
