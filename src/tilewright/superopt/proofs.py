"""Proofs: which axioms prove a rule. A proof is a list of names; to replay it is to prove the rule from those alone."""

from collections.abc import Mapping, Sequence
from functools import cache

from tilewright.passes.rules.terms import Apply, Rule, Term, subterms
from tilewright.superopt.axioms import axioms
from tilewright.superopt.ranks import at_ranks
from tilewright.superopt.saturate import Prover


@cache
def all_axioms() -> Prover:
    """Every axiom, loaded once."""
    return Prover(list(axioms().values()))


def find_proof(rule: Rule) -> tuple[str, ...] | None:
    """The names of axioms that prove ``rule``: none can be left out. None if they do not prove it.

    Needs the extra ``superopt``. Raises ``BadProgram`` if the rule has no shapes that are known.
    """
    used: set[str] = set()
    versions = at_ranks(rule)
    for version in versions:
        found = all_axioms().used(version)
        if found is None:
            return None
        used |= found
    near = {name: axiom for name, axiom in axioms().items() if name in used}
    return _fewest(versions, near if _proves(versions, list(near.values())) else axioms())


def replays(rule: Rule, names: Sequence[str]) -> bool:
    """Whether the axioms called ``names`` prove ``rule``. Raises ``KeyError`` for a name that no axiom has."""
    prover = Prover([axioms()[name] for name in names])
    return all(map(prover.proves, at_ranks(rule)))


def _proves(versions: Sequence[Rule], known: Sequence[Rule]) -> bool:
    return all(map(Prover(known).proves, versions))


def relevant(rule: Rule, rounds: int = 2) -> dict[str, Rule]:
    """The axioms of which a side has no operators but those of ``rule``, or those that such axioms bring."""
    reached = _operators([*rule.sources, *rule.targets])
    found: dict[str, Rule] = {}
    for _ in range(rounds):
        for name, axiom in axioms().items():
            if _operators(axiom.sources) <= reached or _operators(axiom.targets) <= reached:
                found[name] = axiom
        reached = reached.union(*(_operators([*a.sources, *a.targets]) for a in found.values()))
    return found


def redundant(names: Sequence[str]) -> list[str]:
    """Those of the axioms called ``names`` that the others prove: lemmas, which make proofs short."""
    others = {name: [a for n, a in relevant(axioms()[name]).items() if n != name] for name in names}
    return [name for name in names if _proves([axioms()[name]], others[name])]


def _operators(terms: Sequence[Term]) -> frozenset[str]:
    return frozenset(part.op.name for part in subterms(terms) if isinstance(part, Apply))


def _fewest(versions: Sequence[Rule], known: Mapping[str, Rule]) -> tuple[str, ...]:
    """Leave out as many axioms as possible: first large parts of the list, then smaller ones (Zeller's ddmin)."""
    kept, size = list(known), len(known) // 2
    while size:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if _proves(versions, [known[name] for name in fewer]):
                kept = fewer
            else:
                start += size
        size //= 2
    return tuple(kept)
