"""Candidates from similar kernels: the best schedule of a kernel that differs in sizes only."""

from tilewright.base.errors import TilewrightError
from tilewright.loops.identity import doublings_apart
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.tune.recorded import replayed


def nearest_schedule(records: Records, naive: Program, target: Target, threads: int) -> Schedule | None:
    """The best schedule of the most similar kernel, on ``naive``; None if there is none, or it does not go there.

    Similar kernels are the same but for their numbers; the fewer doublings these are apart, the more similar.
    """
    similar = records.relatives(naive, str(target), threads, State.CONFIRMED)
    if not similar:
        return None
    closest = min(similar, key=lambda record: doublings_apart(parse_program(record.job.program), naive))
    try:
        return replayed(closest.job.trace, naive)
    except TilewrightError:
        return None
