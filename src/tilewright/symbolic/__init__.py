"""Scalar expressions: simplification, proofs, ranges and evaluation.

In: expressions built by operators (``expr.py``), the ranges of their variables (``Bounds``). Out: canonical expressions
(``simplify``), proofs (``prove``, ``equivalent``), ranges (``interval``), the limits at which a guard starts or stops
to hold (``solve.py``), and NumPy functions (``evaluate.py``). Expressions have no effects; statements are in the loop
IR. A new operation is a member of ``BinaryOp`` or ``UnaryOp``, with its meaning in ``evaluate.py``; if Python has an
operator for it, add it to ``python_operators.py``; if indices use it, add a range in ``bounds.py`` and a rule in
``simplify.py``.

Example::

    i, j = Var("i"), Var("j")
    simplify((i * 8 + j) // 8, Bounds({i: 4, j: 8}))   # i
"""

from tilewright.symbolic.bounds import Bounds, Interval, interval
from tilewright.symbolic.expr import Expr, Var
from tilewright.symbolic.simplify import equivalent, linear_form, prove, simplify

__all__ = ["Bounds", "Expr", "Interval", "Var", "equivalent", "interval", "linear_form", "prove", "simplify"]
