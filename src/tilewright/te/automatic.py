"""Schedules that nobody writes: the analytic choice, or the best of those that were measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from tilewright.backend.api import Backend
from tilewright.backend.choice import backend as backend_of
from tilewright.backend.cpu.backend import CPU
from tilewright.backend.vta.backend import Accelerator
from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.errors import BadInput, BadProgram
from tilewright.base.events import Listener, ignore
from tilewright.base.search import Model, Spaces
from tilewright.loops.program import Program
from tilewright.runtime.abi import MAX_THREADS
from tilewright.schedule.schedule import Schedule
from tilewright.sketch import SketchRule
from tilewright.target.target import Target
from tilewright.te.kernel import target_of
from tilewright.te.stage import TeSchedule, create_schedule
from tilewright.tensor.ir import Tensor
from tilewright.tune.accelerator import accelerator_space, tune_accelerator
from tilewright.tune.kernel import MOST_MINUTES, tune_kernel
from tilewright.tune.strategy import Models, Searches, spaces_named
from tilewright.tune.untuned import schedule


@checked(BadProgram)
def autoschedule(
    outputs: Tensor | Sequence[Tensor],
    target: Target | str = "host",
    *,
    backend: Backend | str = CPU,
    name: str = "main",
    inputs: Sequence[Tensor] | None = None,
    constants: Sequence[Tensor] = (),
    dims: Mapping[str, int] | None = None,
    trials: Annotated[int, Within(0, 1 << 20)] | None = None,
    minutes: Annotated[float, Within(0.0, MOST_MINUTES)] | None = None,
    space: Spaces | str = Spaces.ALL,
    sketch_rules: Sequence[SketchRule] = (),
    standard_rules: bool = True,
    search: Searches | str | None = None,
    cost_model: Models | str = Model.TREES,
    threads: Annotated[int, Within(1, MAX_THREADS)] = 1,
    seed: int = 0,
    records: FilePath | None = None,
    listener: Listener = ignore,
) -> TeSchedule:
    """A schedule of the program that computes ``outputs``: the compiler's choice for ``target`` by its cost model.

    With ``trials`` or ``minutes``, candidates are measured, so many or for so long, each checked and timed in child
    processes, and the fastest of them and of the analytic choice is returned; the other arguments are those of
    ``tilewright.tune_kernel``. Its ``trace`` and ``print`` show what was chosen. ``backend``: ``"vta"``, or an object,
    for the accelerator: candidates are then simulated (``tune_accelerator``), and without trials the choice is that of
    the estimates. Raises ``BadInput`` for run-time extents if there are trials, ``MeasureError`` if no candidate can be
    measured.

    ``constants``: as of ``create_schedule``; sketches choose their layouts, for CPUs.
    """
    by = backend_of(backend)
    if isinstance(by, Accelerator):
        if constants:
            raise BadInput("layouts of constants are chosen for CPUs: leave constants= out")
        begun, what = create_schedule(outputs, name, inputs=inputs, dims=dims), _spaces(space)
        if not trials and not minutes:
            return begun.scheduled(_analytic(begun.naive, by, what))
        found = tune_accelerator(
            begun.naive,
            by.config,
            by.timing,
            space=what,
            trials=trials or None,
            minutes=minutes,
            search=search,
            cost_model=cost_model,
            seed=seed,
            records=records,
        )
        return begun.scheduled(found.schedule)
    if by != CPU:
        raise BadInput(f"schedules are chosen for cpu and vta, not for {by.name}: leave backend= out")
    made = create_schedule(outputs, name, inputs=inputs, constants=constants, dims=dims)
    chosen = target_of(target)
    if not trials and not minutes:
        return made.scheduled(schedule(made.naive, chosen))
    tuned = tune_kernel(
        made.naive,
        trials=trials or None,
        minutes=minutes,
        space=space,
        sketch_rules=sketch_rules,
        standard_rules=standard_rules,
        search=search,
        cost_model=cost_model,
        threads=threads,
        seed=seed,
        target=chosen,
        records=None if records is None else Path(records),
        listener=listener,
    )
    return made.scheduled(tuned.schedule)


def _spaces(space: Spaces | str) -> Spaces:
    return spaces_named(space) if isinstance(space, str) else space


def _analytic(naive: Program, backend: Accelerator, spaces: Spaces) -> Schedule:
    """The accelerator's schedule with the least estimate."""
    found = accelerator_space(naive, backend.config, backend.timing, spaces)
    first = found.analytic()
    assert first is not None, "spaces for the accelerator begin with a candidate"
    return found.schedule(first)
