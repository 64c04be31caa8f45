"""Kernels: schedules and layouts for each class of loop program, with open parameters.

In: te programs, and their naive loop programs (``loops.lower``). Out: te programs over values in other layouts
(``relayout``), layouts for the constants that they read (``packing``), the roles of a contraction's axes and its
register tile (``contraction``), schedules for each class of kernel (``tiling``, ``schedules``, ``reductions``,
``transforms``), and their open parameters (``nests``, ``tile_blocks``), which ``cost`` chooses by what the programs say
of the tiles' time (``tile_facts``).

A new class of kernel gets a file of its own here, and a choice of its parameters in ``cost``.
"""
