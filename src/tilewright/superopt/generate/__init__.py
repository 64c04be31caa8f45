"""Generates rewrite rules by enumerating expressions over a finite field, and prunes them.

In: a family of operations and inputs. Out: rules over symbols that hold at all points of evaluation. To add a family,
add an entry to ``families.FAMILIES`` or write a file (``family_text``); an operation is an ``Operation``, and a
criterion for dropping rules is a step of ``pruning``.

    rules = generate(Plan(TASO, depth=2)).rules

    operations, families                  operations and inputs of expressions; the built-in families
        family_text                           families in files of users
        extents, well_typed                   equalities of extents by which operands fit an operation
        universe, enumeration                 values of millions of expressions; classes of equal ones
        generalization, pipeline              from two equal expressions to a rule over symbols; all steps for a family
        pruning, gains, selection             redundant rules; rules that may lower costs; both, with proofs
"""
