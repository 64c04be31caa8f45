"""Whether rules hold: evaluation finds what is false, and a proof from axioms accepts what is true.

Rules enter; what becomes of each leaves: a counterexample, or the names of the axioms that it follows from. An axiom is
added in ``axioms.rules``; another prover is a module beside ``egglog_prover`` and ``z3_prover``, asked in
``verification``.

    names = find_proof(rule)

    axioms, axiom_checks                  what is taken for true, and what that is held to
    writing                               terms as text of provers
    egglog_clauses, egglog_prover         axioms and goals as egglog's programs; equality saturation
    proofs                                which axioms prove a rule; replayed
    z3_prover                             the same proofs once more, in an encoding of its own
    preconditions                         which extents a rule needs to be equal
    verification, stored_proofs           both for a file of rules: told, or written into it
    own_axioms                            axioms of a user, beside those that are built in
    trust                                 rules of a user or a package: may they be applied?
"""
