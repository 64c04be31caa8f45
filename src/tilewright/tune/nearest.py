"""What is known of similar kernels: a schedule that was best for one of another size is a candidate for this one."""

import re
from math import log2

from tilewright.base.errors import TilewrightError
from tilewright.loops.program import Program
from tilewright.measure.records import Records
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.target.target import Target
from tilewright.tune.recorded import CONFIRMING, recorded_text

_NUMBER = re.compile(r"\d+")


def nearest_schedule(records: Records, naive: Program, target: Target, threads: int) -> Schedule | None:
    """The best schedule of the most similar kernel, on ``naive``; None if there is none, or it does not go there.

    Similar kernels are the same but for their numbers; the fewer doublings these are apart, the more similar.
    """
    own = recorded_text(naive)
    known = records.programs(str(target), threads, seed=CONFIRMING)
    similar = [text for text in known if text != own and _kind(text) == _kind(own)]
    if not similar:
        return None
    closest = min(similar, key=lambda text: _apart(text, own))
    (record,) = records.best(closest, str(target), threads, seed=CONFIRMING)
    try:
        return replay(Trace.from_json(record.job.trace), naive)
    except TilewrightError:
        return None


def _kind(text: str) -> str:
    return _NUMBER.sub("#", text)


def _apart(text: str, other: str) -> float:
    pairs = zip(_NUMBER.findall(text), _NUMBER.findall(other), strict=True)
    return sum(abs(log2((1 + int(a)) / (1 + int(b)))) for a, b in pairs)
