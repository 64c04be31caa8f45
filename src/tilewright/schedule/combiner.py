"""Recovers the reducer from the block of a reduction.

The body of a reduction stores ``results[left := old values, right := sources]``; the init stores the identities. This
module finds the subexpressions that are the sources. Candidates contain no old value; a choice is right if the rest of
the values does not depend on the iteration, and if ``combine(identity, source) == source``, which holds for every
reducer and is checked on random numbers (a wrong choice, such as ``x`` in ``old + f(x)``, fails it).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from random import Random

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.loops.ir import Block, If, Stmt, Store, Stores
from tilewright.schedule.tree import BlockRef, Refusal, refuse
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import Const, Expr, Read, Var
from tilewright.symbolic.traversal import rebuild, walk

_MOST_CHOICES = 256
_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class Combiner:
    """``stores``: the body of a reduction, with the variables ``right`` in place of the sources."""

    stores: tuple[Store, ...]
    right: tuple[Var, ...]
    sources: tuple[Expr, ...]
    """The sources, one expression for each store."""
    identities: tuple[Expr, ...]
    """The values that the init stores."""

    def body(self, sources: Sequence[Expr]) -> Stmt:
        """The body that combines ``sources`` with the old values."""
        values = dict(zip(self.right, sources, strict=True))
        made = tuple(Store(s.buffer, s.indices, _replaced(s.value, values)) for s in self.stores)
        return made[0] if len(made) == 1 else Stores(made)


def combiner_of(block: Block) -> Combiner:
    """The reducer of ``block``. Refuses if it is not a reduction, or its reducer can't be recovered."""
    ref = BlockRef(block.name)
    if block.init is None:
        raise refuse(f"`{block.name}` is no reduction with an init", ref)
    stores, identities = _stores(block.body, ref), _stores(block.init, ref)
    by_target = {(s.buffer, s.indices): s.value for s in identities}
    if any((s.buffer, s.indices) not in by_target for s in stores):
        raise refuse(f"`{block.name}` does not update just what its init stores", ref)
    old: dict[Expr, Expr] = {Read(s.buffer, s.indices): by_target[s.buffer, s.indices] for s in stores}
    targets = {s.buffer for s in stores}
    nodes = (node for s in stores for node in walk(s.value))
    if any(isinstance(node, Read) and node.source in targets and node not in old for node in nodes):
        raise refuse(f"`{block.name}` reads what it reduces into at other places too", ref)
    right = tuple(Var(f"right{i}'", s.value.dtype) for i, s in enumerate(stores))
    for choice in islice(_choices(stores, old), _MOST_CHOICES):
        values = dict(zip(choice, right, strict=True))
        abstract = tuple(Store(s.buffer, s.indices, _replaced(s.value, values)) for s in stores)
        if len(values) == len(right) and _is_abstract(abstract, old, right) and _keeps_identity(abstract, old, right):
            return Combiner(abstract, right, choice, tuple(old.values()))
    raise refuse(f"the reducer of `{block.name}` can't be made out from its body", ref)


def has_combiner(block: Block) -> bool:
    """Whether partial results of ``block``, a reduction, can be combined."""
    try:
        combiner_of(block)
    except Refusal:
        return False
    return True


def _stores(stmt: Stmt, ref: BlockRef) -> tuple[Store, ...]:
    match stmt:
        case Store():
            return (stmt,)
        case Stores(stores):
            return stores
        case If(_, then, None):
            return _stores(then, ref)
        case _:
            raise refuse(f"`{ref}` is more than one store (or several at once)", ref)


def _choices(stores: Sequence[Store], old: dict[Expr, Expr]) -> Iterator[tuple[Expr, ...]]:
    """Candidates for the sources, one for each store: large expressions first."""
    found: dict[Expr, int] = {}
    for store in stores:
        for node in walk(store.value):
            size = sum(1 for _ in walk(node))
            if not any(inner in old for inner in walk(node)):
                found[node] = size if not isinstance(node, Const) else 0
    ordered = sorted(found, key=lambda node: -found[node])
    return product(*([node for node in ordered if node.dtype == store.value.dtype] for store in stores))


def _replaced(expr: Expr, values: dict[Expr, Expr] | dict[Expr, Var] | dict[Var, Expr]) -> Expr:
    """``expr`` with whole subexpressions replaced, outermost first."""
    for part, value in values.items():
        if part == expr:
            return value
    before = expr.operands()
    after = tuple(_replaced(child, values) for child in before)
    return expr if after == before else rebuild(expr, after)


def _is_abstract(stores: Sequence[Store], old: dict[Expr, Expr], right: Sequence[Var]) -> bool:
    """Whether values depend on old values and ``right`` only."""

    def free(expr: Expr) -> bool:
        if expr in old or expr in right:
            return False
        return isinstance(expr, Var | Read) or any(map(free, expr.operands()))

    return not any(free(store.value) for store in stores)


def _keeps_identity(stores: Sequence[Store], old: dict[Expr, Expr], right: Sequence[Var]) -> bool:
    results = [_replaced(store.value, old) for store in stores]
    random = Random(0)
    samples = [np.array([_sample(random, v.dtype) for _ in range(_SAMPLES)], v.dtype.numpy) for v in right]
    with np.errstate(all="ignore"):
        values = compile_exprs(results, right)(*samples)
    return all(np.array_equal(np.broadcast_to(v, s.shape), s) for v, s in zip(values, samples, strict=True))


def _sample(random: Random, dtype: DType) -> float | int | bool:
    if dtype.is_bool:
        return random.random() < 0.5
    return random.uniform(-4.0, 4.0) if dtype.is_float else random.randrange(100)
