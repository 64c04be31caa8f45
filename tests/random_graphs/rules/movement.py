"""Operators that move elements, or make them."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tests.random_graphs.draw import MAX_ELEMENTS, Draw, Proposal, Value

Rule = Callable[[Draw], Proposal | None]


def _concat(draw: Draw) -> Proposal:
    first = draw.value(rank=(1, 4))
    axis = draw.axis(first.rank)
    place = axis % first.rank

    def fits(value: Value) -> bool:
        return value.dtype == first.dtype and _without(value.shape, place) == _without(first.shape, place)

    parts = [first]
    for _ in range(draw.integer(0, 2)):
        shape = [draw.integer(1, 5) if d == place else extent for d, extent in enumerate(first.shape)]
        parts.append(draw.reused(fits) or draw.fresh(shape, first.dtype))
    return Proposal(parts if draw.chance(0.5) else parts[::-1], {"axis": axis})


def _without(shape: Sequence[int], place: int) -> tuple[int, ...]:
    return (*shape[:place], *shape[place + 1 :], -len(shape))


def _split(draw: Draw) -> Proposal | None:
    data = draw.value(rank=(1, 4))
    axis = draw.axis(data.rank)
    extent = data.shape[axis]
    if not extent:
        return None
    count = draw.integer(1, min(extent, 4))
    cuts = sorted(draw.permutation(extent - 1)[: count - 1])
    sizes = np.diff([0, *(cut + 1 for cut in cuts), extent]).tolist()
    if extent % count == 0 and draw.chance(0.5) and draw.opset < 18:
        return Proposal([data], {"axis": axis}, count)
    if draw.opset >= 18 and draw.chance(0.3) and math.ceil(extent / count) * (count - 1) < extent:
        return Proposal([data], {"axis": axis, "num_outputs": count}, count)
    if draw.opset < 13:
        return Proposal([data], {"axis": axis, "split": sizes}, count)
    return Proposal([data, draw.parameter(*sizes)], {"axis": axis}, count)


def _reshape(draw: Draw) -> Proposal:
    data = draw.value()
    count = math.prod(data.shape)
    shape: list[int] = []
    while count > 1 and len(shape) < 4:
        factor = draw.pick([d for d in range(1, count + 1) if count % d == 0])
        shape.append(factor)
        count //= factor
    if count != 1 or draw.chance(0.2):
        shape.insert(draw.integer(0, len(shape)), count)
    if not math.prod(data.shape):
        return Proposal([data, draw.parameter(*data.shape, 1)], {"allowzero": 1} if draw.opset >= 14 else {})
    if shape and draw.chance(0.4):
        shape[draw.integer(0, len(shape) - 1)] = -1
    return Proposal([data, draw.parameter(*shape)])


def _transpose(draw: Draw) -> Proposal:
    data = draw.value(rank=(0, 5))
    return Proposal([data], {"perm": draw.permutation(data.rank)} if data.rank and draw.chance(0.8) else {})


def _slice(draw: Draw) -> Proposal:
    data = draw.value(rank=(1, 5))
    axes = draw.subset(data.rank, least=1)
    starts, ends, steps = [], [], []
    for axis in axes:
        extent = data.shape[axis]
        steps.append(draw.pick([1, 1, 1, 2, 3, -1, -1, -2]) if draw.opset >= 10 else 1)
        low, high = sorted((draw.integer(-1, extent + 1), draw.integer(0, extent + 2)))
        start, end = (low, high) if steps[-1] > 0 else (high, low)
        start = start - extent if draw.chance(0.3) and 0 <= start < extent else start
        starts.append(-extent - draw.integer(1, 3) if draw.chance(0.1) else start)
        far = draw.pick([2**31, 2**62]) * (1 if steps[-1] > 0 else -1)
        ends.append(far if draw.chance(0.2) else end)
    if draw.opset < 10:
        return Proposal([data], {"starts": starts, "ends": ends, "axes": axes})
    named = [axis - data.rank if draw.chance(0.3) else axis for axis in axes]
    lists = [starts, ends, named] + ([steps] if set(steps) != {1} or draw.chance(0.3) else [])
    kind = np.int32 if max(map(abs, ends)) < 2**31 and draw.chance(0.3) else np.int64
    return Proposal([data, *(draw.parameters(np.array(numbers, kind)) for numbers in lists)])


def _with_axes(draw: Draw, data: Value, axes: Sequence[int]) -> Proposal:
    """Axes were an attribute before opset 13."""
    if draw.opset < 13:
        return Proposal([data], {"axes": list(axes)})
    return Proposal([data, draw.parameter(*axes)])


def _squeeze(draw: Draw) -> Proposal:
    data = draw.value(rank=(1, 5), where=lambda v: 1 in v.shape)
    ones = [axis for axis, extent in enumerate(data.shape) if extent == 1]
    if not ones or draw.chance(0.2):
        return Proposal([data])
    axes = [
        ones[i] - (data.rank if draw.chance(0.3) and draw.opset >= 11 else 0) for i in draw.subset(len(ones), least=1)
    ]
    return _with_axes(draw, data, axes)


def _unsqueeze(draw: Draw) -> Proposal:
    data = draw.value(rank=(0, 3))
    rank = data.rank + draw.integer(1, 2)
    axes = draw.permutation(rank)[: rank - data.rank]
    axes = sorted(axes) if draw.opset < 13 else axes
    if draw.opset >= 11:
        axes = [axis - rank if draw.chance(0.3) else axis for axis in axes]
    return _with_axes(draw, data, axes)


def _flatten(draw: Draw) -> Proposal:
    data = draw.value(rank=(0, 4))
    return Proposal([data], {"axis": draw.integer(-data.rank if draw.opset >= 11 else 0, data.rank)})


def _expand(draw: Draw) -> Proposal:
    data = draw.value(rank=(0, 4))
    shape = [draw.integer(1, 5) if extent == 1 else draw.pick([1, extent]) for extent in data.shape]
    while draw.chance(0.3) and len(shape) < 5:
        shape.insert(0, draw.integer(1, 3))
    return Proposal([data, draw.parameter(*shape[draw.integer(0, min(1, len(shape))) :])])


def _tile(draw: Draw) -> Proposal:
    data = draw.value(rank=(1, 4))
    return Proposal([data, draw.parameter(*draw.integers(data.rank, 1, 3))])


def _pad(draw: Draw) -> Proposal | None:
    data = draw.value(rank=(1, 4))
    mode = draw.pick(["constant", "constant", "reflect", "edge"] + (["wrap"] if draw.opset >= 19 else []))
    if 0 in data.shape:
        return None
    low = -1 if mode == "constant" and draw.chance(0.2) else 0
    most = [3 if mode in ("constant", "edge") else min(3, extent - 1) for extent in data.shape]
    pads = [
        draw.integer(low if extent > 2 else 0, high)
        for _ in range(2)
        for high, extent in zip(most, data.shape, strict=True)
    ]
    if draw.opset < 11:
        return Proposal([data], {"mode": mode, "pads": pads})
    inputs: list[Value | None] = [data, draw.parameter(*pads)]
    if mode == "constant" and draw.chance(0.6):
        inputs.append(draw.constant(draw.elements((), data.dtype)))
    if draw.opset >= 18 and draw.chance(0.3):
        axes = draw.subset(data.rank, least=1)
        inputs[1] = draw.parameter(*(pads[axis] for axis in axes), *(pads[data.rank + axis] for axis in axes))
        inputs += [None] * (3 - len(inputs)) + [draw.parameter(*axes)]
    return Proposal(inputs, {"mode": mode})


def _depth_to_space(draw: Draw) -> Proposal:
    block = draw.integer(1, 3)
    shape = (draw.integer(1, 2), block * block * draw.integer(1, 4), draw.integer(1, 5), draw.integer(1, 5))
    mode = {"mode": draw.pick(["DCR", "CRD"])} if draw.opset >= 11 else {}
    return Proposal([draw.like(shape, draw.dtype())], {"blocksize": block, **mode})


def _space_to_depth(draw: Draw) -> Proposal:
    block = draw.integer(1, 3)
    shape = (draw.integer(1, 2), draw.integer(1, 17), block * draw.integer(1, 4), block * draw.integer(1, 4))
    return Proposal([draw.like(shape, draw.dtype())], {"blocksize": block})


def _trilu(draw: Draw) -> Proposal:
    data = draw.value(rank=(2, 4))
    inputs = [data, draw.parameters(np.array(draw.integer(-3, 3)))] if draw.chance(0.7) else [data]
    return Proposal(inputs, {"upper": draw.integer(0, 1)})


def _shape(draw: Draw) -> Proposal:
    data = draw.value(rank=(1, 5))
    return Proposal([data], {"start": draw.axis(data.rank)} if draw.opset >= 15 and draw.chance(0.4) else {})


def _size(draw: Draw) -> Proposal:
    return Proposal([draw.value()])


def _constant_of_shape(draw: Draw) -> Proposal:
    shape = draw.shape(None, 0, 3)
    value = draw.elements((1,), draw.dtype_of_result())
    return Proposal([draw.parameter(*shape)], {"value": value} if draw.chance(0.8) else {})


def _range(draw: Draw) -> Proposal:
    dtype = draw.dtype()
    start, step = draw.integer(-5, 5), draw.pick([1, 2, 3, -1, -2])
    limit = start + step * draw.integer(0, 15) + draw.integer(0, 1)
    return Proposal([draw.parameters(np.array(number, dtype)) for number in (start, limit, step)])


def _eye_like(draw: Draw) -> Proposal:
    return Proposal([draw.value(rank=(2, 2))], {"k": draw.integer(-3, 3)})


def _center_crop_pad(draw: Draw) -> Proposal:
    data = draw.value(rank=(1, 4))
    axes = draw.subset(data.rank, least=1)
    return Proposal([data, draw.parameter(*draw.integers(len(axes), 1, 12))], {"axes": axes})


def _reverse_sequence(draw: Draw) -> Proposal | None:
    data = draw.value(rank=(2, 4))
    batch = draw.integer(0, 1)
    if not data.shape[1 - batch]:
        return None
    lengths = np.array(draw.integers(data.shape[batch], 1, data.shape[1 - batch]), np.int64)
    return Proposal([data, draw.input(lengths)], {"batch_axis": batch, "time_axis": 1 - batch})


def _col2im(draw: Draw) -> Proposal | None:
    block = draw.integers(2, 1, 3)
    image = [draw.integer(b, 7) for b in block]
    blocks = math.prod(i - b + 1 for i, b in zip(image, block, strict=True))
    shape = (draw.integer(1, 2), draw.integer(1, 3) * math.prod(block), blocks)
    if math.prod(shape) > MAX_ELEMENTS:
        return None
    return Proposal([draw.like(shape, draw.dtype(0, "f")), draw.parameter(*image), draw.parameter(*block)])


RULES: Mapping[str, Rule] = {
    "CenterCropPad": _center_crop_pad,
    "Col2Im": _col2im,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "ReverseSequence": _reverse_sequence,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
