"""ONNX's node tests as the installed onnx makes them, and the inputs that must be constants in each."""

import fcntl
import functools
import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from tests import profiles

Array = NDArray[np.generic]
Item = Array | onnx.TensorProto | Sequence[object] | None

_EXPANDED = "_expanded"
"""A test whose name ends so (and perhaps with a version) has the body of the operator's function as its model."""

PARAMETERS: Mapping[str, Mapping[int, str]] = {
    "AffineGrid": {1: "size"},
    "CenterCropPad": {1: "shape"},
    "Col2Im": {1: "shape", 2: "shape"},
    "CumProd": {1: "axis"},
    "CumSum": {1: "axis"},
    "DFT": {1: "length", 2: "axis"},
    "Dropout": {1: "ratio", 2: "mode"},
    "Expand": {1: "shape"},
    "Loop": {0: "steps", 1: "condition"},
    "MaxUnpool": {2: "shape"},
    "NonMaxSuppression": {2: "count"},
    "OneHot": {1: "depth"},
    "Pad": {1: "pads", 3: "axes"},
    "ReduceL1": {1: "axes"},
    "ReduceL2": {1: "axes"},
    "ReduceLogSum": {1: "axes"},
    "ReduceLogSumExp": {1: "axes"},
    "ReduceMax": {1: "axes"},
    "ReduceMean": {1: "axes"},
    "ReduceMin": {1: "axes"},
    "ReduceProd": {1: "axes"},
    "ReduceSum": {1: "axes"},
    "ReduceSumSquare": {1: "axes"},
    "Reshape": {1: "shape"},
    "Resize": {1: "roi", 2: "scales", 3: "sizes"},
    "STFT": {1: "step", 3: "length"},
    "SequenceInsert": {2: "position"},
    "Slice": {1: "starts", 2: "ends", 3: "axes", 4: "steps"},
    "Split": {1: "sizes"},
    "SplitToSequence": {1: "sizes"},
    "Squeeze": {1: "axes"},
    "Tile": {1: "repeats"},
    "TopK": {1: "k"},
    "Trilu": {1: "k"},
    "Unsqueeze": {1: "axes"},
    "Upsample": {1: "scales"},
}
"""The inputs (position: what it says) that decide a result's shape or the loops over it, and so may be constants.

Exporters emit constants here; the node tests feed them. Data is never listed: what an operator computes with arrives at
run time.
"""


@dataclass(frozen=True, slots=True)
class Looser:
    """A tolerance in the place of a test's own, which its expected numbers do not keep themselves."""

    reason: str
    rtol: float = 0.0
    atol: float = 0.0


_CANCELS = Looser("where terms of up to 54 cancel, 1.9e-7 is expected for 0, less than f32 tells apart", atol=2e-7)

LOOSER: dict[str, Looser] = {
    "test_dft_inverse": _CANCELS,
    "test_dft_inverse_opset19": _CANCELS,
}
"""The tests, by name, whose own tolerances are too tight, and why. All others keep theirs."""


@dataclass(frozen=True, slots=True)
class Case:
    """One node test: a model, its inputs by name, and the outputs that ONNX expects."""

    name: str
    model: onnx.ModelProto
    inputs: Mapping[str, Item]
    outputs: Sequence[Item]
    parameters: Mapping[str, str]
    """The names of the inputs that may be constants, and what they say. Empty if no input would be left."""
    rtol: float
    atol: float
    shapes: Mapping[str, tuple[int, ...]]
    """How many tensors are in each input that is a sequence or an optional; then also the shapes of all tensors."""

    @property
    def tolerance(self) -> tuple[float, float]:
        """How far results may be from the expected ones: relatively, and from zero."""
        looser = LOOSER.get(self.name)
        return (self.rtol, self.atol) if looser is None else (max(self.rtol, looser.rtol), max(self.atol, looser.atol))

    def with_constants(self) -> onnx.ModelProto:
        """The model with constants in the place of its parameters, which are tensors."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        kept = [info for info in model.graph.input if info.name not in self.parameters]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        for name in self.parameters:
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array_of(self.inputs[name])), name))
        return model


def array_of(item: Item) -> Array:
    """The array of an input or output that is a tensor."""
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else np.asarray(item)


@functools.cache
def all_cases() -> Mapping[str, Case]:
    """Every node test of the installed onnx by name. Takes four seconds in the first process of a run of the tests."""
    folder = profiles.own_folder()
    return _made() if folder is None else _kept(folder / "onnx-node-tests")


def _kept(path: Path) -> Mapping[str, Case]:
    """What another process has made; the first one makes it, and the others wait."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_bytes(pickle.dumps(_made()))
    return pickle.loads(path.read_bytes())


def _made() -> Mapping[str, Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, about the overflows that these tests are about
        loaded = load_model_tests(kind="node")
    models = {test.name: test.model for test in loaded}
    return {test.name: _case(test, models[test.name.split(_EXPANDED)[0]]) for test in loaded}


def _case(test: object, original: onnx.ModelProto) -> Case:
    """``original``: the model before the operator's function was expanded; it has the same inputs."""
    ((inputs, outputs),) = test.data_sets
    infos = test.model.graph.input
    named = dict(zip([info.name for info in infos], inputs, strict=True))
    parameters = _parameters(original, named)
    if len(parameters) == len(named):
        parameters = {}
    found = [_spread(info.name, info.type, named[info.name]) for info in infos]
    tensors = {name: item for each, _ in found for name, item in each.items()}
    shapes = {name: shape for _, each in found for name, shape in each.items()}
    if shapes:  # sizes of tensors have the names of those in sequences
        shapes |= {name: array_of(item).shape for name, item in tensors.items() if name not in parameters}
    return Case(test.name, test.model, tensors, _leaves(outputs), parameters, test.rtol, test.atol, shapes)


def _spread(name: str, kind: onnx.TypeProto, item: Item) -> tuple[dict[str, Item], dict[str, tuple[int, ...]]]:
    """The tensors of an input by name, and their shapes, if it is a sequence or an optional."""
    if kind.HasField("sequence_type"):
        assert isinstance(item, Sequence)
        inner, elements = kind.sequence_type.elem_type, list(item)
    elif kind.HasField("optional_type"):
        inner, elements = kind.optional_type.elem_type, [] if item is None else [item]
    else:
        return {name: item}, {}
    tensors, shapes = dict[str, Item](), {name: (len(elements),)}
    for at, element in enumerate(elements):
        own, known = _spread(f"{name}.{at}", inner, element)
        tensors.update(own)
        shapes.update(known or {f"{name}.{at}": array_of(element).shape})
    return tensors, shapes


def _leaves(items: Sequence[Item]) -> list[Item]:
    """All tensors; those of sequences one after the other."""
    found: list[Item] = []
    for item in items:
        if isinstance(item, Sequence):
            found += _leaves(item)
        elif item is not None:
            found.append(item)
    return found


def _parameters(model: onnx.ModelProto, inputs: Mapping[str, Item]) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in model.graph.node:
        for position, role in PARAMETERS.get(node.op_type, {}).items():
            if position < len(node.input) and node.input[position] in inputs:
                found[node.input[position]] = role
    return found
