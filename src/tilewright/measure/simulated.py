"""Where candidates for AArch64 processors that are not here are measured: in children that simulate cycles.

    with simulating(lanes=2) as runner:
        outcome = runner.measure(replace(job, timing=replace(job.timing, simulated=device_of(target))))

The "microseconds" of such an outcome are thousands of cycles, so those of a core at 1 GHz: a job says by
``Timing.simulated`` that it has such, and records keep them apart. ``simulated_child`` is what runs in the children.
"""

import sys
from collections.abc import Sequence

from tilewright.measure.limits import Limits
from tilewright.measure.runner import Runner

CHILD: Sequence[str] = (sys.executable, "-P", "-m", "tilewright.measure.simulated_child")
LIMITS = Limits(run_seconds=300.0, slack_seconds=60.0)
"""An emulator takes some hundred times as long as a processor."""


def simulating(lanes: int = 1, spares: int = 1) -> Runner:
    """A runner; more ``lanes`` do not change what it says. Its children need the extra ``simulation``."""
    return Runner(LIMITS, lanes=lanes, spares=spares, command=CHILD)
