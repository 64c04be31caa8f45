"""Replaces loops of one iteration by their bodies, in one pass.

Parallel ones stay: with those that are directly around or inside of them, they say what is one region.
"""

from tilewright.loops.ir import Loop, LoopKind, Stmt
from tilewright.loops.visit import substitute, transform_stmts, walk
from tilewright.symbolic.expr import ONE, ZERO


def without_single_loops(stmt: Stmt) -> Stmt:
    """``stmt``, without blocks, in which the variables of such loops are 0."""
    single = [node.var for node in walk(stmt) if isinstance(node, Loop) and _runs_once(node)]
    body = transform_stmts(stmt, lambda node: node.body if isinstance(node, Loop) and _runs_once(node) else None)
    return substitute(body, dict.fromkeys(single, ZERO))


def _runs_once(loop: Loop) -> bool:
    return loop.extent == ONE and loop.kind is not LoopKind.PARALLEL
