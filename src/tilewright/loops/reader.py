"""Prints a loop program as pseudo-code: no blocks, no dtypes, ``+=``.

::

    for y in range(1024):
      for x in range(1024):
        C[y, x] = 0
        for k in range(1024):
          C[y, x] += A[k, y] * B[k, x]

This is the notation of the TVM paper (OSDI 2018). It does not parse back; ``str(program)`` does.
"""

from tilewright.loops.dissolve import dissolve
from tilewright.loops.printer import format_stmt
from tilewright.loops.program import Program
from tilewright.loops.simplification import simplify_indices
from tilewright.symbolic.expr import Const


def format_loops(program: Program) -> str:
    """The pseudo-code of ``program``; it ends with a newline."""
    stmt = simplify_indices(dissolve(program.body), program.bounds)
    return format_stmt(stmt, _literal, shorthand=True) + "\n"


def _literal(node: Const) -> str:
    value = node.value
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
