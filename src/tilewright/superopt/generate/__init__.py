"""Generates rules by enumeration over a finite field, and prunes them to those that are useful.

A family of operations and inputs enters; rules over symbols leave, which hold wherever they were evaluated. A new
family is an entry of ``families.FAMILIES`` or a file (``family_text``), an operation of it an ``Operation``; another
reason to drop rules is a step of ``pruning``.

    rules = generate(Plan(TASO, depth=2)).rules

    operations, families                  what is combined
    family_text                           what a user lets be combined
    extents, well_typed                   which extents must be equal so that operations fit their operands
    universe, enumeration                 values of millions of expressions, and which are equal
    generalization, pipeline              from two equal expressions to a rule over symbols; all of it for a family
    pruning, gains, selection             what others say; by what a search may gain; both, with proofs
"""
