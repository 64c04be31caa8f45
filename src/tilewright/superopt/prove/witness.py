"""Witnesses of false rules: values in float64 at which the sides differ.

Over a finite field, functions such as exponentials are random functions, so that sides may differ there although they
are equal over the reals. Without a witness, such a rule is not provable, rather than false.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.errors import BadProgram, OutOfBounds, Unsupported
from tilewright.passes.rules.kinds import has_kinds
from tilewright.passes.rules.terms import Apply, Rule, Term, subterms
from tilewright.superopt.evaluate.evaluator import Bindings, Evaluator
from tilewright.superopt.evaluate.instances import Instance, Trial, inputs, sampled, sides, try_floats, try_rule
from tilewright.superopt.evaluate.typed import typed_witness
from tilewright.tensor.domains import Noting, Real

_TOLERANCE = 1e-7
"""Tolerance for rounding in float64, relative to the largest element."""


@dataclass(frozen=True, slots=True)
class Witness:
    """Values of a rule's variables at which its sides differ in float64, and both sides at one element."""

    instance: Instance
    values: Mapping[str, Array]
    place: tuple[int, ...]
    left: float
    right: float

    def __str__(self) -> str:
        given = ", ".join(f"{name} = {_printed(value)}" for name, value in self.values.items())
        at = f" at {list(self.place)}" if self.place else ""
        return f"{self.instance}: {given}: left {self.left:.6g}, right {self.right:.6g}{at}"


def witness(rule: Rule, instance: Instance) -> Witness | None:
    """Values at which the sides differ at ``instance``; None if they agree in float64, or can't be evaluated."""
    concrete, evaluator = instance.concrete_rule(rule), Evaluator(Real(_TOLERANCE))
    if has_kinds(rule):
        typed = typed_witness(concrete)
        return typed and Witness(instance, typed.values, typed.place, typed.left, typed.right)
    values = inputs(concrete, evaluator.domain)
    try:
        for left, right in sides(concrete, evaluator, values):
            if left.shape == right.shape and not evaluator.domain.agree(left, right):
                place = _worst(left.astype(np.float64), right.astype(np.float64))
                shown = {name: array[..., place[-1]] for name, array in values.items()}
                return Witness(instance, shown, place[:-1], float(left[place].item()), float(right[place].item()))
    except (BadProgram, OutOfBounds, Unsupported):
        return None
    return None


def tried(rule: Rule, shapes: int) -> Trial:
    """Evaluate both sides as ``try_rule`` does, but in float64 if they differ over the field because of functions that
    have no meaning there."""
    trial = try_rule(rule, shapes=shapes)
    if trial.counterexample is None or not unknown_functions(rule, trial.counterexample):
        return trial
    return try_floats(rule, sampled(rule, largest=4, seed=1, tries=100), shapes)


def _worst(left: Array, right: Array) -> tuple[int, ...]:
    """The index of the largest difference; elements at which only one side is finite come first."""
    with np.errstate(invalid="ignore"):
        distance = np.abs(left.astype(np.float64) - right.astype(np.float64))
    distance = np.where(np.isnan(distance), np.where(np.isnan(left) == np.isnan(right), 0.0, np.inf), distance)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(distance)), distance.shape))


def _printed(array: Array) -> str:
    return np.array2string(array, precision=4, separator=", ", threshold=12).replace("\n", "")


def differ_in_shape(rule: Rule, instance: Instance) -> bool:
    """Whether the sides have values of different shapes at ``instance``."""
    concrete, evaluator = instance.concrete_rule(rule), Evaluator(Real(_TOLERANCE))
    try:
        pairs = list(sides(concrete, evaluator, inputs(concrete, evaluator.domain)))
    except (BadProgram, OutOfBounds, Unsupported):
        return False
    return any(left.shape != right.shape for left, right in pairs)


def unknown_functions(rule: Rule, instance: Instance) -> tuple[str, ...]:
    """The operators of ``rule`` that have no meaning over a finite field, in order of first use; none if it is about
    integers, which are evaluated as they are."""
    if has_kinds(rule):
        return ()
    domain = Noting()
    concrete, evaluator = instance.concrete_rule(rule), Evaluator(domain)
    bindings, known = Bindings(inputs(concrete, domain)), dict[Term, Array]()
    found: list[str] = []
    try:
        for part in subterms((*concrete.sources, *concrete.targets)):
            domain.noted.clear()
            evaluator.term(part, bindings, known)
            if domain.noted and isinstance(part, Apply):
                found.append(part.op.name)
    except (BadProgram, OutOfBounds, Unsupported):
        pass  # what was found until then is named
    return tuple(dict.fromkeys(found))
