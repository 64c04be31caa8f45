"""Settings: the values of environment variables, read once and passed as an argument.

There is no hidden global: ``Settings.from_environment()`` is called where work begins, and a caller may make or
``dataclasses.replace`` a ``Settings`` instead. A new setting is a field here and one line in ``from_environment``.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated

from tilewright.base.arguments import Within, check_fields, checked
from tilewright.base.errors import BadInput
from tilewright.base.names import nearest, readable, shown
from tilewright.base.sizes import parse_size

PREFIX = "TILEWRIGHT_"
_DEFAULT_CACHE_BYTES = 1 << 30
_DEFAULT_MODEL_CACHE_BYTES = 4 << 30
_DEFAULT_REPRO_BYTES = 1 << 30
_MODELS = "models"


class Stage(Enum):
    """What can be printed on the way; each value is the name of the pipeline's step that makes it."""

    GRAPH = "graph"
    NORMALIZE = "normalize"
    RECOGNIZE = "recognize"
    ALGEBRA = "algebra"
    SUPEROPT = "superopt"
    CHOOSE = "choose"
    LAYOUT = "layout"
    FLATTEN = "flatten"
    FUSE = "fuse"
    LOOPS = "loops"
    SCHEDULE = "schedule"
    MAIN = "main"
    LLVM = "llvm"
    ASM = "asm"


@dataclass(frozen=True, slots=True)
class Settings:
    """Choices that hold for a process, and change no result."""

    print_stages: frozenset[Stage] = frozenset()
    """``TILEWRIGHT_PRINT=graph,loops`` prints these stages to standard error; ``all`` is every stage."""

    print_folder: Path | None = None
    """``TILEWRIGHT_PRINT_FOLDER``: folder to print the stages to instead, an absolute path: a file for each stage and
    each kernel, in a folder for each compilation. Every stage, if ``TILEWRIGHT_PRINT`` is unset."""

    num_threads: Annotated[int, Within(1, 999_999)] | None = None
    """``TILEWRIGHT_NUM_THREADS=4``: the most threads that the worker pool uses; None: as many as the machine lends."""

    cache_dir: Path | None = None
    """``TILEWRIGHT_CACHE_DIR``: folder of compiled kernels, an absolute path; None (``off``): no cache on disk.

    Unset, it is ``tilewright/kernels`` in ``XDG_CACHE_HOME``, or in ``~/.cache``.
    """

    cache_bytes: Annotated[int, Within(0, 1 << 60)] = _DEFAULT_CACHE_BYTES
    """``TILEWRIGHT_CACHE_BYTES=512M``: bound of that folder in bytes; 0: no cache on disk. 1 GiB if unset."""

    model_cache_bytes: Annotated[int, Within(0, 1 << 60)] = _DEFAULT_MODEL_CACHE_BYTES
    """``TILEWRIGHT_MODEL_CACHE_BYTES=8G``: bound in bytes of the compiled models in that folder, beside the kernels; 0:
    whole models are not kept. 4 GiB if unset; a model that takes more than half of it is not kept."""

    key_dir: Path | None = None
    """``TILEWRIGHT_KEY_DIR``: folder of the key that signs this user's artifacts, an absolute path; None if no home.

    Unset, it is ``tilewright`` in ``XDG_DATA_HOME``, or in ``~/.local/share``.
    """

    records: Path | None = None
    """``TILEWRIGHT_RECORDS``: what was tuned, an absolute path; None (``off``): nothing that was tuned is used.

    Unset, it is ``tilewright/records.db`` in ``XDG_DATA_HOME``, or in ``~/.local/share``.
    """

    machine: Path | None = None
    """``TILEWRIGHT_MACHINE``: what ``tilewright doctor --measure`` found of this machine, an absolute path; None
    (``off``): the figures that are built in.

    Unset, it is ``tilewright/machine.json`` in ``XDG_DATA_HOME``, or in ``~/.local/share``.
    """

    repro_dir: Path | None = None
    """``TILEWRIGHT_REPRO_DIR``: folder of the bundles that faults of the compiler leave, an absolute path; None
    (``off``): they leave none.

    Unset, it is ``tilewright/repro`` in ``XDG_CACHE_HOME``, or in ``~/.cache``.
    """

    repro_bytes: int = _DEFAULT_REPRO_BYTES
    """``TILEWRIGHT_REPRO_BYTES=4G``: bound of that folder in bytes; 0: no bundles. 1 GiB if unset; a larger model is
    not packed, and the oldest bundles go first."""

    bounds_check: bool = False
    """``TILEWRIGHT_BOUNDS_CHECK=1``: compiled kernels check every access, and raise ``OutOfBounds``; slow."""

    model_bytes: Annotated[int, Within(0, 1 << 60)] | None = None
    """``TILEWRIGHT_MODEL_BYTES=8G``: the most bytes that a model's constants may take while it is imported; None: as
    many as this process can have."""

    def __post_init__(self) -> None:
        """Raises ``BadInput`` for a value that is none of what is declared."""
        check_fields(self, BadInput)

    @staticmethod
    @checked(BadInput)
    def from_environment(environ: Mapping[str, str] = os.environ) -> "Settings":
        """The settings that ``environ`` says; an empty variable is an unset one.

        Raises ``BadInput`` for a value that can't be read, and for an unknown variable with our prefix.
        """
        given = {name.removeprefix(PREFIX): value.strip() for name, value in environ.items() if name.startswith(PREFIX)}
        _refuse_unknown(given)
        given = {name: value for name, value in given.items() if value}
        places = _Places(given, environ)
        return Settings(
            print_stages=_stages(given.get("PRINT", "all" if "PRINT_FOLDER" in given else "")),
            print_folder=places.given_place("PRINT_FOLDER"),
            num_threads=_positive("NUM_THREADS", given.get("NUM_THREADS")),
            cache_dir=places.place("CACHE_DIR", _CACHE, "kernels"),
            cache_bytes=_bytes("CACHE_BYTES", given.get("CACHE_BYTES"), _DEFAULT_CACHE_BYTES),
            model_cache_bytes=_bytes("MODEL_CACHE_BYTES", given.get("MODEL_CACHE_BYTES"), _DEFAULT_MODEL_CACHE_BYTES),
            model_bytes=_bytes("MODEL_BYTES", given["MODEL_BYTES"], 0) if "MODEL_BYTES" in given else None,
            key_dir=places.place("KEY_DIR", _DATA, may_be_off=False),
            records=places.place("RECORDS", _DATA, "records.db"),
            machine=places.place("MACHINE", _DATA, "machine.json"),
            repro_dir=places.place("REPRO_DIR", _CACHE, "repro"),
            repro_bytes=_bytes("REPRO_BYTES", given.get("REPRO_BYTES"), _DEFAULT_REPRO_BYTES),
            bounds_check=_switch("BOUNDS_CHECK", given.get("BOUNDS_CHECK", "0")),
        )

    def for_models(self) -> "Settings":
        """These settings with the folder of compiled models in place of that of kernels, and its bound."""
        folder = None if self.cache_dir is None else self.cache_dir / _MODELS
        return replace(self, cache_dir=folder, cache_bytes=self.model_cache_bytes)


_NAMES = (
    "PRINT",
    "PRINT_FOLDER",
    "NUM_THREADS",
    "CACHE_DIR",
    "CACHE_BYTES",
    "MODEL_CACHE_BYTES",
    "MODEL_BYTES",
    "KEY_DIR",
    "RECORDS",
    "MACHINE",
    "REPRO_DIR",
    "REPRO_BYTES",
    "BOUNDS_CHECK",
)
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _refuse_unknown(names: Iterable[str]) -> None:
    for name in names:
        if name not in _NAMES:
            near = nearest(name, _NAMES, 1) or _NAMES
            raise BadInput(
                f"there is no setting {PREFIX}{readable(name)}; there is {', '.join(PREFIX + n for n in near)}"
            )


def _refusal(name: str, value: str, remedy: str) -> BadInput:
    return BadInput(f"{PREFIX}{name}={shown(value)} can't be read: {remedy}, or unset it")


def _stages(text: str) -> frozenset[Stage]:
    known = {stage.value: stage for stage in Stage}
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if "all" in words:
        return frozenset(Stage)
    for word in words:
        if word not in known:
            raise _refusal("PRINT", text, f"{shown(word)} is no stage; give some of {', '.join(known)}, or all")
    return frozenset(known[word] for word in words)


def _positive(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 7 and int(value) > 0):
        raise _refusal(name, value, "give a whole number from 1 to 999999")
    return int(value)


def _bytes(name: str, value: str | None, default: int) -> int:
    if value is None:
        return default
    size = parse_size(value)
    if size is None:
        raise _refusal(name, value, "give a number of bytes, such as 1073741824 or 512M")
    return size


def _switch(name: str, value: str) -> bool:
    if value.lower() not in _SWITCH:
        raise _refusal(name, value, "give 1 or 0")
    return _SWITCH[value.lower()]


_CACHE = ("XDG_CACHE_HOME", ".cache/tilewright")
_DATA = ("XDG_DATA_HOME", ".local/share/tilewright")
"""Where our files go if the user says nothing (XDG base directories): a variable, and what it means under the home."""


@dataclass(frozen=True, slots=True)
class _Places:
    """Files and folders: of each variable, what the user says, or the usual place."""

    given: Mapping[str, str]
    environ: Mapping[str, str]

    def place(self, name: str, kind: tuple[str, str], ours: str = "", *, may_be_off: bool = True) -> Path | None:
        """None if it is off, or if nothing is said and there is no home."""
        value = self.given.get(name)
        if value is None:
            return self._usual(*kind, ours)
        return None if may_be_off and value.lower() == "off" else self._said(name, value, ", or off" * may_be_off)

    def given_place(self, name: str) -> Path | None:
        """None if nothing is said."""
        value = self.given.get(name)
        return None if value is None else self._said(name, value)

    def _said(self, name: str, value: str, others: str = "") -> Path:
        path = Path(self.environ.get("HOME", "") + value[1:]) if value.startswith("~/") else Path(value)
        if not path.is_absolute():
            raise _refusal(name, value, f"give an absolute path{others}")
        return path

    def _usual(self, variable: str, under_home: str, ours: str) -> Path | None:
        given, folder = self.environ.get(variable, ""), Path(under_home)
        if given.startswith("/"):
            return Path(given) / folder.name / ours
        base = Path(self.environ.get("HOME", "")) / folder
        return base / ours if base.is_absolute() else None
