"""Typed access to parsed JSON of unknown origin: each function returns a value of its type, or raises ``TypeError``."""

from typing import Final, cast

_HUGE: Final = 1e300
"""The bound fails for values that are not numbers, NaN, and numbers too large for a float, as JSON integers can be."""


def mapping(value: object) -> dict[str, object]:
    """An object."""
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {type(value).__name__}")
    return cast("dict[str, object]", value)


def items(value: object) -> list[object]:
    """A list."""
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {type(value).__name__}")
    return cast("list[object]", value)


def text(value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {type(value).__name__}")
    return value


def number(value: object) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_HUGE < value < _HUGE:
        raise TypeError(f"expected a finite number, found {value!r}")
    return value


def whole(value: object) -> int:
    """An integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected a whole number, found {value!r}")
    return value


def numbers(value: object) -> dict[str, float]:
    """An object of finite numbers."""
    return {name: number(found) for name, found in mapping(value).items()}


def optional(value: object) -> float | None:
    """A finite number, or null."""
    return None if value is None else number(value)
