"""What is searched: a finite set of candidates, each a digit for each knob of a mixed-radix number.

A *population* is an array of digits, a row for each candidate and a column for each knob; searchers and models work on
whole populations at once. Candidate ``index`` has the digits of ``index`` with the first knob least significant.
"""

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Digits: TypeAlias = NDArray[np.int64]
"""(candidates, knobs), or (knobs,) of one."""
Mask: TypeAlias = NDArray[np.bool_]


class Space(Protocol):
    """A set of candidates. Some may turn out to be invalid only when they are scheduled."""

    @property
    def radices(self) -> tuple[int, ...]:
        """How many values each knob has."""
        ...

    def allowed(self, digits: Digits) -> Mask:
        """Which candidates of a population make sense, as far as that is known without scheduling them."""
        ...


def size(space: Space) -> int:
    """The number of candidates, those that are not allowed included."""
    result = 1
    for radix in space.radices:
        result *= radix
    return result


def digits_of(index: int, radices: tuple[int, ...]) -> tuple[int, ...]:
    """The digits of ``index``, that of the first knob least significant. Raises ``IndexError`` beyond the last one."""
    digits: list[int] = []
    rest = index
    for radix in radices:
        rest, digit = divmod(rest, radix)
        digits.append(digit)
    if rest or index < 0:
        raise IndexError(f"{index} is no index of a space with radices {radices}")
    return tuple(digits)


def index_of(digits: tuple[int, ...], radices: tuple[int, ...]) -> int:
    """The index that has these digits."""
    index = 0
    for digit, radix in zip(reversed(digits), reversed(radices), strict=True):
        index = index * radix + digit
    return index
