"""Replaces loops of one iteration by their bodies, in one pass.

Parallel ones stay: perfectly nested parallel loops define one region.
"""

from tilewright.loops.ir import Loop, LoopKind, Stmt
from tilewright.loops.visit import substitute, transform_stmts, walk
from tilewright.symbolic.expr import ONE, ZERO


def without_single_loops(stmt: Stmt) -> Stmt:
    """``stmt``, without blocks, with the variables of such loops replaced by 0."""
    single = [node.var for node in walk(stmt) if isinstance(node, Loop) and _runs_once(node)]
    body = transform_stmts(stmt, lambda node: node.body if isinstance(node, Loop) and _runs_once(node) else None)
    return substitute(body, dict.fromkeys(single, ZERO))


def _runs_once(loop: Loop) -> bool:
    return loop.extent == ONE and loop.kind is not LoopKind.PARALLEL
