"""Loop unswitching: moves selections that are invariant in a loop out of it.

A concatenation selects one of several tensors by the channel: the loop over a row gets a version for each of them,
rather than a selection at each element; so does one over a row of padding. Only loops around a single store are
unswitched: in others, the selection costs relatively little.

Loops that are written out are unswitched where a sum leaves out its term: LLVM would test the condition at each
operation of a tile.
"""

from collections.abc import Iterator

from tilewright.backend.cpu.prepare.partition import MAX_COPIED, keeps_itself, size
from tilewright.loops.ir import NOTHING, If, Loop, LoopKind, Stmt, Store
from tilewright.loops.visit import children, transform_exprs, with_children
from tilewright.symbolic.expr import Expr, Read, Select, Var
from tilewright.symbolic.traversal import free_vars, transform, walk


def unswitch(stmt: Stmt) -> Stmt:
    """``stmt`` with selections moved before the outermost loops that do not change them."""
    if isinstance(stmt, Loop) and (stmt.kind is LoopKind.SERIAL or _leaves_out_terms(stmt)):
        conditions = frozenset(_invariant(stmt))
        if conditions and size(stmt) * (1 + len(conditions)) <= MAX_COPIED:
            return _versions(stmt)
    return with_children(stmt, tuple(map(unswitch, children(stmt))))


def _leaves_out_terms(loop: Loop) -> bool:
    """Whether ``loop`` is written out, and its only store keeps what is there unless a condition holds."""
    _, body = _inside(loop)
    match body:
        case Store(buffer, indices, Select(_, _, kept)):
            return loop.kind is LoopKind.UNROLLED and kept == Read(buffer, indices)
        case _:
            return False


def _versions(loop: Loop) -> Stmt:
    """``loop`` for each outcome of all its invariant conditions; nothing where it would store what is there."""
    condition, (_, body) = next(_invariant(loop), None), _inside(loop)
    if condition is None:
        return NOTHING if isinstance(body, Store) and keeps_itself(body) else loop
    then, otherwise = (_versions(_assuming(loop, condition, outcome)) for outcome in (True, False))
    if then == otherwise == NOTHING:
        return NOTHING
    return If(condition, then, None if otherwise == NOTHING else otherwise)


def _inside(loop: Loop) -> tuple[set[Var], Stmt]:
    """The variables of perfectly nested loops, and what they run."""
    inside: set[Var] = set()
    body: Stmt = loop
    while isinstance(body, Loop):
        inside.add(body.var)
        body = body.body
    return inside, body


def _invariant(loop: Loop) -> Iterator[Expr]:
    """The invariant conditions, outer ones first, of selections in the only store in ``loop``."""
    inside, body = _inside(loop)
    for node in walk(body.value) if isinstance(body, Store) else ():
        if isinstance(node, Select) and not node.condition.has_reads and free_vars(node.condition).isdisjoint(inside):
            yield node.condition


def _assuming(loop: Loop, condition: Expr, outcome: bool) -> Loop:
    def choose(node: Expr) -> Expr | None:
        match node:
            case Select(decided, a, b) if decided == condition:
                return a if outcome else b
            case _:
                return None

    made = transform_exprs(loop, lambda expr: transform(expr, choose))
    assert isinstance(made, Loop), "expressions are not loops"
    return made
