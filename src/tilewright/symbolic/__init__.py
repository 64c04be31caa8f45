"""Scalar expressions and what can be known about them.

Enters: expressions built by operators (``expr.py``), the ranges of their variables (``Bounds``).
Leaves: canonical expressions (``simplify``), proofs (``prove``, ``equivalent``), ranges (``interval``), the limits at
which a guard starts or stops to hold (``solve.py``), and NumPy functions (``evaluate.py``). No effects, no statements:
those are loop IR. A new operation is a member of ``BinaryOp`` or ``UnaryOp``, with its meaning in ``evaluate.py``;
if Python has an operator for it, it is entered in ``python_operators.py``; if indices use it, it gets a range in
``bounds.py`` and a rule in ``simplify.py``.

Example::

    i, j = Var("i"), Var("j")
    simplify((i * 8 + j) // 8, Bounds({i: 4, j: 8}))   # i
"""

from tilewright.symbolic.bounds import Bounds, Interval, interval
from tilewright.symbolic.expr import Expr, Var
from tilewright.symbolic.simplify import equivalent, linear_form, prove, simplify

__all__ = ["Bounds", "Expr", "Interval", "Var", "equivalent", "interval", "linear_form", "prove", "simplify"]
