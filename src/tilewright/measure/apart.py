"""``ApartBench``: the part that is common to children whose candidates run outside of them: in an emulator, on a board.

What a candidate computes there is checked against the reference, compiled for this machine.
"""

from abc import ABC, abstractmethod
from pathlib import Path

from tilewright.base.errors import MeasureError, Unsupported
from tilewright.measure.build import Builder, Image, Kept, RefusedError
from tilewright.measure.candidate import Say
from tilewright.measure.job import Job
from tilewright.measure.limits import Limits
from tilewright.measure.messages import Built, Done, Unmeasurable
from tilewright.measure.requests import Request
from tilewright.measure.verdicts import Outcome, Phase
from tilewright.measure.workload import Workload, load
from tilewright.target.target import Target


class ApartBench(ABC):
    """Measures candidates in sequence, as ``candidate.Bench``."""

    def __init__(self, limits: Limits, folder: Path | None = None) -> None:
        self._builder = Builder(limits.memory_bytes)
        self._kept = None if folder is None else Kept(folder, elsewhere=True)
        self._key: tuple[str, int] | None = None
        self._workload: Workload | None = None

    def measure(self, request: Request, say: Say) -> None:
        """See ``Measuring``."""
        try:
            say(self._built(request.job, say) if request.only_build else self.measured(request, say))
        except (MeasureError, Unsupported) as error:
            say(Unmeasurable(str(error)))
        except RefusedError as refused:
            say(refused.outcome)

    @abstractmethod
    def measured(self, request: Request, say: Say) -> Outcome:
        """The outcome of a candidate. Raises ``MeasureError`` or ``Unsupported``, before it is prepared, if it can't be
        measured here; ``RefusedError``."""

    def prepared(self, job: Job) -> Workload:
        """Inputs and results of the job's program; those of the last one are kept."""
        key = (job.program, job.seed)
        if self._workload is None or self._key != key:
            self._key, self._workload = None, None  # its memory is freed first
            self._workload = load(job.program, job.seed, Target.host())
            self._key = key
        return self._workload

    def image(self, job: Job) -> Image:
        """The image for this job, built now if there is none. Raises ``RefusedError``."""
        return (None if self._kept is None else self._kept.take(job)) or self._builder.build(job)

    def _built(self, job: Job, say: Say) -> Built:
        if self._kept is None:
            raise MeasureError("there is no folder to keep in what is built")
        say(Done(Phase.PREPARE))
        self._kept.put(job, self._builder.build(job))
        return Built()
