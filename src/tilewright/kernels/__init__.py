"""Kernels: how a loop program may be scheduled, and in which layouts it works.

In: te programs, and the naive loop programs that they become (``loops.lower``). Out: te programs over values in other
layouts (``relayout``), layouts for the constants that they read (``packing``), the roles of a contraction's axes and
its register tile (``contraction``), schedules for each class of kernel (``tiling``, ``schedules``, ``transforms``), and
what they leave open (``nests``, ``tile_blocks``). Which parameters are best is ``cost``'s business.

A new class of kernel gets a file of its own here, and a choice of its parameters in ``cost``.
"""
