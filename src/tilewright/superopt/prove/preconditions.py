"""Preconditions of rules that are false at some extents: equalities and divisibilities with which they are true.

Candidates are sets of conditions that exclude all tested instances at which the rule is false. The smallest one with
which axioms prove the rule is the precondition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice, permutations

from tilewright.base.errors import BadProgram
from tilewright.passes.rules import Rule
from tilewright.superopt.evaluate.instances import Instance, sampled, try_instance, try_rule
from tilewright.superopt.prove.proofs import find_proof
from tilewright.symbolic.expr import TRUE, Expr, const, equal

_MOST = 2
"""Maximum number of conditions of a rule."""
_WITNESSES = 3
"""Minimum number of instances that satisfy the conditions and at which the rule is true."""


def find_needs(rule: Rule, *, instances: int = 300, proofs: int = 24) -> tuple[Expr, ...] | None:
    """The fewest conditions with which axioms prove ``rule``; None if none were found.

    ``proofs``: maximum number of attempted proofs. Needs the extra ``superopt``.
    """
    verdicts = list(islice(_verdicts(rule), instances))
    for needs in islice(_candidates(rule, verdicts), proofs):
        needy = replace(rule, needs=needs, proof=None)
        if try_rule(needy, shapes=_WITNESSES, tries=4000).holds and _is_proved(needy):
            return needs
    return None


def _is_proved(rule: Rule) -> bool:
    try:
        return find_proof(rule) is not None
    except BadProgram:
        return False


def _verdicts(rule: Rule) -> Iterator[tuple[Instance, bool]]:
    for instance in sampled(rule, largest=3, seed=11, tries=20_000):
        verdict = try_instance(rule, instance)
        if verdict is not None:
            yield instance, verdict


def _candidates(rule: Rule, verdicts: Sequence[tuple[Instance, bool]]) -> Iterator[tuple[Expr, ...]]:
    """Sets of conditions that exclude all instances at which ``rule`` is false; those with most true ones first."""
    conditions = list(_conditions(rule))
    holds = {
        condition: frozenset(at for at, (instance, _) in enumerate(verdicts) if instance.simplified(condition) == TRUE)
        for condition in conditions
    }
    true = frozenset(at for at, (_, verdict) in enumerate(verdicts) if verdict)
    for count in range(1, _MOST + 1):
        found = [
            (len(where), chosen)
            for chosen in combinations(conditions, count)
            if (where := _all_of([holds[condition] for condition in chosen])) <= true and len(where) >= _WITNESSES
        ]
        yield from (chosen for _, chosen in sorted(found, key=lambda one: -one[0]))


def _all_of(sets: Sequence[frozenset[int]]) -> frozenset[int]:
    return sets[0].intersection(*sets[1:])


def _conditions(rule: Rule) -> Iterator[Expr]:
    """Possible conditions; equalities first, as axioms can use them."""
    symbols = sorted((s for s in rule.symbols if not s.name.startswith("*")), key=lambda symbol: symbol.name)
    yield from (equal(a, b) for a, b in combinations(symbols, 2))
    yield from (equal(a % b, const(0)) for a, b in permutations(symbols, 2))
