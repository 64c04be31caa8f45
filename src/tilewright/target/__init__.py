"""Targets: the processor that code is compiled for, and the parameters of its performance.

In: a text (``x86_64,znver5,l2=1M``), or this machine. Out: a ``Target``: the features that code may use, and the
parameters of the cost model. Nothing here needs LLVM.

    Target.parse("aarch64,neoverse-n1,cores=4").lanes(32)  # 4

``target`` has the grammar of texts, ``cores`` the pipelines and caches of ARM cores. The tables of processors and the
detection of this one are in ``base/processors.py`` and ``base/host.py``, which the runtime uses, too.
"""
