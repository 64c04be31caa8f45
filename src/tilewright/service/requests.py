"""Options of a submission: read from a request, and as canonical JSON."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Final

from tilewright import __version__
from tilewright.base import fields
from tilewright.base.checks import Checks
from tilewright.base.errors import BadInput
from tilewright.base.names import shown
from tilewright.base.numerics import Math, Precision
from tilewright.base.sizes import parse_size
from tilewright.base.superopt import Superopt
from tilewright.runtime.abi import MAX_THREADS
from tilewright.target.target import Target

_MOST: Final = 256
"""Shapes and bounds of a submission, and dimensions of a shape."""
_LONGEST: Final = 1024
"""Characters of a name or an option."""
_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class Given:
    """The options as a request has them: texts. ``shapes``: ``NAME:1,3,n``; ``bounds``: ``NAME:512``."""

    target: str = "host"
    precision: str = Precision.FP32.value
    math: str = Math.DEFAULT.value
    superopt: str = Superopt.OFF.value
    checks: str = Checks.ON.value
    threads: int | None = None
    memory_limit: str | None = None
    shapes: Sequence[str] = ()
    bounds: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """Valid options. ``target``: as text, never ``host``; ``memory_limit``: bytes."""

    target: str
    precision: str
    math: str
    superopt: str
    checks: str
    threads: int | None
    memory_limit: int | None
    shapes: Mapping[str, Sequence[int | str]] = field(default_factory=dict[str, Sequence[int | str]])
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])

    def text(self) -> str:
        """Canonical JSON: equal texts are equal options."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def read(text: str) -> "Chosen":
        """The options that ``text`` wrote."""
        plain = fields.mapping(json.loads(text))
        threads, limit = plain["threads"], plain["memory_limit"]
        return Chosen(
            fields.text(plain["target"]),
            fields.text(plain["precision"]),
            fields.text(plain["math"]),
            fields.text(plain["superopt"]),
            fields.text(plain["checks"]),
            None if threads is None else fields.whole(threads),
            None if limit is None else fields.whole(limit),
            {name: [_extent(e) for e in fields.items(shape)] for name, shape in _mapping(plain["shapes"])},
            {name: fields.whole(bound) for name, bound in _mapping(plain["bounds"])},
        )

    def submission(self, model: str) -> str:
        """The content hash of a submission: of the model with this hash, the options, and the version."""
        return hashlib.sha256("\n".join((__version__, model, self.text())).encode()).hexdigest()


def chosen(given: Given) -> Chosen:
    """The options of a request. Raises ``BadInput``, which names the option and what is allowed."""
    if given.threads is not None and not 1 <= given.threads <= MAX_THREADS:
        raise BadInput(f"threads={given.threads}: give a number from 1 to {MAX_THREADS}")
    limit = None if given.memory_limit is None else parse_size(given.memory_limit)
    if given.memory_limit is not None and not limit:
        raise BadInput(f"memory_limit={shown(given.memory_limit)}: give a size such as 512MiB")
    return Chosen(
        _target(_short("target", given.target)),
        Precision.named(given.precision).value,
        Math.named(given.math).value,
        Superopt.named(given.superopt).value,
        Checks.named(given.checks).value,
        given.threads,
        limit,
        {name: _shape(name, text) for name, text in _pairs("shape", given.shapes)},
        {name: _count("bound", name, text) for name, text in _pairs("bound", given.bounds)},
    )


@lru_cache(maxsize=256)
def _target(text: str) -> str:
    """The target as canonical text; that of ``host`` takes a look at the system, milliseconds each."""
    return str(Target.parse(text))


def _pairs(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    if len(texts) > _MOST:
        raise BadInput(f"{option}: {len(texts)} of them; give at most {_MOST}")
    found = dict[str, str]()
    for text in texts:
        name, colon, value = _short(option, text).rpartition(":")
        if not colon or not name or name in found:
            raise BadInput(f"{option}={shown(text)}: write NAME:VALUE, each name once")
        found[name] = value
    return list(found.items())


def _shape(name: str, text: str) -> list[int | str]:
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if len(words) > _MOST:
        raise BadInput(f"shape={shown(name)}: {len(words)} dimensions; give at most {_MOST}")
    return [word if word.isidentifier() else _count("shape", name, word) for word in words]


def _count(option: str, name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        raise BadInput(f"{option}={shown(name)}: {shown(text)} is no whole number of at most {_DIGITS} digits")
    return int(text)


def _short(option: str, text: str) -> str:
    if len(text) > _LONGEST:
        raise BadInput(f"{option} has {len(text)} characters; give at most {_LONGEST}")
    return text


def _extent(value: object) -> int | str:
    return value if isinstance(value, str) else fields.whole(value)


def _mapping(value: object) -> list[tuple[str, object]]:
    return list(fields.mapping(value).items())
