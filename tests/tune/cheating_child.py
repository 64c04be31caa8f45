"""A child whose candidates, but for a few, are a thousand times faster than they can be, and wrong."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tilewright.measure.build import Image
from tilewright.measure.child import main
from tilewright.measure.job import Job
from tilewright.runtime.executable import Executable

Array = NDArray[np.generic]


class Cheat:
    """Computes nothing."""

    def __init__(self, kernel: Executable) -> None:
        self._kernel = kernel
        self.manifest = kernel.manifest

    def run(self, feeds: Mapping[str, Array], out: Mapping[str, Array]) -> list[Array]:
        for array in out.values():
            array[...] = 0
        return list(out.values())

    def timed_run(
        self, feeds: Mapping[str, Array], out: Mapping[str, Array], *, runs: int
    ) -> tuple[list[Array], list[float]]:
        return self.run(feeds, out), [1e-8 * runs]


def start(image: Image, job: Job, _: str) -> Executable:
    """Candidates cheat whose job has an even number."""
    kernel = image.executable(job.threads)
    if is_honest(job):
        return kernel
    return Cheat(kernel)  # pyright: ignore[reportReturnType] # has what a bench uses


def is_honest(job: Job) -> bool:
    return int(job.id[-1], 16) % 2 == 1


if __name__ == "__main__":
    raise SystemExit(main(start=start))
