"""Targets: what code is made for, and how that machine behaves.

In: a text (``x86_64,znver5,l2=1M``), or this machine. Out: a ``Target``, which decides what code may use and what the
cost model takes for true. Nothing here needs LLVM.

    Target.parse("aarch64,neoverse-n1,cores=4").lanes(32)  # 4

``target`` has the grammar of texts. What processors there are, and what this one is, is in ``base/processors.py`` and
``base/host.py``, which the runtime reads, too.
"""
