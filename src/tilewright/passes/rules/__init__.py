"""Rules of algebra, and what applies them to graphs.

In: a file of rules (``text``), a graph. Out: the graph with sources of rules replaced by targets. Rules are data: who
writes one writes no code, and ``tilewright rules verify`` proves it.

    (rule,) = parse_rules("rule twice\\n  for x[*s]\\n  from Add(x, x)\\n  to Mul(x, 2.0)")
    print(print_rule(rule))
"""

from tilewright.passes.rules.terms import Apply, Evidence, Number, Proof, Rule, Term, Variable
from tilewright.passes.rules.text import parse_rules, print_rule, print_rules

__all__ = [
    "Apply",
    "Evidence",
    "Number",
    "Proof",
    "Rule",
    "Term",
    "Variable",
    "parse_rules",
    "print_rule",
    "print_rules",
]
