"""Estimates the cost of the ways to compute a node, for comparison."""

from collections.abc import Sequence
from dataclasses import replace
from math import isnan

from tilewright.cost.kernels import kernel_cycles
from tilewright.graph import Node
from tilewright.passes.alternatives.api import OWN_TERMS, Facts, Way
from tilewright.passes.alternatives.routes import route


def candidates(node: Node, facts: Facts) -> tuple[Way, ...]:
    """The ways to compute ``node``, with cycles multiplied by their error factors. A single one costs nothing."""
    ways = facts.ways(node)
    if len(ways) == 1:
        return (replace(ways[0], cycles=0.0),) if isnan(ways[0].cycles) else ways
    if any(isnan(way.cycles) for way in ways):
        ways = _estimated(node, ways, facts)
    return tuple(way if way.errors is OWN_TERMS else _weighed(way, facts) for way in ways)


def _weighed(way: Way, facts: Facts) -> Way:
    factor = way.errors.handicap(facts.math, is_measured=False)
    first = way.first and replace(way.first, cycles=factor * way.first.cycles)
    return replace(way, cycles=factor * way.cycles, first=first)


def _estimated(node: Node, ways: Sequence[Way], facts: Facts) -> tuple[Way, ...]:
    """Ways without cycles get the analytic model's estimate of their kernels, scaled by its estimate of the best way
    with cycles, so that they are comparable."""

    def modelled(way: Way) -> float:
        kernels = route(node, way, facts).kernels
        return sum(kernel_cycles(kernel, facts.target) for kernel in kernels)

    known = [way for way in ways if not isnan(way.cycles)]
    best = min(known, key=lambda way: way.cycles, default=None)
    scale = 1.0 if best is None else best.cycles / modelled(best)
    return tuple(replace(way, cycles=scale * modelled(way)) if isnan(way.cycles) else way for way in ways)
