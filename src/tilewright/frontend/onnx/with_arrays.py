"""ONNX models of PyTorch's exporter, whose constants are arrays beside the model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from tilewright.base.store import Cache
from tilewright.frontend.api import Coverage, Digest, GivenShapes, Part, Source
from tilewright.frontend.onnx.front_end import OnnxModel
from tilewright.frontend.onnx.read import importer
from tilewright.frontend.onnx.read.array_data import ArrayData, constant
from tilewright.frontend.onnx.read.coverage import coverage
from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.onnx.read.user_lines import keep_stacks_only, without_stacks
from tilewright.graph import Array, Graph, Value


@dataclass(frozen=True, slots=True)
class OnnxWithArrays(Source):
    """A model with external tensors, and their bytes in memory."""

    model: onnx.ModelProto
    arrays: ArrayData
    operators: tuple[OnnxOperator, ...] = ()

    @staticmethod
    def of(
        model: onnx.ModelProto, constants: Mapping[str, Array], operators: tuple[OnnxOperator, ...]
    ) -> "OnnxWithArrays":
        """``model``, which lacks ``constants``, and these by name."""
        keep_stacks_only(model)
        model.graph.initializer.extend(constant(name, array) for name, array in constants.items())
        return OnnxWithArrays(model, ArrayData(constants), operators)

    def load(self, shapes: GivenShapes, bounds: Mapping[str, int], most_bytes: int | None = None) -> Graph:
        return importer.load(self.model, shapes, bounds, most_bytes, self.operators, self.arrays)

    def inputs(self, shapes: GivenShapes) -> Sequence[Value]:
        return importer.inputs_of(self.model, shapes)

    def coverage(self, shapes: GivenShapes) -> Coverage:
        return coverage(self.model, shapes, self.operators, self.arrays)

    def sha256(self) -> str | None:
        return self._elsewhere().sha256()

    def digest(self, notes: Cache) -> Digest | None:
        """The digest does not depend on where the user's program stands."""
        found = self._elsewhere().digest(notes)
        return None if found is None else replace(found, others=self.arrays.sha256())

    def parts(self) -> Mapping[str, Part]:
        return self._whole().parts()

    def by_onnxruntime(self, feeds: Mapping[str, Array], wanted: Iterable[str]) -> Mapping[str, Array]:
        return self._whole().by_onnxruntime(feeds, wanted)

    def path_for_others(self, folder: Path) -> Path:
        return self._whole().path_for_others(folder)

    def _elsewhere(self) -> OnnxModel:
        return OnnxModel(without_stacks(self.model), self.operators)

    def _whole(self) -> OnnxModel:
        """The model with all bytes in it."""
        return OnnxModel(self.arrays.inside(self.model), self.operators)
