"""``tune_kernel``: tunes one program, in its own space or in that of a template.

best = tilewright.tune_kernel(te.create_schedule(C).program, template=matmul, trials=64)
print(best.microseconds, best.schedule.trace)
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.errors import BadInput, MeasureError, ScheduleError
from tilewright.base.events import Listener, Searched, ignore
from tilewright.base.search import Model, Spaces
from tilewright.cost.recurrence import is_recurrent
from tilewright.loops.identity import identity
from tilewright.loops.program import Program
from tilewright.measure.pool import Pool
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.simulated import simulating
from tilewright.schedule.schedule import Schedule
from tilewright.simulation.cores import device_of
from tilewright.sketch import SketchRule
from tilewright.space.config import Generator
from tilewright.space.space import Candidates, Space
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import KernelTuner, Setup
from tilewright.tune.known import measured_before
from tilewright.tune.measurer import Measurer
from tilewright.tune.nearest import measured_nearby
from tilewright.tune.recorded import named, replayed
from tilewright.tune.spaces import candidates_of
from tilewright.tune.strategy import Models, Searches, model_named, search_for, spaces_named

DEFAULT_TRIALS = 64
MOST_TRIALS, MOST_THREADS, MOST_MINUTES = 1_000_000, 1024, 1e6


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """The fastest schedule that was found, and what it takes; ``analytic_microseconds``: what the analytic
    choice takes, infinity if it is not right. ``tried``: candidates, those that failed included. ``is_kept``: it is
    faster, ``records`` have it, and ``compile`` can use it: it needs nothing that is not installed. ``looked_at``: how
    the cost model looked at candidates, with what it left out; empty if it does not say."""

    schedule: Schedule
    microseconds: float
    analytic_microseconds: float
    tried: int
    is_kept: bool
    looked_at: str = ""


@checked(BadInput)
def tune_kernel(
    naive: Program,
    *,
    template: Generator | None = None,
    space: Spaces | str = Spaces.TEMPLATES,
    sketch_rules: Sequence[SketchRule] = (),
    standard_rules: bool = True,
    trials: Annotated[int, Within(1, MOST_TRIALS)] | None = None,
    minutes: Annotated[float, Within(0.0, MOST_MINUTES)] | None = None,
    search: Searches | str | None = None,
    cost_model: Models | str = Model.TREES,
    threads: Annotated[int, Within(1, MOST_THREADS)] = 1,
    seed: int = 0,
    target: Target | None = None,
    transfer: bool = True,
    simulated: bool = False,
    records: FilePath | None = None,
    listener: Listener = ignore,
) -> TunedKernel:
    """The fastest of about ``trials`` schedules of ``naive``, or of as many as are measured in ``minutes``, and of what
    the compiler does with it. (Neither is given: 64 trials.)

    ``template``: whose space is searched; without one, ``space`` says what: the compiler's own spaces, sketches, which
    are derived from the program alone (with ``sketch_rules`` of one's own; without those of the target if not
    ``standard_rules``), or all.
    ``search``, ``cost_model``: by name, or objects of one's own. ``records``: a database, in which what was measured is
    remembered, and from which the cost model learns what was measured of similar kernels (``transfer``); ``compile``
    uses the best if it is not the analytic choice. ``listener`` gets an event after each round (``base.events``), so
    ``print`` shows how far it is. ``simulated``: for an AArch64 ``target`` that is not here, whose
    thousands of simulated cycles are then called microseconds (``docs/simulation.md``). Each candidate is built,
    checked and timed in child processes, which get the tensor intrinsics that its schedule uses. Raises, before
    anything is measured, ``BadInput`` for run-time extents, names that nobody has, records that can't be written and
    more than one simulated thread, ``ScheduleError`` for a template that has no schedule, ``Unsupported`` for a target
    that can't be simulated; ``MeasureError`` if nothing is right.
    """
    if naive.dims:
        sizes = ", ".join(dim.var.name for dim in naive.dims)
        raise BadInput(
            f"{naive.name} has run-time extents ({sizes}): what is measured has fixed ones; give numbers in the shapes,"
            " or let te.autoschedule choose without trials= and minutes="
        )
    if simulated and threads != 1:
        raise BadInput(f"cycles are simulated for one thread, not {threads}: leave threads out")
    for_target, kernel = target or Target.host(), named(naive)

    what = space if isinstance(space, Spaces) else spaces_named(space)

    def space_for(program: Program, target: Target) -> Candidates | None:
        if template is not None:
            return Space.of(template, program, target)
        return candidates_of(program, target, what, sketch_rules, standard=standard_rules, threads=threads)

    candidates = space_for(kernel, for_target)
    if candidates is None:
        remedy = _remedy(naive, what, standard_rules=standard_rules)
        raise BadInput(f"{naive.name} leaves nothing to choose in {what.value}: {remedy}")
    setup = Setup(
        seed=seed,
        threads=threads,
        search=search_for(search, what),
        model=model_named(cost_model) if isinstance(cost_model, str) else cost_model,
        transfer=transfer,
        simulated=device_of(for_target) if simulated else "",
    )
    names: dict[str, object] = {identity(kernel): {"name": naive.name, "nodes": ()}}
    told = {"tune": naive.name, "trials": trials, "seed": seed, "kernels": names}
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="tilewright-tune-"))
        path = Path(folder) / "records.db" if records is None else Path(records)
        kept = stack.enter_context(Records.open(path))
        session = stack.enter_context(kept.session(told))
        bench = simulating(Target.host().cores) if simulated else Pool(for_target.cores)
        measurer = Measurer(stack.enter_context(bench), kept, session)
        history = measured_nearby(kept, candidates, setup, space_for) if transfer else ()
        tuner = KernelTuner(candidates, measurer, setup, history=history)
        if transfer:
            tuner.start_from(measured_before(kept, candidates, threads, tuner.timing))
        end = None if minutes is None else time.monotonic() + 60 * minutes
        most = DEFAULT_TRIALS if trials is None and minutes is None else trials or MOST_TRIALS
        while not tuner.is_over and len(tuner.history.digits) < most:
            tuner.round()
            listener(
                Searched(naive.name, len(tuner.history.digits), _us(tuner.best_seconds), _us(tuner.analytic_seconds))
            )
            if end is not None and time.monotonic() >= end:
                break
        first, *others = tuner.confirm()
        best = min((first, *others), key=lambda candidate: candidate.microseconds)
        if best.microseconds == inf:
            raise MeasureError(f"no schedule of {naive.name} is right: {tuner.history.causes()}")
        is_kept = records is not None and best is not first and _is_known(best.job.trace, naive)
        if is_kept:
            measurer.put(best.job, State.CONFIRMED)
    schedule = best.schedule.copy()
    schedule.program = replace(schedule.program, name=naive.name)
    tried = len(tuner.history.digits)
    return TunedKernel(schedule, best.microseconds, first.microseconds, tried, is_kept, tuner.looked_at)


def _remedy(naive: Program, spaces: Spaces, *, standard_rules: bool) -> str:
    """Why there is nothing to choose, and what to do."""
    if spaces is Spaces.SKETCHES and is_recurrent(naive):
        return "no sketches are made of recurrences (te.scan); give space='all'"
    if spaces is Spaces.SKETCHES and not standard_rules:
        return "the rules of sketch_rules= ask for nothing; leave standard_rules=False out, or give rules that ask"
    return "it has one schedule, which te.autoschedule gives without trials= and minutes="


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else 1e6 * seconds


def _is_known(trace: str, naive: Program) -> bool:
    """Whether the compiler can make this schedule from the trace alone."""
    try:
        replayed(trace, naive)
    except ScheduleError:
        return False
    return True
