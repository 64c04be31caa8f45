"""Settings: the values of environment variables, read once and passed as an argument.

There is no global state: ``Settings.from_environment()`` is called where work begins, and a caller may make or
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
    """Stages that can be printed; each value is the name of the pipeline's step that produces it."""

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
    """Options of a process that change no result."""

    print_stages: frozenset[Stage] = frozenset()
    """``TILEWRIGHT_PRINT=graph,loops`` prints these stages to standard error; ``all`` is every stage."""

    print_folder: Path | None = None
    """``TILEWRIGHT_PRINT_FOLDER``: folder to print the stages to instead, an absolute path: a file for each stage and
    each kernel, in a folder for each compilation. Every stage, if ``TILEWRIGHT_PRINT`` is unset."""

    num_threads: Annotated[int, Within(1, 999_999)] | None = None
    """``TILEWRIGHT_NUM_THREADS=4``: maximum number of threads of the worker pool; None: all that this process may use.
    """

    cache_dir: Path | None = None
    """``TILEWRIGHT_CACHE_DIR``: folder of compiled kernels, an absolute path; None (``off``): no cache on disk.

    Unset, it is ``tilewright/kernels`` in ``XDG_CACHE_HOME``, or in ``~/.cache``.
    """

    cache_bytes: Annotated[int, Within(0, 1 << 60)] = _DEFAULT_CACHE_BYTES
    """``TILEWRIGHT_CACHE_BYTES=512M``: size limit of that folder in bytes; 0: no cache on disk. 1 GiB if unset."""

    model_cache_bytes: Annotated[int, Within(0, 1 << 60)] = _DEFAULT_MODEL_CACHE_BYTES
    """``TILEWRIGHT_MODEL_CACHE_BYTES=8G``: size limit in bytes of the compiled models in that folder, besides the
    kernels; 0: models are not kept. 4 GiB if unset; a model larger than half of it is not kept."""

    key_dir: Path | None = None
    """``TILEWRIGHT_KEY_DIR``: folder of the key that signs this user's artifacts, an absolute path; None without a home
    directory.

    Unset, it is ``tilewright`` in ``XDG_DATA_HOME``, or in ``~/.local/share``.
    """

    records: Path | None = None
    """``TILEWRIGHT_RECORDS``: the tuning database, an absolute path; None (``off``): no tuning results are used.

    Unset, it is ``tilewright/records.db`` in ``XDG_DATA_HOME``, or in ``~/.local/share``.
    """

    machine: Path | None = None
    """``TILEWRIGHT_MACHINE``: the file of machine parameters that ``tilewright doctor --measure`` writes, an absolute
    path; None (``off``): the built-in parameters.

    Unset, it is ``tilewright/machine.json`` in ``XDG_DATA_HOME``, or in ``~/.local/share``.
    """

    repro_dir: Path | None = None
    """``TILEWRIGHT_REPRO_DIR``: folder of the bundles that reproduce faults of the compiler, an absolute path; None
    (``off``): none are written.

    Unset, it is ``tilewright/repro`` in ``XDG_CACHE_HOME``, or in ``~/.cache``.
    """

    repro_bytes: int = _DEFAULT_REPRO_BYTES
    """``TILEWRIGHT_REPRO_BYTES=4G``: size limit of that folder in bytes; 0: no bundles. 1 GiB if unset; a larger model
    is not packed, and the oldest bundles are removed first."""

    bounds_check: bool = False
    """``TILEWRIGHT_BOUNDS_CHECK=1``: compiled kernels check every access, and raise ``OutOfBounds``; slow."""

    model_bytes: Annotated[int, Within(0, 1 << 60)] | None = None
    """``TILEWRIGHT_MODEL_BYTES=8G``: maximum bytes of a model's constants during import; None: all available memory."""

    def __post_init__(self) -> None:
        """Raises ``BadInput`` for a field of the wrong type."""
        check_fields(self, BadInput)

    @staticmethod
    @checked(BadInput)
    def from_environment(environ: Mapping[str, str] = os.environ) -> "Settings":
        """The settings in ``environ``; an empty variable counts as unset.

        Raises ``BadInput`` for a malformed value, and for an unknown variable with our prefix.
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
        """These settings with the folder and size limit of compiled models in place of those of kernels."""
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
"""Default folders (XDG base directories): a variable, and its default below the home directory."""


@dataclass(frozen=True, slots=True)
class _Places:
    """Paths of files and folders: by variable, the user's value or the default."""

    given: Mapping[str, str]
    environ: Mapping[str, str]

    def place(self, name: str, kind: tuple[str, str], ours: str = "", *, may_be_off: bool = True) -> Path | None:
        """The path; None if it is off, or if it is unset and there is no home directory."""
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
