"""Operators that PyTorch's exporter writes as something else than PyTorch computes: here they become operators that it
writes as they are.

- Adaptive average pooling: the exporter looks at the sizes of the example, and writes what is right for these only.
- Nearest neighbours: ONNX's Resize divides a place by (after / before), PyTorch multiplies it by (before / after), in
  float32. Where the exact place is a whole number, the neighbours may be different ones.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

Size = int | torch.SymInt
_aten: Final = torch.ops.aten
_POWER_OF_TWO: Final = 0.5
"""Its mantissa."""


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """``program`` without these operators, where they matter: tracing a program anew may take minutes."""
    there = {node.target for node in program.graph.nodes if not _is_mean(node)}
    table = {operator: function for operator, function in _TABLE.items() if operator in there}
    return program.run_decompositions(table) if table else program


def _is_mean(node: Node) -> bool:
    """Whether this is pooling to one place, which the exporter writes as a mean, for all sizes."""
    if _TABLE.get(node.target) is not averaged:
        return False
    _, sizes = cast("tuple[object, Sequence[object]]", node.args)
    return all(size == 1 for size in sizes)


def averaged(data: Tensor, sizes: Sequence[Size]) -> Tensor:
    """Means over parts that make up ``data`` along the last axes; they overlap if their number does not divide it.

    Of known sizes, and of all, the exporter writes them as they are.
    """
    before = data.shape[data.ndim - len(sizes) :]
    if all(size == 1 for size in sizes):
        return data.mean([*range(-len(sizes), 0)], keepdim=True)
    if not any(isinstance(size, torch.SymInt) for size in before):
        return _AVERAGES[len(sizes)](data, sizes)
    for axis, (size, count) in enumerate(zip(before, sizes, strict=True), data.ndim - len(sizes)):
        weights = _shares(size, count).to(data.dtype)
        data = torch.matmul(data.transpose(axis, -1), weights).transpose(axis, -1)
    return data


def _shares(size: Size, count: Size) -> Tensor:
    """How much each of ``size`` elements counts in each of ``count`` means: a matrix."""
    parts, places = torch.arange(count), torch.arange(size).unsqueeze(1)
    begins, ends = parts * size // count, ((parts + 1) * size + count - 1) // count
    is_inside = (places >= begins) & (places < ends)
    return is_inside.to(torch.float32) / (ends - begins)


def nearest(data: Tensor, sizes: Sequence[Size] | None, scales: Sequence[float] | None) -> Tensor:
    """``data`` resized along the last axes to its nearest elements, which PyTorch computes in float32.

    Doubling, and all that both compute alike, the exporter writes as it is.
    """
    first = data.ndim - len(sizes or scales or ())
    before = data.shape[first:]
    after = sizes or [torch.sym_int(torch.sym_float(n) * s) for n, s in zip(before, scales or (), strict=True)]
    given = [*scales] if scales is not None else [None] * len(after)
    changes = [*zip(before, after, given, strict=True)]
    if all(_is_exact(*change) for change in changes):
        return _NEAREST[len(after)](data, after, *given)
    for axis, change in enumerate(changes, first):
        data = data.index_select(axis, _places(*change))
    return data


def _is_exact(before: Size, after: Size, scale: float | None) -> bool:
    """Whether products in float32 give the places that quotients do."""
    if scale is not None:
        return math.frexp(scale)[0] == _POWER_OF_TWO
    if isinstance(before, torch.SymInt) or isinstance(after, torch.SymInt) or after % max(before, 1):
        return False
    times = after // max(before, 1)
    step = np.float32(before) / np.float32(max(after, 1))
    places = np.minimum((np.arange(after, dtype=np.float32) * step).astype(np.int64), before - 1)
    return np.array_equal(places, np.arange(after) // max(times, 1))


def _places(before: Size, after: Size, scale: float | None) -> Tensor:
    """The source of each element."""
    step = _number(before) / _number(after) if scale is None else torch.full((1,), 1 / scale)
    found = (torch.arange(after, dtype=torch.float32) * step).to(torch.int64)
    return torch.minimum(found, torch.full((1,), before - 1, dtype=torch.int64))


def _number(size: Size) -> Tensor:
    return torch.full((1,), size, dtype=torch.float32)


def _average_of_one_axis(data: Tensor, sizes: Sequence[Size]) -> Tensor:
    return _aten._adaptive_avg_pool2d.default(data.unsqueeze(-2), (1, *sizes)).squeeze(-2)


_AVERAGES: Final = {
    1: _average_of_one_axis,
    2: _aten._adaptive_avg_pool2d.default,
    3: _aten._adaptive_avg_pool3d.default,
}
_NEAREST: Final = {
    1: _aten.upsample_nearest1d.default,
    2: _aten.upsample_nearest2d.default,
    3: _aten.upsample_nearest3d.default,
}
_TABLE: Final[Mapping[object, Callable[..., Tensor]]] = {
    _aten.adaptive_avg_pool1d.default: averaged,
    _aten.adaptive_avg_pool2d.default: averaged,
    _aten.adaptive_avg_pool3d.default: averaged,
    _aten.upsample_nearest1d.vec: nearest,
    _aten.upsample_nearest2d.vec: nearest,
    _aten.upsample_nearest3d.vec: nearest,
}
