"""The beginning and the end of a program in smaller steps.

Nothing hides what is loaded first, and what is stored last. So the first product is cut along rows and blocks of the
result, and what it needs is loaded in the order in which its parts need it: compute begins with the first part. After
the last product, operations of ALU are cut alike, and each part is stored while ALU works on the next one.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import chain, groupby, product

from tilewright.backend.vta.compiler.recording import Recorded, Tiles
from tilewright.backend.vta.config import Config, Module, Scratchpad
from tilewright.backend.vta.instructions import Load, Store, Uop
from tilewright.backend.vta.kernels import GemmKernel, Kernel, Loop
from tilewright.backend.vta.program import Call, Transfer

_LEAST_BYTES = 1024
"""Of a part of a transfer: each of them waits for device memory once more."""
_BEGINNINGS = 4
"""Parts of the first product, along each of two loops."""
_ENDINGS = 6
"""Parts of the last operations of ALU."""


def eased(steps: Sequence[Recorded], config: Config) -> list[Recorded]:
    """The same steps; those at both ends are cut."""
    return _ended(_begun(list(steps), config), config)


# The beginning --------------------------------------------------------------------------------------------------------


def _begun(steps: list[Recorded], config: Config) -> list[Recorded]:
    first = next((at for at, one in enumerate(steps) if _multiplies(one)), None)
    if first is None:
        return steps
    needed = [at for at in range(first) if steps[at].module is Module.LOAD and _conflict(steps[at], steps[first])]
    cut = [_cut_transfer(steps[at], _BEGINNINGS, config) for at in needed]
    loads, pads = list(chain.from_iterable(cut)), {own[0].writes[0].pad for own in cut if len(own) > 1}
    if not pads:
        return steps
    parts = list(_cut_product(steps[first], pads))
    early = [load for part in parts for load in loads if _conflict(load, part)]
    order = list(dict.fromkeys(chain(map(loads.index, early), range(len(loads)))))
    before = [one for at, one in enumerate(steps[: needed[0]]) if at not in needed]
    between = [one for at, one in enumerate(steps[:first]) if at > needed[0] and at not in needed]
    return [*before, *(loads[at] for at in order), *between, *parts, *steps[first + 1 :]]


def _multiplies(one: Recorded) -> bool:
    return isinstance(one.step, Call) and isinstance(one.step.kernel, GemmKernel) and not one.step.kernel.reset


def _cut_product(one: Recorded, pads: Set[Scratchpad]) -> Iterator[Recorded]:
    """Along the loop over weights, and the one over the data that are furthest apart; the latter outermost.

    ``pads``: the memories of operands that are loaded in parts.
    """
    assert isinstance(one.step, Call), "of GEMM"
    kernel = one.step.kernel
    axes = _axes(kernel)
    blocks = next((at for at, axis in enumerate(axes) if axis.wgt and axis.dst), None)
    lines = max((at for at in range(len(axes)) if at != blocks), key=lambda at: axes[at].src)
    chosen = [lines] if Scratchpad.INP in pads else []
    chosen += [blocks] if Scratchpad.WGT in pads and blocks is not None else []
    cuts = {at: _spans(axes[at].extent, _BEGINNINGS) for at in chosen}
    for spans in product(*cuts.values()):
        yield _ran(_part(kernel, dict(zip(cuts, spans, strict=True))))


# The end --------------------------------------------------------------------------------------------------------------


def _ended(steps: list[Recorded], config: Config) -> list[Recorded]:
    last = max((at for at, one in enumerate(steps) if _multiplies(one)), default=-1)
    tail = steps[last + 1 :]
    applied = [one for one in tail if one.module is Module.COMPUTE]
    stored = [one for one in tail if one.module is Module.STORE and any(_conflict(one, each) for each in applied)]
    others = [one for one in tail if one not in applied and one not in stored]
    stores = [part for one in stored for part in _cut_transfer(one, _ENDINGS, config)]
    parts = _cut_operations(applied)
    if len(stores) < 2 or not _are_apart(parts) or any(one.module is Module.LOAD for one in others):
        return steps
    needs = [max(at for at, part in enumerate(parts) if any(_conflict(store, one) for one in part)) for store in stores]
    rows = [
        [*part, *(store for store, need in zip(stores, needs, strict=True) if need == at)]
        for at, part in enumerate(parts)
    ]
    return [*steps[: last + 1], *others, *chain.from_iterable(rows)]


def _cut_operations(applied: Sequence[Recorded]) -> list[list[Recorded]]:
    """Parts of all operations, along the loops over results that are furthest apart; none if these do not agree."""
    kernels = [one.step.kernel for one in applied if isinstance(one.step, Call)]
    if len(kernels) < len(applied) or not kernels:
        return []
    axes = [max(range(3), key=lambda at, kernel=kernel: _reach(_axes(kernel)[at])) for kernel in kernels]
    extents = [_axes(kernel)[axis].extent for kernel, axis in zip(kernels, axes, strict=True)]
    least = min(extents)
    if any(extent % least for extent in extents):
        return []
    return [
        [
            _ran(_part(kernel, {axis: range(span.start * extent // least, span.stop * extent // least)}))
            for kernel, axis, extent in zip(kernels, axes, extents, strict=True)
        ]
        for span in _spans(least, _ENDINGS)
    ]


def _reach(axis: Loop) -> int:
    """How far apart the results of two iterations are."""
    return axis.dst if axis.extent > 1 else 0


def _are_apart(parts: Sequence[Sequence[Recorded]]) -> bool:
    """Whether there are parts, which do not depend on each other."""
    pairs = ((a, b) for a in parts for b in parts if a is not b)
    return len(parts) > 1 and not any(_conflict(one, other) for a, b in pairs for one in a for other in b)


# Cuts -----------------------------------------------------------------------------------------------------------------


def _spans(extent: int, parts: int) -> list[range]:
    """Iterations in up to ``parts`` parts."""
    size = -(-extent // parts)
    return [range(start, min(start + size, extent)) for start in range(0, extent, size)]


def _axes(kernel: Kernel) -> tuple[Loop, Loop, Loop]:
    """The loops of an instruction, and one over micro-ops of different results."""
    return kernel.outer, kernel.inner, _over_results(kernel.uops)


def _over_results(uops: Sequence[Uop]) -> Loop:
    groups = [list(group) for _, group in groupby(uops, key=lambda uop: uop.dst)]
    if len(groups) < 2 or len({len(group) for group in groups}) > 1:
        return Loop()
    first, second = groups[0][0], groups[1][0]
    return Loop(len(groups), second.dst - first.dst, second.src - first.src, second.wgt - first.wgt)


def _part(kernel: Kernel, spans: dict[int, range]) -> Kernel:
    """Some iterations of the axes."""
    outer, inner, over = _axes(kernel)
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
    return replace(kernel, uops=shifted, outer=loops[0], inner=loops[1])


def _ran(kernel: Kernel) -> Recorded:
    """A kernel with what it accesses."""
    loops = (kernel.outer, kernel.inner)
    dst = _hull([uop.dst for uop in kernel.uops], [(loop.extent, loop.dst) for loop in loops])
    src = _hull([uop.src for uop in kernel.uops], [(loop.extent, loop.src) for loop in loops])
    written = Tiles(Scratchpad.ACC, *dst)
    if isinstance(kernel, GemmKernel) and kernel.reset:
        return Recorded(Call(kernel), (), (written,))
    if isinstance(kernel, GemmKernel):
        wgt = _hull([uop.wgt for uop in kernel.uops], [(loop.extent, loop.wgt) for loop in loops])
        read = (written, Tiles(Scratchpad.INP, *src), Tiles(Scratchpad.WGT, *wgt))
    else:
        read = (written,) if kernel.immediate is not None else (written, Tiles(Scratchpad.ACC, *src))
    return Recorded(Call(kernel), read, (written,))


def _hull(starts: Sequence[int], loops: Sequence[tuple[int, int]]) -> tuple[int, int]:
    last = sum((extent - 1) * step for extent, step in loops)
    return min(starts), max(starts) + last + 1


def _cut_transfer(one: Recorded, parts: int, config: Config) -> list[Recorded]:
    """Along its rows; along its columns if it has one row."""
    assert isinstance(one.step, Transfer), "of load and store"
    instruction = one.step.instruction
    bytes_each = config.tile_bytes(instruction.memory)
    most = min(parts, instruction.rows * instruction.columns * bytes_each // _LEAST_BYTES)
    if most < 2:
        return [one]
    by_rows = instruction.rows > 1
    spans = _spans(instruction.rows if by_rows else instruction.columns, most)
    if len(spans) < 2 or (not by_rows and _is_padded(instruction)):
        return [one]
    cut = [_some_rows(instruction, span) if by_rows else _some_columns(instruction, span) for span in spans]
    return [_moved(one, one.step, part) for part in cut]


def _is_padded(instruction: Load | Store) -> bool:
    return isinstance(instruction, Load) and instruction.tiles > instruction.rows * instruction.columns


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


def _moved(one: Recorded, step: Transfer, part: Load | Store) -> Recorded:
    (tiles,) = one.writes or one.reads
    own = (Tiles(tiles.pad, part.sram, part.sram + part.tiles),)
    return Recorded(replace(step, instruction=part), own if one.reads else (), own if one.writes else ())


def _conflict(a: Recorded, b: Recorded) -> bool:
    """Whether one writes what the other accesses."""
    pairs = chain(product(a.writes, (*b.reads, *b.writes)), product(a.reads, b.writes))
    return any(x.pad is y.pad and x.start < y.stop and y.start < x.stop for x, y in pairs)
