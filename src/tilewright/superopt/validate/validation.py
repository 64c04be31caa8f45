"""Translation validation: checks that an optimized graph is equivalent to its input, independently of the optimizer.

    validation = validate(before, after, run=lambda graph, feeds: evaluate_graph(graph, feeds))
    print(validation)

There are two checks. The first one compares values: a value of ``after`` with the same definition as one of ``before``
is equal to it; where definitions differ, values of the same name are compared by the regions that compute them from
equal values (``regions``), at small sizes, modulo a prime (``verdicts``). Equal regions imply equal graphs, so the cost
of a check does not depend on the sizes in the model. The second check runs both graphs with floats.

The method is that of Pnueli, Siegel and Singerman ("Translation validation", TACAS 1998), by random evaluation instead
of proof; equal values serve as cut points, as in combinational equivalence checking.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tilewright.base.arrays import random_array
from tilewright.base.errors import NotEquivalent
from tilewright.base.numerics import Math
from tilewright.graph import Array, Graph, Value, verify
from tilewright.measure.difference import difference
from tilewright.ops.shapes import number_at
from tilewright.superopt.validate.sweep import Checked, Sweep, same_type
from tilewright.superopt.validate.verdicts import BUDGET, Method
from tilewright.symbolic.expr import Var
from tilewright.symbolic.traversal import vars_in

Runner: TypeAlias = Callable[[Graph, Mapping[str, Array]], Sequence[Array]]
"""Runs a graph on inputs by name, and returns its outputs in order."""

SEEDS = (0, 1)
"""Seeds of the inputs with which both graphs are run."""
TOLERANCES: Mapping[Math, float] = {Math.STRICT: 2e-5, Math.CAREFUL: 2e-5, Math.DEFAULT: 1e-4, Math.FAST: 1e-4}
"""Maximum relative difference of float32 outputs, by the policy for rounding errors (``Math``)."""
RUN_TIME_EXTENT = 3
"""The size of run-time extents when graphs are run, or their bound if that is smaller."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The results of a successful validation."""

    same: int
    """The number of values of ``after`` with unchanged definitions."""
    checked: tuple[Checked, ...]
    undecided: Mapping[str, str]
    """Values that only the run with floats covers, with the reasons."""
    largest_difference: float | None
    """The largest difference of float32 outputs (``measure.difference``); None if nothing was run."""

    @property
    def is_complete(self) -> bool:
        """Whether each changed value was compared."""
        return not self.undecided

    @property
    def error_bound(self) -> float:
        """An upper bound of the probability that random evaluation modulo a prime missed a difference."""
        return min(1.0, sum(one.error_bound for one in self.checked))

    def __str__(self) -> str:
        counts = Counter(one.method for one in self.checked)
        parts = [f"{self.same} values as before"]
        if counts[Method.EXACT]:
            parts.append(f"{counts[Method.EXACT]} changed ones equal modulo a prime")
        if counts[Method.BITS]:
            parts.append(f"{counts[Method.BITS]} of integers, bit by bit")
        if counts[Method.FLOAT64]:
            parts.append(f"{counts[Method.FLOAT64]} in float64")
        if self.undecided:
            parts.append(f"{len(self.undecided)} undecided")
        if self.largest_difference is not None:
            parts.append(f"outputs differ by {self.largest_difference:.1e} at most")
        chance = f"; wrong with a probability below {self.error_bound:.0e}" if self.error_bound else ""
        return ", ".join(parts) + chance


def validate(
    before: Graph,
    after: Graph,
    run: Runner | None = None,
    *,
    math: Math = Math.DEFAULT,
    seeds: Sequence[int] = SEEDS,
    budget: int = BUDGET,
) -> Validation:
    """Check that ``after`` is equivalent to ``before``; with ``run``, both also run on the same random inputs.

    Constants are arbitrary values, unless all elements of one are equal, so computations on constants must still be
    nodes of ``after``. ``budget``: points of evaluation for each region. Raises ``NotEquivalent`` naming the first
    output that differs, or can't be shown to be equal, and ``InternalError`` if ``after`` is not a valid graph.
    """
    verify(after)
    _check_interface(before, after)
    sweep = Sweep.of(before, after, budget)
    for node in after.nodes:
        sweep.add(node)
    _check_outputs(sweep, after)
    largest = None if run is None else _largest_difference(before, after, run, TOLERANCES[math], seeds)
    return Validation(sweep.same, tuple(sweep.checked), dict(sweep.undecided), largest)


def _check_interface(before: Graph, after: Graph) -> None:
    if before.inputs != after.inputs:
        raise NotEquivalent(before.outputs[0].name, f"its inputs were {before.inputs}, and are {after.inputs}")
    for position in range(max(len(before.outputs), len(after.outputs))):
        pair = [*before.outputs[position : position + 1], *after.outputs[position : position + 1]]
        if len(pair) == 1:
            raise NotEquivalent(pair[0].name, "only one of the graphs has it")
        old, new = pair
        if old.name != new.name or not same_type(old, new):
            raise NotEquivalent(old.name, f"{old!r} has become {new!r}")


def _check_outputs(sweep: Sweep, after: Graph) -> None:
    for output in after.outputs:
        if sweep.new[output.name] != sweep.old[output.name]:
            cause = sweep.causes.get(output.name, "it is made of other values")
            raise NotEquivalent(output.name, cause + _hint(sweep, after))


def _hint(sweep: Sweep, after: Graph) -> str:
    """A hint for the error if constants may be the cause."""
    new = (value.name for value in after.constants if sweep.new[value.name] not in sweep.shared)
    folded = [name for name in new if sweep.new[name] not in sweep.known.literals]
    return f"; {', '.join(folded)}: no constants of the input, so rules were folded too early" if folded else ""


# Floats


def _largest_difference(before: Graph, after: Graph, run: Runner, tolerance: float, seeds: Sequence[int]) -> float:
    largest = 0.0
    for seed in seeds:
        feeds = random_feeds(before, seed)
        for output, old, new in zip(before.outputs, run(before, feeds), run(after, feeds), strict=True):
            found = difference(new, old).worst
            if not found <= tolerance:
                reason = f"with random inputs (seed {seed}), it differs by {found:.1e}; {tolerance:.0e} is allowed"
                raise NotEquivalent(output.name, reason)
            largest = max(largest, found)
    return largest


def random_feeds(graph: Graph, seed: int, size: int = RUN_TIME_EXTENT) -> dict[str, Array]:
    """Arrays for each input (see ``random_array``); run-time extents are ``size``, or their bounds if less."""
    generator = np.random.default_rng(seed)
    inputs = graph.inputs
    return {value.name: random_array(value.dtype, _extents(value, graph.bounds, size), generator) for value in inputs}


def _extents(value: Value, bounds: Mapping[Var, int], size: int) -> tuple[int, ...]:
    symbols = vars_in(value.shape)
    sizes = {symbol: min(size, bounds.get(symbol, size)) for symbol in symbols}
    return tuple(number_at(extent, sizes) for extent in value.shape)
