"""Content of files in pieces that fill huge pages.

Where a system keeps files in huge pages, a piece that is written at once, from a multiple of its size on, lies in one.
A process that maps the file then reads it as fast as its own memory; in pages of 4 KiB, each of which misses the
translation buffer and ends the processor's prefetching, about two thirds as fast (docs/appendix/running.md).
"""

from collections.abc import Iterable, Iterator
from typing import Final

HUGE_PAGE: Final = 1 << 21


def in_pieces(parts: Iterable[bytes | memoryview], size: int = HUGE_PAGE) -> Iterator[memoryview]:
    """The bytes of ``parts``, in order, in views of multiples of ``size`` bytes, but for the last one. Long parts are
    not copied."""
    begun = bytearray()
    for part in parts:
        rest = memoryview(part).cast("B")
        if begun:
            taken = min(size - len(begun), len(rest))
            begun += rest[:taken]
            rest = rest[taken:]
            if len(begun) < size:
                continue
            yield memoryview(begun)
            begun = bytearray()
        whole = len(rest) - len(rest) % size
        if whole:
            yield rest[:whole]
        begun += rest[whole:]
    if begun:
        yield memoryview(begun)
