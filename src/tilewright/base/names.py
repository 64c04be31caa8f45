"""Names that programs give to things: legal ones, and unused ones."""

import itertools
import re
from collections.abc import Container, Iterable


def identifier(text: str) -> str:
    """``text`` with everything that can't be in a name replaced by underscores."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return name if name and not name[0].isdigit() else f"_{name}"


def readable(name: str, limit: int = 80) -> str:
    """``name`` as it may be printed: characters that are not printable are escaped, and the middle of a long one goes.

    Names in models may be anything: line breaks, escape sequences of terminals, a megabyte.
    """
    if len(name) > limit:
        name = f"{name[: limit // 2]}...{name[-limit // 4 :]}"
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")


def fresh_name(wanted: str, taken: Container[str]) -> str:
    """``wanted``, or ``wanted_1``, ``wanted_2`` ...: the first that is not in ``taken``."""
    names = itertools.chain([wanted], (f"{wanted}_{i}" for i in itertools.count(1)))
    return next(name for name in names if name not in taken)


class Names:
    """Makes names that are unused: none that is ``taken``, and none twice."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def fresh(self, wanted: str) -> str:
        """``wanted``, or with a number after it; it is taken from now on."""
        name = fresh_name(wanted, self._taken)
        self._taken.add(name)
        return name
