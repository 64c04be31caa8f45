"""Models of which a library may compute parts, and whether there is one."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model, single_node
from tilewright.base.dtypes import f32
from tilewright.base.errors import Unsupported
from tilewright.offload.library.model import LibraryModel
from tilewright.runtime.library.onednn import library
from tilewright.runtime.manifest import Manifest, TensorSpec

Floats = NDArray[np.float32]


def installed() -> bool:
    try:
        library()
    except Unsupported:
        return False
    return True


needs_library = pytest.mark.skipif(not installed(), reason="oneDNN is not installed: pip install 'tilewright[onednn]'")


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def always(proto: onnx.ModelProto, threads: int = 1) -> LibraryModel:
    made = tilewright.compile(proto, library="onednn,always", threads=threads)
    assert isinstance(made, LibraryModel)
    return made


def convolution(
    shape: Sequence[int], weights: Sequence[int], *, bias: bool = True, **attributes: object
) -> tuple[onnx.ModelProto, dict[str, Floats]]:
    feeds, constants = {"x": normal(*shape)}, {"w": normal(*weights, seed=1)}
    if bias:
        constants["b"] = normal(weights[0], seed=2)
    return single_node("Conv", feeds, constants, **attributes), feeds


def network() -> tuple[onnx.ModelProto, dict[str, Floats]]:
    feeds = {"x": normal(1, 8, 12, 12)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="c0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="r0"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="c1", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "x"], ["d"], name="add"),
        helper.make_node("GlobalAveragePool", ["d"], ["e"], name="mean"),
        helper.make_node("Flatten", ["e"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w2"], ["y"], name="last"),
    ]
    constants = {"w0": normal(8, 8, 3, 3, seed=1), "w1": normal(8, 8, 3, 3, seed=2), "w2": normal(8, 5, seed=3)}
    return model(nodes, feeds, ["y"], constants), feeds


def manifest_of(source: tuple[int, ...], result: tuple[int, ...], *constants: Floats) -> Manifest:
    names = ("weights", "bias")
    known = tuple(TensorSpec(name, f32, each.shape) for name, each in zip(names, constants, strict=False))
    return Manifest((TensorSpec("x", f32, source),), (TensorSpec("y", f32, result),), known)
