"""Names in programs: legal characters, quoting, shortening for messages, and unused names."""

import itertools
import json
import re
import reprlib
from collections.abc import Container, Iterable
from difflib import get_close_matches

RESERVED = frozenset(
    [
        "alloc",
        "annotate",
        "barrier",
        "block",
        "else",
        "for",
        "if",
        "in",
        "inf",
        "init",
        "intrinsic",
        "kernel",
        "nan",
        "pass",
        "program",
        "reads",
        "select",
        "where",
        "writes",
        "False",
        "True",
    ]
)
"""Reserved words of loop programs: not allowed as names of buffers, blocks, loops and axes."""

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_BACK_QUOTE = "\\u0060"


def quoted(name: str) -> str:
    """``name`` in the notation of programs: plain if it is a word, else as a JSON string in back quotes."""
    if _WORD.fullmatch(name) and name not in RESERVED:
        return name
    return f"`{json.dumps(name)[1:-1].replace('`', _BACK_QUOTE)}`"


def unquoted(text: str) -> str:
    """The name that ``quoted`` wrote in back quotes. Raises ``ValueError`` for any other text."""
    name: object = json.loads(f'"{text[1:-1]}"')
    if not isinstance(name, str) or quoted(name) != text:
        raise ValueError(f"{text} is no name")
    return name


def identifier(text: str) -> str:
    """``text`` with illegal characters replaced by underscores."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return name if name and not name[0].isdigit() else f"_{name}"


def readable(name: str, limit: int = 80) -> str:
    """``name`` for printing: unprintable characters are escaped, and a long name loses its middle.

    Names in models may contain line breaks and terminal escape sequences, and may have a megabyte.
    """
    if len(name) > limit:
        name = f"{name[: limit // 2]}...{name[-limit // 4 :]}"
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")


def printable(text: str) -> str:
    """``text`` with characters that can't be encoded (lone surrogates) escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


_NOTE = 60
"""Characters for how many are left out."""


def bounded(text: str, limit: int) -> str:
    """``text``; if it has more than ``limit`` characters, its beginning and end, and how many are left out between."""
    if len(text) <= limit:
        return text
    room = limit - _NOTE
    head, tail = room * 3 // 4, room // 4
    return f"{text[:head]} ... ({len(text) - head - tail} characters left out) ... {text[-tail:]}"


_PLAIN_TYPES = frozenset({bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type(None)})
_PRINTED_BITS = 1024


class _Shown(reprlib.Repr):
    """A ``repr`` of bounded length that runs no code of the object."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxlong = 3, 60, 40
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 4

    def repr1(self, x: object, level: int) -> str:
        if isinstance(x, int) and x.bit_length() > _PRINTED_BITS:
            return f"<int of {x.bit_length()} bits>"
        if type(x) is bytes:
            return super().repr1(x[: self.maxstring], level)
        return super().repr1(x, level) if type(x) in _PLAIN_TYPES else f"<{type(x).__name__}>"


def shown(value: object, limit: int = 120) -> str:
    """A user's value for messages, short and printable; the type's name if it is not a plain Python value."""
    return readable(_Shown().repr(value), limit)


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The items of ``known`` that ``word`` may mean: it is a prefix of them, or at most a fifth of the letters differ.

    Case is ignored. Long words are not compared, as that is slow.
    """
    if len(word) > _MOST_COMPARED:
        return []
    names = [name for name in itertools.islice(known, 4096) if len(name) <= _MOST_COMPARED]
    folded = {name: name.casefold() for name in names}
    close = get_close_matches(word.casefold(), set(folded.values()), n=count, cutoff=_ALIKE)
    begun = [name for name in names if len(word) >= _START and folded[name].startswith(word.casefold())]
    same = sorted((name for name in names if folded[name] in close), key=lambda name: close.index(folded[name]))
    return list(dict.fromkeys([*same, *begun]))[:count]


_MOST_COMPARED = 80
_ALIKE = 0.8
_START = 4
"""Minimum length of a prefix."""


def fresh_name(wanted: str, taken: Container[str]) -> str:
    """``wanted``, or ``wanted_1``, ``wanted_2`` ...: the first that is not in ``taken``."""
    names = itertools.chain([wanted], (f"{wanted}_{i}" for i in itertools.count(1)))
    return next(name for name in names if name not in taken)


class Names:
    """Makes unused names: different from ``taken`` and from each other."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}
        """The last number after each name; smaller ones are taken."""

    def fresh(self, wanted: str) -> str:
        """``wanted``, or ``wanted`` with a number; it counts as taken from now on."""
        name, number = wanted, self._numbers.get(wanted, 0)
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._numbers[wanted] = number
        self._taken.add(name)
        return name
