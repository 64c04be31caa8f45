"""What axioms are held to: that each holds at every small size, that they agree, and which of them say nothing new."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import InternalError
from tilewright.ops.operator import require
from tilewright.passes.rules import Apply, Rule, Variable
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
"""Sizes go up to it."""
LISTS = 12
"""How many lists of leading dimensions are drawn for each choice of sizes, at most."""


@dataclass(frozen=True, slots=True)
class AxiomCheck:
    """What was found about one axiom.

    ``shapes``: at how many choices of sizes it was evaluated; ``is_complete``: whether all choices up to ``LARGEST``
    were tried, though not all lists of leading dimensions. ``contradiction``: what
    becomes equal, in an e-graph of its sides and all axioms, though it is not; empty if nothing does.
    """

    axiom: Rule
    shapes: int
    is_complete: bool
    counterexample: Instance | None
    contradiction: str
    is_redundant: bool

    @property
    def holds(self) -> bool:
        """Whether it may stay."""
        return self.shapes > 0 and self.counterexample is None and not self.contradiction


def check_axioms(axioms: Sequence[Rule], most: int = 500, own: tuple[Rule, ...] = ()) -> Iterator[AxiomCheck]:
    """Each axiom at every choice of sizes, if there are at most ``most``, else at ``most`` random ones.

    Leading dimensions are drawn up to ``LISTS`` times for each choice. Needs the extra ``superopt``.

    What differs over a finite field only because a function is unknown there is held against float64. ``own``: axioms
    of a user, beside those that are built in.
    """
    for axiom in axioms:
        count = _count(axiom)
        trial = try_instances(axiom, _instances(axiom, count, most), most)
        if trial.counterexample is not None and unknown_functions(axiom, trial.counterexample):
            trial = try_floats(axiom, _instances(axiom, count, most), most)
        yield AxiomCheck(
            axiom,
            trial.shapes,
            count <= most,
            trial.counterexample,
            contradiction(axiom, own),
            is_redundant(axiom, own),
        )


def _instances(axiom: Rule, count: int, most: int) -> Iterator[Instance]:
    if count > most:
        return sampled(axiom, LARGEST, 0, 4 * most)
    return at_every_size(axiom, LARGEST, 0, min(LISTS, most // count) if has_leading(axiom) else 1)


def _count(axiom: Rule) -> int:
    """How many choices of sizes there are, roughly: places have one more."""
    return LARGEST ** len([symbol for symbol in axiom.symbols if not symbol.name.startswith("*")])


def contradiction(axiom: Rule, own: tuple[Rule, ...] = ()) -> str:
    """What the axioms say, of values as in both sides of ``axiom``, that is false; empty if nothing is."""
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
