"""Prints what the stages of compiling make: to standard error, or to files.

::

    show = printer(Settings(print_stages=frozenset({Stage.GRAPH, Stage.LLVM}), print_folder=Path("/tmp/stages")))
    show(Stage.GRAPH, graph)                    # /tmp/stages/1/01-graph.txt
    show(Stage.LLVM, {"k0_gemm": text_of_it})   # /tmp/stages/1/02-llvm/k0_gemm.txt
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from tilewright.base.errors import BadInput
from tilewright.base.files import reason
from tilewright.base.names import printable
from tilewright.base.outputs import output
from tilewright.base.settings import Settings, Stage

UNCHANGED = "(unchanged)"
"""Printed for a stage whose graph is the one that was printed last. Files are whole: they can be compared."""
_GRAPHS = frozenset(
    {
        *(Stage.GRAPH, Stage.NORMALIZE, Stage.RECOGNIZE, Stage.ALGEBRA),
        *(Stage.SUPEROPT, Stage.LAYOUT, Stage.FLATTEN),
    }
)
_LONGEST_NAME = 200
"""Characters of a kernel's name in that of its file; systems take 255."""


def printer(settings: Settings, write: Callable[[str], object] | None = None) -> Callable[[Stage, object], None]:
    """A watcher of one compilation, which prints what the stages of ``settings.print_stages`` make.

    What a stage makes for each kernel is a mapping, by the kernels' names. ``write`` takes the text; standard error by
    default. With ``settings.print_folder``, the watcher makes a folder in it, ``1`` or the next number that is free,
    and raises ``BadInput`` if it can't be written to.
    """
    folder = settings.print_folder
    show = _Text(write or sys.stderr.write).show if folder is None else _Files(folder).show

    def watch(stage: Stage, made: object) -> None:
        if stage in settings.print_stages:
            show(stage, made)

    return watch


@dataclass(slots=True)
class _Text:
    """Stages one after the other, each under its name."""

    write: Callable[[str], object]
    graph: str = ""
    """The one that was printed last."""

    def show(self, stage: Stage, made: object) -> None:
        text = _text(made)
        if stage in _GRAPHS:
            self.graph, text = text, UNCHANGED if text == self.graph else text
        self.write(f"---- {stage.value}\n{text}\n")


@dataclass(slots=True)
class _Files:
    """A file for each stage, numbered in order; for a stage of kernels, a folder with a file for each."""

    parent: Path
    folder: Path | None = None
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def show(self, stage: Stage, made: object) -> None:
        try:
            if self.folder is None:
                self.folder = _new_folder(self.parent)
            place = self.folder / f"{next(self.numbers):02}-{stage.value}"
            kernels = _kernels(made)
            if kernels is None:
                _write(place.with_suffix(".txt"), _text(made))
                return
            place.mkdir()
            for name, text in kernels.items():
                _write(place / f"{name[:_LONGEST_NAME]}.txt", text)
        except OSError as error:
            raise BadInput(
                f"stages can't be written to {self.parent}: {reason(error)}; give another TILEWRIGHT_PRINT_FOLDER"
            ) from error


def _new_folder(parent: Path) -> Path:
    """Several processes may ask for one at once."""
    parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        place = parent / str(number)
        try:
            place.mkdir()
        except FileExistsError:
            continue
        return place
    raise AssertionError("numbers do not end")


def _write(path: Path, text: str) -> None:
    with output(path) as file:
        file.write(f"{printable(text.rstrip())}\n".encode())


def _text(made: object) -> str:
    """``made`` as a person reads it: of a sequence, and of kernels, one item after the other."""
    items = made if (kernels := _kernels(made)) is None else list(kernels.values())
    if isinstance(items, tuple | list):
        return "\n\n".join(str(item) for item in cast("tuple[object, ...] | list[object]", items))
    return str(items)


def _kernels(made: object) -> dict[str, str] | None:
    """Texts by the names of kernels; None if ``made`` is not of kernels."""
    if not isinstance(made, Mapping):
        return None
    return {name: str(kernel) for name, kernel in cast("Mapping[str, object]", made).items()}
