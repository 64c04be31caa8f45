"""The front end of PyTorch (``frontend.api``): opens modules and exported programs. Importing it is cheap."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tilewright.base.errors import TilewrightError
from tilewright.base.store import Cache
from tilewright.frontend.api import Coverage, Digest, Examples, GivenShapes, Part, Source
from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.onnx.with_arrays import OnnxWithArrays
from tilewright.graph import Array, Graph, Value


class TorchProgram(Source):
    """A module or an exported program. It is exported once, when it is first asked for."""

    def __init__(self, program: object, examples: Examples | None, operators: tuple[OnnxOperator, ...]) -> None:
        self._program = program
        self._examples = examples
        self._operators = operators

    @cached_property
    def _outcome(self) -> OnnxWithArrays | TilewrightError:
        from tilewright.frontend.pytorch.exporting import exported

        try:
            return exported(self._program, self._examples, self._operators)
        except TilewrightError as error:
            return error

    @property
    def _model(self) -> OnnxWithArrays:
        """Raises what exporting raised."""
        if isinstance(self._outcome, TilewrightError):
            raise self._outcome
        return self._outcome

    def load(self, shapes: GivenShapes, bounds: Mapping[str, int], most_bytes: int | None = None) -> Graph:
        return self._model.load(shapes, bounds, most_bytes)

    def inputs(self, shapes: GivenShapes) -> Sequence[Value]:
        return self._model.inputs(shapes)

    def coverage(self, shapes: GivenShapes) -> Coverage:
        return self._model.coverage(shapes)

    def sha256(self) -> str | None:
        return self._model.sha256()

    def digest(self, notes: Cache) -> Digest | None:
        return self._model.digest(notes)

    def parts(self) -> Mapping[str, Part]:
        return self._model.parts()

    def path_for_others(self, folder: Path) -> Path:
        return self._model.path_for_others(folder)

    def by_onnxruntime(self, feeds: Mapping[str, Array], wanted: Iterable[str]) -> Mapping[str, Array]:
        return self._model.by_onnxruntime(feeds, wanted)


@dataclass(frozen=True, slots=True)
class PyTorch:
    """The front end of PyTorch; ``operators``: in addition to ONNX's own; ``examples``: inputs of the module."""

    operators: tuple[OnnxOperator, ...] = ()
    examples: Examples | None = None
    accepted: str = "a torch.nn.Module or an ExportedProgram"

    def open(self, given: object) -> Source | None:
        if sys.modules.get("torch") is None:  # then it is nothing of PyTorch
            return None
        import torch

        if isinstance(given, torch.nn.Module | torch.export.ExportedProgram):
            return TorchProgram(given, self.examples, self.operators)
        return None
