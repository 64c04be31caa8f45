"""Numeric features of the knobs' values (the configuration features of AutoTVM).

A knob is a table with a row of numbers for each of its values: the sizes of a split, the positions of a permutation, a
single number, or a one-hot row for values that are not numbers.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import BadInput
from tilewright.space.knobs import Knob, Value

Floats: TypeAlias = NDArray[np.float64]
Digits: TypeAlias = NDArray[np.int64]


def table(values: Sequence[Sequence[float]]) -> Floats:
    """The table, (values, width), of a knob with lists of numbers. Raises ``BadInput`` for different lengths."""
    if len({len(value) for value in values}) != 1:
        raise BadInput("a knob has at least one value, and all of them have as many numbers")
    return np.array(values, np.float64)


def one_hot(values: int) -> Floats:
    """The one-hot table, (values, values), of a knob whose values are not numbers."""
    return np.eye(values)


def table_of(knob: Knob[Value]) -> Floats:
    """The table of a knob; kinds of loops are one-hot."""
    values = [value if isinstance(value, tuple) else (value,) for value in knob.values]
    numbers = [[number for number in value if isinstance(number, int)] for value in values]
    return table(numbers) if all(map(len, numbers)) else one_hot(len(values))


def knob_features(tables: Sequence[Floats], digits: Digits) -> Floats:
    """The rows that the digits of a population choose, side by side: (candidates, widths of all tables).

    Raises ``BadInput`` unless ``digits`` has a column for each table, with digits within it.
    """
    if digits.ndim != 2 or digits.shape[1] != len(tables):
        raise BadInput(f"a population of {len(tables)} knobs has the shape (candidates, knobs), not {digits.shape}")
    radices = np.array([len(rows) for rows in tables], np.int64)
    if np.any((digits < 0) | (digits >= radices)):
        raise BadInput(f"digits are below {radices.tolist()}, the numbers of values of the knobs")
    columns = [rows[column] for rows, column in zip(tables, digits.T, strict=True)]
    return np.concatenate([np.empty((len(digits), 0)), *columns], axis=1)
