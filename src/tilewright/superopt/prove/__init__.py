"""Verifies rules: evaluation refutes false ones, and proofs from axioms establish true ones.

In: rules. Out: for each a counterexample, or the names of the axioms that it follows from. To add an axiom, edit
``axioms.rules``; another prover is a module beside ``egglog_prover`` and ``z3_prover``, called in ``verification``.

    names = find_proof(rule)

    axioms, axiom_checks                  the axioms, and their checks
        writing                               terms as text for provers
        egglog_clauses, egglog_prover         axioms and goals as egglog programs; equality saturation
        proofs                                the axioms that prove a rule; replay of proofs
        z3_prover                             a second prover, with its own encoding
        preconditions                         conditions on extents that a rule needs
        verification, stored_proofs           verification of files of rules; proofs written into them
        own_axioms                            axioms of a user, beside the built-in ones
        trust                                 decides which rules of users and packages may be applied
"""
