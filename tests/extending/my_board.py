"""A target in one file, as ``docs/extending.md`` shows it: a board, and how its processor behaves."""

from dataclasses import replace

from tilewright.target.target import Target

_PROCESSOR = Target.parse("aarch64,cortex-a76,cores=4,l1=64K,l2=512K,l3=2M")

MY_BOARD = replace(_PROCESSOR, machine=replace(_PROCESSOR.machine, l2_registers=1.5, memory_registers=0.08))
