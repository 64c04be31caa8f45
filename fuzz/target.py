"""What a fuzzer is."""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import InternalError, TilewrightError

CORPUS = Path(__file__).parent / "corpus"

Check = Callable[[bytes], None]
Mutate = Callable[[bytes, int, int], bytes]
"""``mutate(data, most, seed)``: other bytes, at most ``most`` of them."""


@dataclass(frozen=True, slots=True)
class Target:
    """``check``: reads some bytes as the product does. ``seeds``: bytes to start from. ``words``: of the format,
    for libFuzzer to put in.

    ``max_bytes``: the largest input that is tried. ``runs``: how many inputs are about a minute of one processor.
    """

    name: str
    check: Check
    seeds: Callable[[], Iterable[bytes]]
    words: tuple[str, ...] = ()
    mutate: Mutate | None = None
    max_bytes: int = 4096
    runs: int = 50_000

    def kept(self) -> list[Path]:
        """The inputs of the corpus that is kept."""
        return sorted((CORPUS / self.name).glob("*"))

    def run(self, data: bytes) -> bool:
        """Whether ``data`` are good. Raises whatever is no typed error: a find."""
        try:
            self.check(data)
        except InternalError:
            raise
        except TilewrightError:
            return False
        return True


def sampled(data: bytes, one_in: int) -> bool:
    """Whether an input is among the one in so many on which more is tried: always the same ones."""
    return zlib.crc32(data) % one_in == 0
