"""Tensor expressions in TVM's notation: purely functional definitions of tensors, without schedules.

In: shapes, dtypes and scalar expressions (``symbolic``). Out: ``Tensor``s, whose operations form a DAG (``ir.py``).
``build.py`` has placeholders and computes, ``reducers.py`` reductions, ``scan.py`` recurrences, ``functions.py`` scalar
functions; ``evaluate.py`` evaluates them with NumPy. ``over_domain.py`` compares programs on many samples over a domain
of scalars (``domains.py``: a finite field, float64); ``degrees.py`` bounds the probability of error. To add a kind of
operation: ``ir.py``, its builder here, and its lowering in ``loops/lower.py``. ::

    A = te.placeholder((n, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    trace = te.compute((), lambda: te.sum(A[k, k], axis=k), name="trace")
"""
