"""Proofs: lists of names of axioms that prove a rule. Replaying a proof means proving the rule from these axioms only.

``own``: axioms of a user, beside the built-in ones.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from tilewright.passes.rules.terms import Apply, Rule, Term, subterms
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.prove.axioms import axioms, usable
from tilewright.superopt.prove.egglog_prover import Prover

_FEW = 30
"""The number of axioms up to which loading these only is faster than a proof in an e-graph of all."""


def all_axioms(own: tuple[Rule, ...] = ()) -> Prover:
    """A prover with all axioms, cached."""
    return _prover(own)


@lru_cache(maxsize=2)
def _prover(own: tuple[Rule, ...]) -> Prover:
    return Prover(list(axioms(own).values()))


def find_proof(
    rule: Rule, guesses: Iterable[Collection[str]] = (), own: tuple[Rule, ...] = ()
) -> tuple[str, ...] | None:
    """A minimal list of names of axioms that prove ``rule``; None without a proof.

    ``guesses``: proofs of similar rules, which are tried first. Needs the extra ``superopt``. Raises ``BadProgram`` if
    shapes of the rule are unknown.
    """
    versions = at_ranks(rule)
    for names in (*guesses, relevant(rule, own=own), axioms(own).keys()):
        used = _used(versions, names, own)
        if used is not None:
            return _fewest(versions, [name for name in axioms(own) if name in used], own)
    return None


def replays(rule: Rule, names: Sequence[str], own: tuple[Rule, ...] = ()) -> bool:
    """Whether the axioms called ``names`` prove ``rule``. Raises ``KeyError`` for an unknown name."""
    return _prove(at_ranks(rule), [axioms(own)[name].name for name in names], own)


def _prove(versions: Sequence[Rule], names: Collection[str], own: tuple[Rule, ...] = ()) -> bool:
    return _used(versions, names, own) is not None


def _used(versions: Sequence[Rule], names: Collection[str], own: tuple[Rule, ...]) -> frozenset[str] | None:
    """Those of the axioms ``names`` that match until all ``versions`` are proved; None without a proof."""
    names = usable(versions[0], dict.fromkeys(names), own)
    return _matched(_prover_of(names, own), versions, names)


def _prover_of(names: Collection[str], own: tuple[Rule, ...]) -> Prover:
    """One that knows the axioms ``names``, and maybe others."""
    return all_axioms(own) if len(names) > _FEW else Prover([axioms(own)[name] for name in names])


def _matched(prover: Prover, versions: Sequence[Rule], names: Collection[str]) -> frozenset[str] | None:
    """``_used``, by a prover that knows the axioms."""
    found: set[str] = set()
    for version in versions:
        used = prover.used(version, among=names)
        if used is None:
            return None
        found |= used
    return frozenset(found)


def relevant(rule: Rule, rounds: int = 2, own: tuple[Rule, ...] = ()) -> frozenset[str]:
    """The axioms with a side whose operators all occur in ``rule``, or in axioms selected in an earlier round."""
    reached = _operators([*rule.sources, *rule.targets])
    known, found = axioms(own), set[str]()
    for _ in range(rounds):
        found |= {
            name
            for name, axiom in known.items()
            if _operators(axiom.sources) <= reached or _operators(axiom.targets) <= reached
        }
        reached = reached.union(*(_operators([*known[n].sources, *known[n].targets]) for n in found))
    return frozenset(found)


def is_redundant(axiom: Rule, own: tuple[Rule, ...] = ()) -> bool:
    """Whether the axioms of other names prove ``axiom``; such lemmas shorten proofs."""
    return _prove(at_ranks(axiom), relevant(axiom, own=own) - {axiom.name}, own)


def _operators(terms: Sequence[Term]) -> frozenset[str]:
    return frozenset(part.op.name for part in subterms(terms) if isinstance(part, Apply))


def _fewest(versions: Sequence[Rule], names: Sequence[str], own: tuple[Rule, ...]) -> tuple[str, ...]:
    """A minimal sublist of ``names`` that still proves all ``versions``, by delta debugging (Zeller's ddmin).

    All are loaded once: that takes as long as some proofs.
    """
    prover = _prover_of(names, own)
    kept, size = list(names), len(names) // 2
    while size:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if _matched(prover, versions, fewer) is not None:
                kept = fewer
            else:
                start += size
        size //= 2
    return tuple(kept)
