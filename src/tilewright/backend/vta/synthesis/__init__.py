"""The accelerator on FPGAs: how much of them it takes, and which clock it allows.

In: a configuration, with the bytes of device memory in a cycle. Out: look-up tables, flip-flops, multipliers and blocks
of memory; the longest path. ::

    area           how much of a chip something takes
    families       families of FPGAs: commands, cells, chips
    estimate       the area without tools: a fitted model
    tools          runs Yosys and nextpnr
    synthesized    by Yosys: cells, and the longest path in levels (levels)
    routed         by nextpnr: placed and routed, and the clock

``estimate`` needs no extra, all else the extra ``synthesis``. A new family is a ``Family`` and its fitted numbers.
"""
