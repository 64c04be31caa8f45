"""Cuts: a kernel, or a transfer, as several that do the same together.

Micro-ops of a kernel may run in any order (``micro_loops``), so it can be cut along the loops of its instruction, and
along one over micro-ops. Transfers are cut along rows; those of one row, along columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise, product

from tilewright.backend.vta.compiler.recording import Recorded, Tiles
from tilewright.backend.vta.config import Scratchpad
from tilewright.backend.vta.instructions import Load, Store, Uop
from tilewright.backend.vta.kernels import GemmKernel, Kernel, Loop
from tilewright.backend.vta.program import Call, Transfer


def conflict(a: Recorded, b: Recorded) -> bool:
    """Whether one writes what the other accesses."""
    pairs = chain(product(a.writes, (*b.reads, *b.writes)), product(a.reads, b.writes))
    return any(x.pad is y.pad and x.start < y.stop and y.start < x.stop for x, y in pairs)


# Kernels --------------------------------------------------------------------------------------------------------------


def kernel_of(one: Recorded) -> Kernel:
    """The kernel of a step that runs one."""
    assert isinstance(one.step, Call), "of GEMM or ALU"
    return one.step.kernel


def multiplies(one: Recorded) -> bool:
    """Whether a step is a GEMM that multiplies."""
    return isinstance(one.step, Call) and isinstance(one.step.kernel, GemmKernel) and not one.step.kernel.reset


def resets(one: Recorded) -> bool:
    """Whether a step is a GEMM that sets accumulators to 0."""
    return isinstance(one.step, Call) and isinstance(one.step.kernel, GemmKernel) and one.step.kernel.reset


def axes(kernel: Kernel) -> tuple[Loop, Loop, Loop]:
    """The loops of an instruction, and one over micro-ops of different results."""
    return kernel.outer, kernel.inner, _over_results(kernel.uops)


def _over_results(uops: Sequence[Uop]) -> Loop:
    groups = [list(group) for _, group in groupby(uops, key=lambda uop: uop.dst)]
    if len(groups) < 2 or len({len(group) for group in groups}) > 1:
        return Loop()
    first, second = groups[0][0], groups[1][0]
    return Loop(len(groups), second.dst - first.dst, second.src - first.src, second.wgt - first.wgt)


def part(kernel: Kernel, spans: Mapping[int, range]) -> Recorded:
    """Some iterations of the axes, by their numbers, with what they access."""
    outer, inner, over = axes(kernel)
    wanted = [spans.get(at, range(axis.extent)) for at, axis in enumerate((outer, inner, over))]
    size = len(kernel.uops) // over.extent
    uops = kernel.uops[wanted[2].start * size : wanted[2].stop * size]
    moved = [(span.start, loop) for span, loop in zip(wanted, (outer, inner), strict=False)]
    shifted = tuple(
        Uop(
            uop.dst + sum(at * loop.dst for at, loop in moved),
            uop.src + sum(at * loop.src for at, loop in moved),
            uop.wgt + sum(at * loop.wgt for at, loop in moved),
        )
        for uop in uops
    )
    loops = [replace(loop, extent=len(span)) for span, loop in zip(wanted, (outer, inner), strict=False)]
    return _ran(replace(kernel, uops=shifted, outer=loops[0], inner=loops[1]))


def _ran(kernel: Kernel) -> Recorded:
    """A kernel with what it accesses."""
    loops = (kernel.outer, kernel.inner)
    written = _reached(Scratchpad.ACC, [uop.dst for uop in kernel.uops], [(one.extent, one.dst) for one in loops])
    sources = [uop.src for uop in kernel.uops], [(one.extent, one.src) for one in loops]
    if isinstance(kernel, GemmKernel) and kernel.reset:
        return Recorded(Call(kernel), (), written)
    if isinstance(kernel, GemmKernel):
        weights = _reached(Scratchpad.WGT, [uop.wgt for uop in kernel.uops], [(one.extent, one.wgt) for one in loops])
        return Recorded(Call(kernel), (*written, *_reached(Scratchpad.INP, *sources), *weights), written)
    second = () if kernel.immediate is not None else _reached(Scratchpad.ACC, *sources)
    return Recorded(Call(kernel), (*written, *second), written)


def _reached(pad: Scratchpad, starts: Sequence[int], loops: Sequence[tuple[int, int]]) -> tuple[Tiles, ...]:
    """The tiles from each micro-op's first one to its last one, those that touch joined."""
    length = 1 + sum((extent - 1) * step for extent, step in loops)
    found: list[Tiles] = []
    for start in sorted(set(starts)):
        if found and start <= found[-1].stop:
            found[-1] = Tiles(pad, found[-1].start, start + length)
        else:
            found.append(Tiles(pad, start, start + length))
    return tuple(found)


# Transfers ------------------------------------------------------------------------------------------------------------


def pieces(one: Recorded) -> list[Tiles]:
    """The tiles on the chip of each part that a transfer can be cut into: rows; tiles, of one row without padding."""
    instruction = transfer_of(one).instruction
    sram, rows, columns = instruction.sram, instruction.rows, instruction.columns
    if rows < 2:
        whole = Tiles(instruction.memory.storage, sram, sram + instruction.tiles)
        is_line = rows == 1 and instruction.tiles == columns
        return _lines(whole.pad, sram, [1] * columns) if is_line else [whole]
    if isinstance(instruction, Store):
        return _lines(Scratchpad.ACC, sram, [columns] * rows)
    widths = [instruction.width] * rows
    widths[0] += instruction.pad_top * instruction.width
    widths[-1] += instruction.pad_bottom * instruction.width
    return _lines(instruction.memory.storage, sram, widths)


def _lines(pad: Scratchpad, start: int, widths: Sequence[int]) -> list[Tiles]:
    found: list[Tiles] = []
    for width in widths:
        found.append(Tiles(pad, start, start + width))
        start += width
    return found


def cut(one: Recorded, places: Sequence[int]) -> Iterator[Recorded]:
    """A transfer as several, which begin at these of its ``pieces``; the first one at 0."""
    transfer, own = transfer_of(one), pieces(one)
    instruction = transfer.instruction
    if len(places) == 1:
        yield one
        return
    for start, stop in pairwise([*places, len(own)]):
        span = range(start, stop)
        piece = _some_rows(instruction, span) if instruction.rows > 1 else _some_columns(instruction, span)
        tiles = (Tiles(own[start].pad, own[start].start, own[stop - 1].stop),)
        step = replace(transfer, instruction=piece)
        yield Recorded(step, tiles if one.reads else (), tiles if one.writes else ())


def transfer_of(one: Recorded) -> Transfer:
    """The step, which is a transfer."""
    assert isinstance(one.step, Transfer), "of load or store"
    return one.step


def _some_rows(instruction: Load | Store, rows: range) -> Load | Store:
    dram = instruction.dram + rows.start * instruction.stride
    if isinstance(instruction, Store):
        sram = instruction.sram + rows.start * instruction.columns
        return replace(instruction, sram=sram, dram=dram, rows=len(rows))
    is_first, is_last = rows.start == 0, rows.stop == instruction.rows
    above = 0 if is_first else instruction.pad_top + rows.start
    return replace(
        instruction,
        sram=instruction.sram + above * instruction.width,
        dram=dram,
        rows=len(rows),
        pad_top=instruction.pad_top if is_first else 0,
        pad_bottom=instruction.pad_bottom if is_last else 0,
    )


def _some_columns(instruction: Load | Store, columns: range) -> Load | Store:
    return replace(
        instruction,
        sram=instruction.sram + columns.start,
        dram=instruction.dram + columns.start,
        columns=len(columns),
    )
