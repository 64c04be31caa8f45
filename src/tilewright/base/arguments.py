"""Checks the arguments of public functions against the types that their signatures declare.

    @checked(BadInput)
    def load(path: FilePath, *, threads: Annotated[int, Within(1, 1024)] | None = None) -> Model: ...

    load("m.tw", threads="2")  # BadInput: load: threads='2': give a whole number from 1 to 1024, or None

The signature is the only declaration, for the type checker and for this module. A wrong argument, even one whose
methods raise or a list that contains itself, is an error of the given kind that names the argument, its value, and what
is allowed. NumPy scalars count as Python numbers. Functions check by themselves what types don't express.
"""

import functools
import inspect
import itertools
import numbers
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tilewright.base.errors import TilewrightError
from tilewright.base.names import shown

Function = TypeVar("Function", bound=Callable[..., object])

MOST_ITEMS = 1 << 20
"""Maximum length of an argument that is only iterated over, and may be infinite."""


class Constraint(Protocol):
    """Constraints that ``Annotated`` adds to a type."""

    def holds(self, value: object) -> bool:
        """Whether a value of the type is valid."""
        ...

    def told(self, wanted: str) -> str:
        """The description ``wanted`` of the type, with this constraint."""
        ...


@dataclass(frozen=True, slots=True)
class Within:
    """Numbers from ``least`` to ``most``, both included; NaN is excluded."""

    least: float
    most: float

    def holds(self, value: object) -> bool:
        return isinstance(value, int | float) and self.least <= value <= self.most

    def told(self, wanted: str) -> str:
        return f"{wanted} from {self.least:g} to {self.most:g}" if self.most < 1e16 else f"{wanted} from {self.least:g}"


@dataclass(frozen=True, slots=True)
class Called:
    """Values of the type, which ``wanted`` describes better than the names of its parts."""

    wanted: str

    def holds(self, value: object) -> bool:
        return True

    def told(self, wanted: str) -> str:
        return self.wanted


@dataclass(frozen=True, slots=True)
class NamesAFile:
    """Paths that the operating system could open."""

    def holds(self, value: object) -> bool:
        text: object = os.fspath(cast("os.PathLike[str] | os.PathLike[bytes]", value))
        return isinstance(text, str) and text != "" and b"\0" not in os.fsencode(text)

    def told(self, wanted: str) -> str:
        return "a path"


FilePath: TypeAlias = Annotated[str | os.PathLike[str], NamesAFile()]


def checked(kind: type[TilewrightError], called: str = "") -> Callable[[Function], Function]:
    """A decorator: check the arguments against the signature, and raise ``kind`` if they do not fit.

    ``called``: the function's name in messages; by default its own name.

    Too many, missing and unknown arguments raise Python's ``TypeError``.
    """

    def decorate(function: Function) -> Function:
        @functools.cache
        def plan() -> _Plan:
            return _Plan.of(function, called)

        @functools.wraps(function)
        def wrapper(*args: object, **kwargs: object) -> object:
            known = plan()
            taken = [known.taken(known.positional(i), value, kind) for i, value in enumerate(args)]
            named = {name: known.taken(known.named(name), value, kind) for name, value in kwargs.items()}
            return function(*taken, **named)

        return cast(Function, wrapper)

    return decorate


def check_fields(value: object, kind: type[TilewrightError]) -> None:
    """Raise ``kind`` unless each field of a dataclass has its declared type: for ``__post_init__``."""
    owner = type(value)
    rules = _rules_of(owner)
    for name, rule in rules.items():
        _Plan(owner.__name__, (), {}).taken((name, rule), getattr(value, name), kind)


@functools.cache
def _rules_of(owner: type) -> Mapping[str, "_Rule"]:
    return {name: _rule(hint) for name, hint in get_type_hints(owner, include_extras=True).items()}


class _UnfitError(Exception):
    """A value does not match its rule."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A description of valid values; and the value as the function gets it, or ``_UnfitError``."""

    wanted: str
    take: Callable[[object], object]
    many: str = ""
    """The plural of the description."""


_Named = tuple[str, _Rule]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The rules of a function's parameters."""

    function: str
    by_position: tuple[_Named, ...]
    by_name: Mapping[str, _Named]
    rest: _Named | None = None
    """The rule of ``*arguments``."""
    others: _Rule | None = None
    """The rule of ``**arguments``."""

    @staticmethod
    def of(function: Callable[..., object], called: str) -> "_Plan":
        hints = get_type_hints(function, include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())
        rules = {p.name: (p.name, _rule(hints[p.name]) if p.name in hints else _ANYTHING) for p in parameters}

        def of_kind(*kinds: object) -> list[_Named]:
            return [rules[p.name] for p in parameters if p.kind in kinds]

        usual = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return _Plan(
            called or function.__qualname__,
            tuple(of_kind(inspect.Parameter.POSITIONAL_ONLY, usual)),
            {name: (name, rule) for name, rule in of_kind(usual, inspect.Parameter.KEYWORD_ONLY)},
            next(iter(of_kind(inspect.Parameter.VAR_POSITIONAL)), None),
            next((rule for _, rule in of_kind(inspect.Parameter.VAR_KEYWORD)), None),
        )

    def positional(self, place: int) -> _Named | None:
        """The rule of a parameter; None if there is no such parameter: the call itself raises then."""
        return self.by_position[place] if place < len(self.by_position) else self.rest

    def named(self, name: str) -> _Named | None:
        known = self.by_name.get(name)
        return known if known is not None or self.others is None else (name, self.others)

    def taken(self, parameter: _Named | None, value: object, kind: type[TilewrightError]) -> object:
        if parameter is None:
            return value
        name, rule = parameter
        try:
            return rule.take(value)
        except Exception as error:  # the value's own methods may raise anything
            why = "" if isinstance(error, _UnfitError) else f" (looking at it raised {type(error).__name__})"
            raise kind(f"{self.function}: {name}={shown(value)}{why}: give {rule.wanted}") from error


# --- rules of types -----------------------------------------------------------------------------------------------


def _rule(hint: object) -> _Rule:
    """The rule of a type in a signature."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _constrained(_rule(inside[0]), inside[1:])
    if origin in (Union, types.UnionType):
        return _either([_rule(each) for each in inside])
    if origin is not None:
        return _container(origin, inside)
    if isinstance(hint, type):
        return _PLAIN.get(hint) or _instance(hint)
    return _ANYTHING  # a type variable


def _as_is(value: object) -> object:
    return value


def _instance(wanted: type) -> _Rule:
    def take(value: object) -> object:
        if not isinstance(value, wanted):
            raise _UnfitError
        return value

    article = "an" if wanted.__name__[0] in "AEIOU" else "a"
    return _Rule(f"{article} {wanted.__name__}", take, f"{wanted.__name__}s")


def _boolean(value: object) -> object:
    if not isinstance(value, bool):
        raise _UnfitError
    return value


_WORD_BITS = 64
"""No valid argument is a longer number, and printing it may fail."""


def _whole(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise _UnfitError
    number = int(value)
    if number.bit_length() > _WORD_BITS:
        raise _UnfitError
    return number


def _number(value: object) -> object:
    if isinstance(value, numbers.Integral) or not isinstance(value, numbers.Real):
        return _whole(value)
    return float(value)


def _nothing(value: object) -> object:
    if value is not None:
        raise _UnfitError
    return value


_ANYTHING = _Rule("anything", _as_is, "anything")
_PLAIN: Mapping[type, _Rule] = {
    object: _ANYTHING,
    bool: _Rule("True or False", _boolean, "True or False"),
    int: _Rule("a whole number", _whole, "whole numbers"),
    float: _Rule("a number", _number, "numbers"),
    str: _Rule("a text", _instance(str).take, "texts"),
    type(None): _Rule("None", _nothing, "None"),
}


def _constrained(base: _Rule, constraints: Sequence[Constraint]) -> _Rule:
    def take(value: object) -> object:
        found = base.take(value)
        if not all(constraint.holds(found) for constraint in constraints):
            raise _UnfitError
        return found

    one, many = base.wanted, base.many
    for constraint in constraints:
        one, many = constraint.told(one), constraint.told(many)
    return _Rule(one, take, many)


def _either(rules: Sequence[_Rule]) -> _Rule:
    def take(value: object) -> object:
        for rule in rules:
            try:
                return rule.take(value)
            except _UnfitError:
                continue
        raise _UnfitError

    ordered = sorted(rules, key=lambda rule: rule.wanted == "None")
    one, many = (list(dict.fromkeys(words)) for words in zip(*((r.wanted, r.many) for r in ordered), strict=True))
    return _Rule(" or ".join(one), take, " or ".join(many))


def _container(origin: object, inside: Sequence[object]) -> _Rule:
    if origin is tuple and inside[-1:] != (Ellipsis,):
        return _fixed([_rule(each) for each in inside])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(*map(_rule, inside))
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _items(cast(type, origin), _rule(inside[0]))
    if origin is Callable:
        return _Rule("a function", _callable, "functions")
    return _instance(origin) if isinstance(origin, type) else _ANYTHING


def _callable(value: object) -> object:
    if not callable(value):
        raise _UnfitError
    return value


def _fixed(rules: Sequence[_Rule]) -> _Rule:
    """A tuple with a rule for each item."""

    def take(value: object) -> object:
        if not isinstance(value, tuple | list):
            raise _UnfitError
        given = tuple(cast("Sequence[object]", value))
        if len(given) != len(rules):
            raise _UnfitError
        return tuple(rule.take(item) for rule, item in zip(rules, given, strict=True))

    return _Rule(f"({', '.join(rule.wanted for rule in rules)})", take, "tuples")


def _items(origin: type, rule: _Rule) -> _Rule:
    """A sequence or another iterable; a text counts only as a text."""

    def take(value: object) -> object:
        if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, origin):
            raise _UnfitError
        given = list(itertools.islice(cast("Iterable[object]", value), MOST_ITEMS + 1))
        if len(given) > MOST_ITEMS:
            raise _UnfitError
        taken = [rule.take(item) for item in given]
        return taken if isinstance(value, list) else tuple(taken)

    return _Rule(f"a sequence of {rule.many}", take, f"sequences of {rule.many}")


def _mapping(key: _Rule, item: _Rule) -> _Rule:
    def take(value: object) -> object:
        if not isinstance(value, Mapping):
            raise _UnfitError
        pairs = cast("Mapping[object, object]", value).items()
        return {key.take(name): item.take(found) for name, found in itertools.islice(pairs, MOST_ITEMS)}

    return _Rule(f"a mapping of {key.many} to {item.many}", take, f"mappings of {key.many} to {item.many}")
