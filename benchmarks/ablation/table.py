"""Tables: all measured candidates of a box, as one file."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.space.space import Digits, Mask

from .features import Floats

FOLDER = Path(__file__).parent / "tables"
RECORDING = "the repository has them, the sdist has not; `python -m benchmarks.ablation.record` measures (an hour)"
"""Where tables are from."""


@dataclass(frozen=True, slots=True)
class Table:
    """What was measured of a layer. Candidates that are none of the table were invalid, or the same as another one."""

    radices: tuple[int, ...]
    digits: Digits
    """(candidates, knobs)."""
    microseconds: Floats
    """(candidates,)."""
    contexts: Floats
    """(candidates, loops, numbers)."""
    curves: Floats
    """(candidates, numbers)."""

    def save(self, path: Path) -> None:
        """Write the file; features with half precision."""
        halves = {"contexts": self.contexts.astype(np.float16), "curves": self.curves.astype(np.float16)}
        digits = self.digits.astype(np.uint8)
        np.savez_compressed(path, radices=self.radices, digits=digits, microseconds=self.microseconds, **halves)

    @staticmethod
    def load(path: Path) -> "Table":
        """Read a file that `save` wrote."""
        with np.load(path) as file:
            radices = tuple(int(radix) for radix in file["radices"])
            floats = (file[name].astype(np.float64) for name in ("microseconds", "contexts", "curves"))
            return Table(radices, file["digits"].astype(np.int64), *floats)


class TableSpace:
    """The candidates of a table, as a `Space`."""

    def __init__(self, table: Table) -> None:
        self.radices = table.radices
        self._row = np.full(int(np.prod(table.radices)), -1)
        self._row[self._flat(table.digits)] = np.arange(len(table.digits))

    def allowed(self, digits: Digits) -> Mask:
        """Which candidates are in the table."""
        return self.rows(digits) >= 0

    def sample(self, count: int, random: np.random.Generator) -> Digits:
        """Candidates at random, in the table or not."""
        return random.integers(0, np.array(self.radices, np.int64), (count, len(self.radices)))

    def rows(self, digits: Digits) -> NDArray[np.int64]:
        """Where candidates are in the table; -1 for those that are not."""
        return self._row[self._flat(digits)]

    def _flat(self, digits: Digits) -> NDArray[np.int64]:
        return np.ravel_multi_index(tuple(digits.T), self.radices)
