"""An operator that a Python function computes: ``my.domain::Ranks``, as ``docs/own-operators.md`` shows it."""

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import f32
from tilewright.frontend.onnx.read.python_functions import TensorType, python_operator


def ranks(x: NDArray[np.float32], *, axis: int = -1) -> NDArray[np.float32]:
    """The place of each element of ``x`` among those along ``axis``, from 0 on."""
    return np.argsort(np.argsort(x, axis, kind="stable"), axis, kind="stable").astype(np.float32)


def of_ranks(x: TensorType, *, axis: int = -1) -> TensorType:
    """The type of the result."""
    assert -len(x.shape) <= axis < len(x.shape), "the axis is one of the input's"
    return TensorType(f32, x.shape)


RANKS = python_operator("my.domain", "Ranks", ranks, of_ranks)
