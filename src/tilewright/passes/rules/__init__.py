"""Algebraic rewrite rules, and their application to graphs.

In: a file of rules (``text``), a graph. Out: the graph with sources of rules replaced by targets. Rules are data: they
need no code, and ``tilewright rules verify`` proves them.

    (rule,) = parse_rules("rule twice\\n  for x[*s]\\n  from Add(x, x)\\n  to Mul(x, 2.0)")
    for match in matches(rule, index_of(graph)):
        print(applied(graph, match))

``floats`` says what a rule does to floats, and what ``math=`` permits; ``kinds``, which rules are about integers.
``rewrite`` applies rules wherever they match; with those of ``algebra.rules`` it is a pass that always runs. Add a rule
there if it always reduces work, else to ``search.rules``.

For proofs over all shapes: ``generic_points`` (extents as random numbers), ``term_shapes`` and ``normal_form`` (a
canonical form of terms).
"""

from tilewright.passes.rules.apply import applied
from tilewright.passes.rules.build import Match
from tilewright.passes.rules.floats import Floats, floats_of, is_permitted, permitted_floats, permitted_rule
from tilewright.passes.rules.index import Index, index_of
from tilewright.passes.rules.library import ALGEBRA, GENERATED, INTEGERS, SEARCH, load_rules
from tilewright.passes.rules.match import matches
from tilewright.passes.rules.rewrite import rewrite, sweeps
from tilewright.passes.rules.terms import Apply, Evidence, Number, Proof, Rule, Term, Variable
from tilewright.passes.rules.text import parse_rules, print_rule, print_rules

__all__ = [
    "ALGEBRA",
    "GENERATED",
    "INTEGERS",
    "SEARCH",
    "Apply",
    "Evidence",
    "Floats",
    "Index",
    "Match",
    "Number",
    "Proof",
    "Rule",
    "Term",
    "Variable",
    "applied",
    "floats_of",
    "index_of",
    "is_permitted",
    "load_rules",
    "matches",
    "parse_rules",
    "permitted_floats",
    "permitted_rule",
    "print_rule",
    "print_rules",
    "rewrite",
    "sweeps",
]
