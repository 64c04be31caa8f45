"""Sizes in bytes with a unit: ``48K``, ``1M``, ``2G``; the letters are powers of 1024."""

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15})([KMGT]?)(?:iB)?", re.IGNORECASE)


def parse_size(text: str) -> int | None:
    """The number of bytes in ``text``; None if it is malformed. ``KiB`` and lower-case letters are accepted too."""
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].upper()] if match else None


def format_size(count: int) -> str:
    """The shortest text that ``parse_size`` reads as exactly ``count`` bytes."""
    for letter in ("T", "G", "M", "K"):
        if count and count % _UNITS[letter] == 0:
            return f"{count // _UNITS[letter]}{letter}"
    return str(count)
