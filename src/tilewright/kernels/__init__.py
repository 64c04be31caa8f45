"""Kernels: how a loop program may be scheduled, and how constants are packed for it.

In: naive loop programs (``loops.lower``). Out: the roles of a contraction's axes and its register tile
(``contraction``), schedules for each class of kernel with their parameters open (``schedules``), packed layouts
(``packing``). Which parameters are best is ``cost``'s business.

A new class of kernel gets a file of its own here, and a choice of its parameters in ``cost``.
"""
