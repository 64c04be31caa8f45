"""Normalizations, and the softmax family."""

from collections.abc import Callable, Mapping

import numpy as np

from tests.random_graphs.case import Attribute
from tests.random_graphs.draw import CHANNELS, DTYPES, Draw, Proposal, Value

Rule = Callable[[Draw], Proposal | None]


def _channels(draw: Draw, low: int = 2, high: int = 5) -> Value:
    """A value with batch and channels, and perhaps spatial dimensions, of a range that can be normalized."""
    known = draw.reused(
        lambda v: v.dtype.name in _floats(draw) and low <= v.rank <= high and 0 not in v.shape and v.within(-50, 50)
    )
    spatial = [draw.integer(1, 6) for _ in range(draw.integer(low - 2, max(low - 2, 2)))]
    return known or draw.fresh([draw.integer(1, 3), draw.pick(CHANNELS), *spatial], draw.dtype(0, "f"))


def _floats(draw: Draw) -> set[str]:
    return {DTYPES[name].name for name in draw.names(0, "f")}


def _epsilon(draw: Draw) -> dict[str, Attribute]:
    return {"epsilon": draw.pick([1e-3, 1e-2, 0.1])}


def _batch_normalization(draw: Draw) -> Proposal:
    data = _channels(draw)
    shape = (data.shape[1],)
    scale, bias, mean = (draw.like(shape, data.dtype) for _ in range(3))
    variance = draw.like(shape, data.dtype, (0.3, 3))
    training = draw.opset >= 14 and draw.chance(0.2) and data.shape[1] > 0
    if training:
        return Proposal([data, scale, bias, mean, variance], {**_epsilon(draw), "training_mode": 1}, 3)
    return Proposal([data, scale, bias, mean, variance], _epsilon(draw))


def _instance_normalization(draw: Draw) -> Proposal:
    data = _channels(draw, 3)
    return Proposal([data, *(draw.like((data.shape[1],), data.dtype) for _ in range(2))], _epsilon(draw))


def _group_normalization(draw: Draw) -> Proposal:
    data = _channels(draw, 3)
    groups = draw.pick([d for d in range(1, data.shape[1] + 1) if data.shape[1] % d == 0])
    shape = (data.shape[1] if draw.opset >= 21 else groups,)
    parameters = [draw.like(shape, data.dtype) for _ in range(2)]
    return Proposal([data, *parameters], {**_epsilon(draw), "num_groups": groups})


def _layer_normalization(draw: Draw) -> Proposal | None:
    data = draw.value(rank=(1, 4), kinds="f", within=(-50, 50), where=lambda v: 0 not in v.shape)
    if 0 in data.shape:
        return None
    axis = draw.axis(data.rank)
    shape = data.shape[axis % data.rank :]
    inputs = [data, draw.like(shape, data.dtype)]
    outputs = 1
    if draw.op_type == "LayerNormalization":
        inputs += [draw.like(shape, data.dtype)] if draw.chance(0.7) else []
        outputs = 3 if data.dtype == np.float32 and draw.chance(0.2) else 1
    return Proposal(inputs, {**_epsilon(draw), "axis": axis}, outputs)


def _mean_variance_normalization(draw: Draw) -> Proposal:
    data = draw.value(rank=(4, 4), kinds="f", within=(-50, 50), where=lambda v: 0 not in v.shape)
    return Proposal([data], {"axes": sorted(draw.subset(4, least=1))} if draw.chance(0.5) else {})


def _along_axis(draw: Draw) -> Proposal:
    data = draw.value(rank=(1, 4), within=(-50, 50), where=lambda v: 0 not in v.shape)
    low = -data.rank if draw.opset >= 11 else 0
    if draw.chance(0.2) and data.rank > 1:
        return Proposal([data])
    return Proposal([data], {"axis": draw.integer(low, data.rank - 1)})


def _lp_normalization(draw: Draw) -> Proposal:
    data = draw.value(rank=(1, 4), kinds="f", within=(0.1, 50), where=lambda v: 0 not in v.shape)
    return Proposal([data], {"axis": draw.axis(data.rank), "p": draw.integer(1, 2)})


def _lrn(draw: Draw) -> Proposal:
    data = _channels(draw, 4, 4)
    return Proposal([data], {"size": draw.pick([1, 3, 5]), "alpha": 0.1, "beta": 0.75, "bias": 1.0})


RULES: Mapping[str, Rule] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "Hardmax": _along_axis,
    "InstanceNormalization": _instance_normalization,
    "LRN": _lrn,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _along_axis,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "RMSNormalization": _layer_normalization,
    "Softmax": _along_axis,
}
