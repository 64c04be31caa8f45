"""Finds extensions in installed packages, and identifies them for caches.

An installed package declares its extensions as entry points, by kind::

    [project.entry-points."tilewright.operators"]
    swish2 = "my_package.swish2:SWISH2"

``installed`` loads all of one kind; arguments take precedence. ``identity`` is a cache key of an object, which changes
when any of its code changes.
"""

import hashlib
import logging
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path, PurePath
from types import FunctionType, MappingProxyType
from typing import TypeVar, cast

Kind = TypeVar("Kind")

_STARTED = time.time()
"""The time at which this process began to import sources, approximately."""
_SOURCES = (".py", ".rules")


@cache
def installed(group: str, kind: type[Kind]) -> Mapping[str, Kind]:
    """The objects that other packages offer in the entry points of ``group``, by name, sorted.

    An object that can't be loaded or is not a ``kind`` is left out, as other models do not need it; the log names the
    reason and the package. If two packages offer a name, the first one's is used, and the log says so.
    """
    found: dict[str, Kind] = {}
    log = logging.getLogger("tilewright")
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        try:
            made: object = entry.load()
        except Exception:  # importing a package may raise anything
            log.exception("%s is left out, as it can't be loaded: upgrade the package, or uninstall it", _shown(entry))
            continue
        if entry.name in found:
            log.warning("%s is left out, as another package offers %s, too: uninstall one", _shown(entry), entry.name)
        elif isinstance(made, kind):
            found[entry.name] = made
        else:
            wrong = (type(made).__name__, kind.__name__)
            log.warning("%s is left out, as it is a %s, not a %s: see docs/extending.md", _shown(entry), *wrong)
    return MappingProxyType(found)


def offered() -> tuple[str, ...]:
    """The entry points of all kinds, as text; nothing is loaded."""
    groups = (group for group in sorted(entry_points().groups) if group.startswith("tilewright."))
    return tuple(_shown(entry) for group in groups for entry in sorted(entry_points(group=group)))


def _shown(entry: EntryPoint) -> str:
    package = "a package" if entry.dist is None else f"the package {entry.dist.name} {entry.dist.version}"
    return f"{entry.name} = {entry.value} of {package} (entry points {entry.group})"


def identity(thing: object) -> str:
    """A text that identifies ``thing``: equal texts mean equal behaviour, also in another process.

    Numbers, texts, enums, collections and dataclasses are identified by their contents; functions and classes by their
    qualified names and the sources of their whole package (for a module outside of packages, its file); other objects
    by their class and attributes.

    Raises ``ValueError`` if there is no such text: for nested functions, interactive definitions, and sources changed
    since this process began.
    """
    try:
        return _identity(thing)
    except RecursionError as error:
        raise ValueError(f"a {type(thing).__name__} is in itself, or too deep") from error


def _identity(thing: object) -> str:
    match thing:
        case None | bool() | int() | float() | complex() | str() | bytes() | PurePath():
            return repr(thing)
        case Enum():
            return f"{_place(type(thing))}.{thing.name}"
        case type() | FunctionType():
            return _place(thing)
        case Mapping():
            pairs = cast("Mapping[object, object]", thing).items()
            inside = sorted(f"{_identity(key)}: {_identity(value)}" for key, value in pairs)
        case set() | frozenset():
            inside = sorted(map(_identity, cast("Iterable[object]", thing)))
        case tuple() | list():
            inside = [_identity(item) for item in cast("Iterable[object]", thing)]
        case _:
            inside = [f"{name}={_identity(value)}" for name, value in _state(thing).items()]
    return f"{_place(type(cast('object', thing)))}({', '.join(inside)})"


def _state(thing: object) -> Mapping[str, object]:
    """Attributes by name. Raises ``ValueError`` for objects that may have hidden state."""
    if is_dataclass(thing):
        return {field.name: getattr(thing, field.name) for field in fields(thing)}
    kind = type(thing)
    slots = any(base.__dict__.get("__slots__") for base in kind.__mro__)
    if slots or not hasattr(thing, "__dict__") or _top(kind.__module__) in sys.stdlib_module_names:
        raise ValueError(f"a {kind.__name__} does not say what is in it")
    return vars(thing)


def _place(thing: type | FunctionType) -> str:
    """The qualified name of a function or class, and a hash of its sources. Raises ``ValueError``."""
    if "<" in thing.__qualname__:
        raise ValueError(f"{thing.__qualname__} is made while its program runs")
    return f"{thing.__module__}.{thing.__qualname__}@{sources(_top(thing.__module__))}"


def _top(module: str) -> str:
    return module.partition(".")[0]


@cache
def sources(package: str) -> str:
    """A hash of the sources of a package (or module outside of packages) that is imported.

    Raises ``ValueError`` if there are none, or if some have changed since this process began, which may run older ones.
    """
    if package in sys.stdlib_module_names:
        return sys.version
    digest = hashlib.sha256()
    try:
        for name, path in _files(package):
            if path.stat().st_mtime > _STARTED:
                raise ValueError(f"{path} is newer than this process")
            content = path.read_bytes()
            digest.update(f"{name} {len(content)} ".encode() + content)
    except OSError as error:
        raise ValueError(f"the sources of {package} can't be read: {error}") from error
    return digest.hexdigest()


def _files(package: str) -> list[tuple[str, Path]]:
    """Names and paths of sources. Raises ``ValueError`` if there are none."""
    module = sys.modules.get(package)
    found = [
        (path.relative_to(folder).as_posix(), path)
        for folder in map(Path, getattr(module, "__path__", ()))
        for path in sorted(folder.rglob("*"))
        if path.suffix in _SOURCES
    ]
    file = getattr(module, "__file__", None)
    if not found and isinstance(file, str) and file.endswith(".py"):
        found = [(package, Path(file))]
    if not found:
        raise ValueError(f"there are no sources of {package}")
    return found
