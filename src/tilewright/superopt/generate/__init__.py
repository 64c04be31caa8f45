"""Generates rewrite rules by enumerating expressions over a finite field, and selects those that a search needs.

In: a family of operations and inputs. Out: rules over symbols that hold at all points of evaluation; then rules for any
window and rank, with proofs. To add a family, add an entry to ``library.FAMILIES`` or write a file (``family_text``);
an operation is an ``Operation``, a condition on windows an entry of ``windows.Condition``.

    rules = select(generate(Plan(TASO, depth=2)).rules, operations=5).rules

    operations, library                   operations and inputs of expressions; the built-in families, which are in
        families, linear_families, branch_families, order_families
        family_text                           families in files of users
        extents, well_typed                   equalities of extents by which operands fit an operation
        universe, enumeration                 values of millions of expressions; classes of equal ones
        generalization, pipeline              from two equal expressions to a rule over symbols; all steps for a family
        pruning                               redundant rules
        gains, counting, steps, necessity     rules that may lower costs; those that a search needs
        rewriting, windows, leading, biases, dimensions   rules for any window, rank, with biases, of volumes
        lifting, conditions, selection        the most general that is proved; all steps, with proofs
"""
