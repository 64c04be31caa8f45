"""Rules of algebra, and what applies them to graphs.

In: a file of rules (``text``), a graph. Out: the graph with sources of rules replaced by targets. Rules are data: who
writes one writes no code, and ``tilewright rules verify`` proves it.

    (rule,) = parse_rules("rule twice\\n  for x[*s]\\n  from Add(x, x)\\n  to Mul(x, 2.0)")
    for match in matches(rule, index_of(graph)):
        print(applied(graph, match))

``rewrite`` applies rules wherever they match; with those of ``algebra.rules`` it is a pass that always runs. To add a
rule, write it there if it always makes less work, else into ``search.rules``.

What rules say of all shapes at once, for whoever proves them: ``generic_points`` (extents as random numbers),
``term_shapes`` and ``normal_form`` (one way to write each term).
"""

from tilewright.passes.rules.apply import applied
from tilewright.passes.rules.build import Match
from tilewright.passes.rules.index import Index, index_of
from tilewright.passes.rules.library import ALGEBRA, GENERATED, SEARCH, load_rules
from tilewright.passes.rules.match import matches
from tilewright.passes.rules.rewrite import rewrite, sweeps
from tilewright.passes.rules.terms import Apply, Evidence, Number, Proof, Rule, Term, Variable
from tilewright.passes.rules.text import parse_rules, print_rule, print_rules

__all__ = [
    "ALGEBRA",
    "GENERATED",
    "SEARCH",
    "Apply",
    "Evidence",
    "Index",
    "Match",
    "Number",
    "Proof",
    "Rule",
    "Term",
    "Variable",
    "applied",
    "index_of",
    "load_rules",
    "matches",
    "parse_rules",
    "print_rule",
    "print_rules",
    "rewrite",
    "sweeps",
]
