"""Measures many candidates: builds a batch on all cores, then measures one by one, with nothing else running.

with Pool() as pool:
    for job, outcome in pool.measure_all(jobs): ...
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import TracebackType

from tilewright.measure.job import Job
from tilewright.measure.limits import Limits
from tilewright.measure.runner import Runner
from tilewright.measure.verdicts import Outcome
from tilewright.measure.worker import CHILD

BATCH = 64
"""Candidates that are built ahead of being measured."""
_BUILDS = 2000
"""Candidates that a child builds before it is replaced. It runs none, so none can have damaged it."""


class Pool:
    """Measures jobs, as ``Runner`` does; ``builders``: number of concurrent builds. For one thread.

    ``command``: the command line of a child.
    """

    def __init__(
        self, builders: int, limits: Limits | None = None, *, batch: int = BATCH, command: Sequence[str] = CHILD
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tilewright-built-"))
        self._batch = batch
        building = replace(limits or Limits(), uses=_BUILDS)
        self._builders = Runner(building, lanes=builders, spares=0, command=command, folder=self._folder)
        self._bench = Runner(limits, command=command, folder=self._folder)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, and remove builds that were not measured."""
        self._builders.close()
        self._bench.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def build_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome | None]]:
        """See ``Runner.build_all``."""
        return self._builders.build_all(jobs)

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """See ``Runner.measure_all``. Outcomes come batch by batch; first those that could not be built.

        Jobs are taken from the iterator while others of the batch are built, and none while one is measured.
        """
        waiting = iter(jobs)
        is_over = False
        while not is_over:
            is_over = True
            built: list[Job] = []
            for job, outcome in self._builders.build_all(islice(waiting, self._batch)):
                is_over = False
                if outcome is None:
                    built.append(job)
                else:
                    yield job, outcome
            yield from self._bench.measure_all(built)
