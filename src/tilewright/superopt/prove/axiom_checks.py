"""Checks axioms: whether each holds at all small sizes, whether they contradict each other, and which are redundant."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import InternalError
from tilewright.ops.operator import require
from tilewright.passes.rules import Apply, Rule, Variable
from tilewright.passes.rules.kinds import has_kinds
from tilewright.superopt.evaluate.instances import (
    Instance,
    at_every_size,
    has_leading,
    sampled,
    try_floats,
    try_instances,
)
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.prove.proofs import all_axioms, is_redundant
from tilewright.superopt.prove.witness import unknown_functions

LARGEST = 4
"""Maximum size."""
_MOST_OF_INTEGERS = 40
"""Maximum choices of sizes for axioms about integers, which are evaluated one by one."""
LISTS = 12
"""Maximum number of random lists of leading dimensions for each choice of sizes."""


@dataclass(frozen=True, slots=True)
class AxiomCheck:
    """The result for one axiom.

    ``shapes``: the number of choices of sizes at which it was evaluated; ``is_complete``: whether these are all choices
    up to ``LARGEST`` (leading dimensions are random). ``contradiction``: a false equality in an e-graph of its sides
    and all axioms; empty if there is none.
    """

    axiom: Rule
    shapes: int
    is_complete: bool
    counterexample: Instance | None
    contradiction: str
    is_redundant: bool

    @property
    def holds(self) -> bool:
        """Whether the axiom passed."""
        return self.shapes > 0 and self.counterexample is None and not self.contradiction


def check_axioms(axioms: Sequence[Rule], most: int = 500, own: tuple[Rule, ...] = ()) -> Iterator[AxiomCheck]:
    """Evaluate each axiom at all choices of sizes, if there are at most ``most``, else at ``most`` random ones; leading
    dimensions are drawn up to ``LISTS`` times for each choice. Axioms with functions that have no meaning over a finite
    field are evaluated in float64. ``own``: axioms of a user, beside the built-in ones. Needs the extra ``superopt``.
    """
    for axiom in axioms:
        count, limit = _count(axiom), min(most, _MOST_OF_INTEGERS) if has_kinds(axiom) else most
        trial = try_instances(axiom, _instances(axiom, count, limit), limit)
        if trial.counterexample is not None and unknown_functions(axiom, trial.counterexample):
            trial = try_floats(axiom, _instances(axiom, count, limit), limit)
        yield AxiomCheck(
            axiom,
            trial.shapes,
            count <= limit,
            trial.counterexample,
            contradiction(axiom, own),
            is_redundant(axiom, own),
        )


def _instances(axiom: Rule, count: int, most: int) -> Iterator[Instance]:
    if count > most:
        return sampled(axiom, LARGEST, 0, 4 * most)
    return at_every_size(axiom, LARGEST, 0, min(LISTS, most // count) if has_leading(axiom) else 1)


def _count(axiom: Rule) -> int:
    """The number of choices of sizes; an approximation, as symbols other than extents may also be 0."""
    return LARGEST ** len([symbol for symbol in axiom.symbols if not symbol.name.startswith("*")])


def contradiction(axiom: Rule, own: tuple[Rule, ...] = ()) -> str:
    """A false statement that the axioms imply about the sides of ``axiom``; empty if there is none."""
    p, q = Variable("p'", (), "z"), Variable("q'", (), "z")
    add, mul = Apply(require("Add"), (p, q)), Apply(require("Mul"), (p, q))
    for version in at_ranks(axiom):
        richer = replace(
            version,
            variables=(*version.variables, p, q),
            sources=(*version.sources, add),
            targets=(*version.targets, mul),
        )
        try:
            if all_axioms(own).proves(richer):
                return "a sum is a product"
        except InternalError as error:
            return str(error)
    return ""
