"""What earlier searches measured of the same kernel: a search begins with it, whatever they searched by.

A candidate is found again by its decisions, so one of the compiler's own space, or of a sketch, is known in a union of
both. Only searches that have ended count: one that was killed goes on as it began, and finds its measurements one by
one (``Measurer``).
"""

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.measure.job import Job, Timing
from tilewright.measure.records import Records
from tilewright.measure.row import Record
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.space.space import Candidates, Digits, Space
from tilewright.space.union import Union
from tilewright.tune.spaces import TEMPLATE

MOST_CANDIDATES = 4000
"""Each takes a fraction of a millisecond to read, and the cost model learns them all."""
VERIFIED = 8
"""Of the fastest, that are scheduled again: other compilers and templates may ask the same and do something else."""


def measured_before(records: Records, space: Candidates, threads: int, timing: Timing) -> list[tuple[Digits, Outcome]]:
    """Candidates of ``space`` with what came out, in the order in which they were measured; nothing if those that have
    their decisions are scheduled in another way now."""
    found = records.searched(space.naive, str(space.target), threads, MOST_CANDIDATES)
    usable = [record for record in found if _is_like(record, timing)]
    digits = [candidate_of(space, record.job) for record in usable]
    known = [(one, record) for one, record in zip(digits, usable, strict=True) if one is not None]
    right = [pair for pair in known if pair[1].outcome.median_us is not None]
    fastest = sorted(right, key=lambda pair: pair[1].outcome.median_us or 0.0)[:VERIFIED]
    if not all(_is_scheduled_so(space, one, record.job) for one, record in fastest):
        return []
    return [(one, record.outcome) for one, record in known]


def candidate_of(space: Candidates, job: Job) -> Digits | None:
    """The candidate that has the decisions of ``job``; None if there is none."""
    label = dict(job.decisions).get("space")
    own = job.decisions if label is None else job.decisions[1:]
    digits = job.digits if label is None else job.digits[1:]
    if isinstance(space, Union):
        if (label or TEMPLATE) not in space.labels:
            return None
        position = space.labels.index(label or TEMPLATE)
        found = _own(space.members[position], digits, own)
        return None if found is None else space.digits_in(position, found[None])[0]
    return _own(space, digits, own) if isinstance(space, Space) and label in (None, TEMPLATE) else None


def _own(space: Space, digits: tuple[int, ...], decisions: tuple[tuple[str, str], ...]) -> Digits | None:
    found: Digits = np.array(digits[: len(space.radices)], np.int64)
    try:
        return found if space.decisions(found) == decisions else None
    except ScheduleError:  # digits of another space
        return None


def _is_like(record: Record, timing: Timing) -> bool:
    """Whether it was measured as this search measures."""
    return record.job.timing == timing and record.outcome.verdict is not Verdict.DEVICE_LOST


def _is_scheduled_so(space: Candidates, digits: Digits, job: Job) -> bool:
    try:
        return space.schedule(digits).trace.to_json() == job.trace
    except ScheduleError:
        return False
