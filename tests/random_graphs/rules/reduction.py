"""Reductions, and what orders, counts and accumulates."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from tests.random_graphs.case import Attribute
from tests.random_graphs.draw import Draw, Proposal, Value, schema

Rule = Callable[[Draw], Proposal | None]

_REDUCTIONS: Mapping[str, tuple[float, float] | None] = {
    "ReduceL1": (-50, 50),
    "ReduceL2": (-50, 50),
    "ReduceLogSum": (0.1, 50),
    "ReduceLogSumExp": (-8, 8),
    "ReduceMax": None,
    "ReduceMean": (-100, 100),
    "ReduceMin": None,
    "ReduceProd": (0.5, 1.5),
    "ReduceSum": (-100, 100),
    "ReduceSumSquare": (-20, 20),
}


def _reduction(within: tuple[float, float] | None) -> Rule:
    def rule(draw: Draw) -> Proposal:
        data = draw.value(within=within)
        attributes: dict[str, Attribute] = {"keepdims": draw.integer(0, 1)}
        axes = [axis - data.rank if draw.chance(0.3) else axis for axis in draw.subset(data.rank, least=1)]
        definition = schema(draw.op_type, draw.opset)
        assert definition is not None
        if draw.chance(0.15) or not data.rank:
            none = "noop_with_empty_axes" in definition.attributes and draw.chance(0.3)
            return Proposal([data], {**attributes, "noop_with_empty_axes": 1} if none else attributes)
        if "axes" in definition.attributes:
            return Proposal([data], {**attributes, "axes": axes})
        if draw.chance(0.1):
            return Proposal([data, draw.parameter()], {**attributes, "noop_with_empty_axes": draw.integer(0, 1)})
        return Proposal([data, draw.parameter(*axes)], attributes)

    return rule


def _place_of_extreme(draw: Draw) -> Proposal:
    data = draw.value(rank=(1, 4), where=lambda v: math.prod(v.shape) > 0)
    attributes = {"axis": draw.axis(data.rank), "keepdims": draw.integer(0, 1)}
    if draw.opset >= 12 and draw.chance(0.3):
        attributes["select_last_index"] = 1
    return Proposal([data], attributes)


def _top_k(draw: Draw) -> Proposal | None:
    data = draw.value(rank=(1, 4))
    axis = draw.axis(data.rank)
    if not data.shape[axis]:
        return None
    k = draw.integer(1, data.shape[axis])
    if draw.opset < 10:
        return Proposal([data], {"axis": axis, "k": k}, 2)
    largest = {} if draw.opset < 11 else {"largest": draw.integer(0, 1)}
    return Proposal([data, draw.parameter(k)], {"axis": axis, **largest}, 2)


def _accumulation(draw: Draw) -> Proposal:
    within = (0.5, 1.5) if draw.op_type == "CumProd" else (-100, 100)
    data = draw.value(rank=(1, 4), within=within)
    flags = {"exclusive": draw.integer(0, 1), "reverse": draw.integer(0, 1)}
    return Proposal([data, _axis(draw, data)], flags)


def _axis(draw: Draw, data: Value) -> Value:
    return draw.parameters(np.array(draw.axis(data.rank), draw.pick([np.int64, np.int32])))


RULES: Mapping[str, Rule] = {
    **{name: _reduction(within) for name, within in _REDUCTIONS.items()},
    "ArgMax": _place_of_extreme,
    "ArgMin": _place_of_extreme,
    "CumProd": _accumulation,
    "CumSum": _accumulation,
    "TopK": _top_k,
}
