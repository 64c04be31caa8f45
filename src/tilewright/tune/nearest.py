"""Records of similar kernels, which differ only in their numbers, for transfer learning.

The best schedule of a similar kernel is a candidate for this one, and the cost model starts from their measurements
(Chen et al. 2018, section 4).
"""

from collections.abc import Callable
from itertools import groupby

import numpy as np

from tilewright.base.errors import TilewrightError
from tilewright.loops.identity import doublings_apart
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.measure.job import Timing
from tilewright.measure.records import Records
from tilewright.measure.row import Record, State
from tilewright.schedule.schedule import Schedule
from tilewright.space.space import Candidates, Digits
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import Setup, Start
from tilewright.tune.models.model import Measured
from tilewright.tune.models.rater import knob_view
from tilewright.tune.recorded import named, replayed

MOST_CANDIDATES = 1000
"""Of similar kernels: more teach little more, and each takes a fraction of a millisecond to read."""
Spaces = Callable[[Program, Target], Candidates | None]
"""The space in which a program is searched."""


def nearest_schedule(records: Records, naive: Program, target: Target, threads: int) -> Schedule | None:
    """The best schedule of the most similar kernel, applied to ``naive``; None if there is none, or it does not apply.

    Similar kernels differ only in numbers; the smaller the difference on a log2 scale, the more similar.
    """
    similar = records.relatives(naive, str(target), threads, State.CONFIRMED)
    if not similar:
        return None
    closest = min(similar, key=lambda record: doublings_apart(parse_program(record.job.program), naive))
    try:
        return replayed(closest.job.trace, naive)
    except TilewrightError:
        return None


def measured_nearby(records: Records, space: Candidates, setup: Setup, space_for: Spaces) -> list[Measured]:
    """What was measured of kernels that are similar to that of ``space``, as a model over knobs sees it.

    Kernels whose spaces have other knobs, or another template, are left out.
    """
    every = records.candidates(space.naive, str(space.target), setup.threads, MOST_CANDIDATES)
    found = [record for record in every if _place(record.job.timing) == _place(setup)]
    ordered = sorted(found, key=lambda record: record.job.program)
    kernels = (list(group) for _, group in groupby(ordered, key=lambda record: record.job.program))
    with_estimates = setup.start is Start.ANALYTIC
    seen = (_seen(of_one, space, space_for, with_estimates=with_estimates) for of_one in kernels)
    return [measured for measured in seen if measured is not None]


def _place(of: Timing | Setup) -> tuple[str, str]:
    """Where it was measured, or is: times of others do not compare."""
    return of.simulated, of.device


def _seen(of_one: list[Record], space: Candidates, space_for: Spaces, *, with_estimates: bool) -> Measured | None:
    try:
        other = space_for(named(parse_program(of_one[0].job.program)), space.target)
        if other is None:
            return None
        digits: Digits = np.array([record.job.digits for record in of_one], np.int64)
        if other.schedule(digits[0]).trace.to_json() != of_one[0].job.trace:
            return None
        features = knob_view(other, digits, with_estimates=with_estimates)
        own = knob_view(space, np.zeros((1, len(space.radices)), np.int64), with_estimates=with_estimates)
    except (TilewrightError, ValueError, IndexError):  # digits of another space
        return None
    throughputs = np.array([1e6 / min(record.outcome.times_us) for record in of_one])
    return Measured(features, throughputs) if features.shape[1] == own.shape[1] else None
