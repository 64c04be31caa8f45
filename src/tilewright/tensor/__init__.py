"""Tensor expressions: what is computed, in the notation of the literature. Purely functional.

In: shapes, dtypes and scalar expressions (``symbolic``). Out: ``Tensor``s, whose operations form a DAG (``ir.py``).
``build.py`` has placeholders and computes, ``reducers.py`` reductions, ``scan.py`` recurrences, ``functions.py`` scalar
functions; ``evaluate.py`` is their meaning as NumPy. Programs are compared by ``over_domain.py``: evaluated on many
samples over a domain of scalars (``domains.py``: a finite field, float64), where ``degrees.py`` says how sure equality
is. To add a kind of operation: ``ir.py``, its builder here, and its lowering in ``loops/lower.py``. ::

    A = te.placeholder((n, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    trace = te.compute((), lambda: te.sum(A[k, k], axis=k), name="trace")
"""
