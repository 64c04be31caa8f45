"""Replays a trace: applies its steps to a program, with the recorded decisions or with others."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Signature, signature

from tilewright.base.errors import ScheduleError
from tilewright.loops.program import Program
from tilewright.schedule.intrinsics import IntrinsicSet
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import SAMPLING, Argument, Primitive, Result, Sampled, Step, Trace, UserStep
from tilewright.schedule.user_primitive import UserPrimitive


def replay(
    trace: Trace,
    program: Program,
    decisions: Mapping[int, tuple[int, ...]] | None = None,
    intrinsics: IntrinsicSet | None = None,
    primitives: Sequence[UserPrimitive] = (),
) -> Schedule:
    """The schedule that results from applying the steps of ``trace`` to ``program``.

    ``decisions`` replaces the decisions of sampling steps, by the position of the step. On the program of the trace,
    the result is the same program; on another one (another size), handles are mapped by the steps that produced them.
    ``primitives``: user-defined ones besides the installed ones. Raises ``ScheduleError`` if a step is refused.
    """
    schedule = Schedule(program, intrinsics, primitives=primitives)
    known: dict[Argument, Argument] = {}
    for position, step in enumerate(trace.steps):
        decided = tuple(int(result) for result in step.results if isinstance(result, Sampled))
        made = _run(schedule, step, (decisions or {}).get(position, decided), known)
        if len(made) != len(step.results):
            raise ScheduleError(f"step {position} of the trace, `{step}`, now has {len(made)} results\n\n{schedule}")
        known.update(zip(step.results, made, strict=True))
    return schedule


def _run(
    schedule: Schedule, step: Step, decided: tuple[int, ...], known: Mapping[Argument, Argument]
) -> tuple[Result, ...]:
    """Apply ``step``, with the handles mapped from the recorded ones; returns its results."""
    options = {name: _followed(value, known) for name, value in step.options}
    if step.primitive in SAMPLING:
        options["decision"] = decided[0] if step.primitive is Primitive.SAMPLE_CATEGORICAL else decided
    arguments = tuple(_followed(value, known) for value in step.arguments)
    if isinstance(step.primitive, UserStep):
        return schedule.apply(step.primitive.value, *arguments, **options)
    try:
        _signature(step.primitive).bind(schedule, *arguments, **options)
    except TypeError as error:
        raise ScheduleError(f"a step of the trace, `{step}`, is no call of {step.primitive.value}: {error}") from error
    method: Callable[..., object] = getattr(schedule, step.primitive.value)
    method(*arguments, **options)
    return schedule.trace.steps[-1].results


@cache
def _signature(primitive: Primitive) -> Signature:
    return signature(getattr(Schedule, primitive.value))


def _followed(value: Argument, known: Mapping[Argument, Argument]) -> Argument:
    if isinstance(value, tuple):
        return tuple(_followed(item, known) for item in value)
    return known.get(value, value)
