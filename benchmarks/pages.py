"""How fast a mapped file is read, by the pages that the system keeps it in: ``python -m benchmarks.pages``.

A file of random numbers is written in pieces of 2 MiB, as Tilewright writes models, and of 4 KiB; each is mapped and
summed eight times, and so is memory of the process. The pages are those of the folder's file system (``--folder``).
"""

import argparse
import mmap
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tilewright.base.pieces import HUGE_PAGE, in_pieces

Numbers = NDArray[np.uint64]
ROUNDS = 8


@contextmanager
def written(numbers: Numbers, piece: int, folder: Path) -> Generator[Numbers]:
    """The numbers in a file, mapped."""
    with tempfile.NamedTemporaryFile(dir=folder, buffering=0) as file:
        for view in in_pieces([numbers.data], piece):
            for start in range(0, len(view), piece):
                file.write(view[start : start + piece])
        yield np.frombuffer(mmap.mmap(file.fileno(), numbers.nbytes, access=mmap.ACCESS_READ), np.uint64)


def gigabytes_a_second(numbers: Numbers) -> float:
    """The median of several reads."""
    times: list[float] = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        numbers.sum()
        times.append(time.perf_counter() - start)
    return numbers.nbytes / median(times) / 1e9


def huge_megabytes(field: str) -> int:
    """What the process has in huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(field)) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path.home())
    parser.add_argument("--megabytes", type=int, default=200)
    options = parser.parse_args()
    numbers = np.frombuffer(np.random.default_rng(0).bytes(options.megabytes << 20), np.uint64).copy()
    print("| memory | GB/s | of it in huge pages, MB |\n|---|---:|---:|")
    print(f"| the process's | {gigabytes_a_second(numbers):.1f} | {huge_megabytes('AnonHugePages')} |")
    for piece in (HUGE_PAGE, mmap.PAGESIZE):
        with written(numbers, piece, options.folder) as mapped:
            speed = gigabytes_a_second(mapped)
            print(
                f"| a file, written in pieces of {piece >> 10} KiB | {speed:.1f} | {huge_megabytes('FilePmdMapped')} |"
            )
            del mapped


if __name__ == "__main__":
    main()
