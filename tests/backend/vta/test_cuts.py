"""Cuts of kernels and transfers do together what the whole does, and access what they say; both ends are cut."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from random import Random

import pytest

from tilewright import te
from tilewright.backend.vta import VTA, Scratchpad, Tiles, schedule_tiles
from tilewright.backend.vta.compiler import cuts
from tilewright.backend.vta.compiler.recording import Recorded
from tilewright.backend.vta.compiler.recording import Tiles as Accessed
from tilewright.backend.vta.instructions import AluOperation, Load, Store, Uop
from tilewright.backend.vta.kernels import AluKernel, GemmKernel, Kernel, Loop, unrolled
from tilewright.backend.vta.layers import Convolution, convolution_tensor
from tilewright.backend.vta.program import Call, Operand, Transfer

STEPS = 20
"""Of loops, at most."""


def micro_ops(kernel: Kernel) -> Iterator[Uop]:
    """All that an instruction runs."""
    outer, inner = kernel.outer, kernel.inner
    for i, j, uop in product(range(outer.extent), range(inner.extent), kernel.uops):
        yield Uop(
            uop.dst + i * outer.dst + j * inner.dst,
            uop.src + i * outer.src + j * inner.src,
            uop.wgt + i * outer.wgt + j * inner.wgt,
        )


def random_kernel(random: Random) -> Kernel:
    def loop() -> Loop:
        steps = [random.choice((0, 1, random.randint(1, STEPS))) for _ in range(3)]
        return Loop(random.randint(1, 4), *steps)

    uops = unrolled([loop() for _ in range(random.randint(0, 3))], Uop(random.randint(0, 9), random.randint(0, 9)))
    return random.choice(
        (
            GemmKernel(uops, loop(), loop()),
            GemmKernel(uops, loop(), loop(), reset=True),
            AluKernel(uops, AluOperation.ADD, loop(), loop()),
            AluKernel(uops, AluOperation.SHR, loop(), loop(), immediate=3),
        )
    )


def random_spans(random: Random, extent: int) -> list[range]:
    places = sorted({0, *(random.randrange(extent) for _ in range(2)), extent})
    return [range(start, stop) for start, stop in pairwise(places)]


def tiles(accessed: Sequence[Accessed]) -> set[tuple[Scratchpad, int]]:
    return {(item.pad, at) for item in accessed for at in range(item.start, item.stop)}


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_a_kernel_run_its_micro_ops(seed: int) -> None:
    random = Random(seed)
    kernel = random_kernel(random)
    spans = [random_spans(random, axis.extent) for axis in cuts.axes(kernel)]
    parts = [cuts.part(kernel, dict(enumerate(own))) for own in product(*spans)]
    found = Counter(uop for one in parts for uop in micro_ops(cuts.kernel_of(one)))
    assert found == Counter(micro_ops(kernel))
    for one in parts:
        own = set(micro_ops(cuts.kernel_of(one)))
        written = {(Scratchpad.ACC, uop.dst) for uop in own}
        read = set[tuple[Scratchpad, int]]()
        if isinstance(kernel, GemmKernel) and not kernel.reset:
            read = {(Scratchpad.INP, uop.src) for uop in own} | {(Scratchpad.WGT, uop.wgt) for uop in own} | written
        if isinstance(kernel, AluKernel):
            read = written if kernel.immediate is not None else written | {(Scratchpad.ACC, uop.src) for uop in own}
        assert tiles(one.writes) >= written
        assert tiles(one.reads) >= read


def copied(instruction: Load | Store) -> dict[int, int | None]:
    """For each tile on the chip that a transfer accesses, the one in device memory; None for zeros."""
    rows, columns = range(instruction.rows), range(instruction.columns)
    if isinstance(instruction, Store):
        width, top, left, height = instruction.columns, 0, 0, instruction.rows
    else:
        width, top, left = instruction.width, instruction.pad_top, instruction.pad_left
        height = top + instruction.rows + instruction.pad_bottom
    found: dict[int, int | None] = dict.fromkeys(range(instruction.sram, instruction.sram + height * width))
    for row, column in product(rows, columns):
        far = instruction.dram + row * instruction.stride + column
        found[instruction.sram + (top + row) * width + left + column] = far
    return found


def random_transfer(random: Random) -> Load | Store:
    sram, dram, stride = random.randint(0, 50), random.randint(0, 50), random.randint(6, 9)
    rows, columns = random.choice((0, 1, 1, 2, 3, 7)), random.randint(1, 6)
    if random.random() < 0.3:
        return Store(sram=sram, dram=dram, stride=stride, rows=rows, columns=columns)
    top, bottom, left, right = (random.choice((0, 0, 1, 2)) for _ in range(4))
    return Load(
        memory=random.choice((Scratchpad.INP, Scratchpad.WGT)),
        sram=sram,
        dram=dram,
        stride=stride,
        rows=rows,
        columns=columns,
        pad_top=top,
        pad_bottom=bottom,
        pad_left=left,
        pad_right=right,
    )


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_a_transfer_copy_its_tiles(seed: int) -> None:
    random = Random(seed)
    instruction = random_transfer(random)
    pad, near = instruction.memory.storage, copied(instruction)
    whole = (Accessed(pad, min(near, default=0), max(near, default=-1) + 1),)
    is_store = isinstance(instruction, Store)
    step = Transfer(Operand("a", instruction.memory, (200,)), instruction)
    own = Recorded(step, whole if is_store else (), () if is_store else whole)
    places = sorted({0, *(random.randrange(max(len(cuts.pieces(own)), 1)) for _ in range(2))})
    found: dict[int, int | None] = {}
    for one in cuts.cut(own, places):
        piece = copied(cuts.transfer_of(one).instruction)
        assert not piece.keys() & found.keys()
        assert tiles((*one.reads, *one.writes)) == {(pad, at) for at in piece}
        found |= piece
    assert found == near


# Programs -------------------------------------------------------------------------------------------------------------


def scheduled(layer: Convolution, sizes: Tiles) -> te.Accelerated:
    schedule = te.create_schedule(convolution_tensor(layer, VTA))
    schedule_tiles(schedule.schedule, sizes, VTA)
    return te.accelerate(schedule, VTA)


def test_accumulators_are_reset_while_the_first_product_waits() -> None:
    """Those of both virtual threads: what is loaded first takes longer than either reset."""
    kernel = scheduled(Convolution(14, 14, 8, 8, 3, padding=1), Tiles((4, 14, 14), 1, 2))
    kernel.check()
    kernels = [step.kernel for step in kernel.program.steps if isinstance(step, Call)]
    first = next(at for at, one in enumerate(kernels) if isinstance(one, GemmKernel) and not one.reset)
    assert sum(isinstance(one, GemmKernel) and one.reset for one in kernels[:first]) == 2


@pytest.mark.parametrize(("threads", "depth"), [(1, 1), (2, 4)])
def test_the_last_product_and_the_last_store_are_cut(threads: int, depth: int) -> None:
    """Of 784 results of the last tile, few are stored after all else has ended."""
    kernel = scheduled(Convolution(14, 14, 4, 8, 3, padding=1), Tiles((4, 14, 14), depth, threads))
    kernel.check()
    steps = kernel.program.steps
    moves = [step.instruction for step in steps if isinstance(step, Transfer)]
    stored = [one.tiles for one in moves if isinstance(one, Store)]
    assert sum(stored) == 2 * 784
    assert stored[-1] <= 784 // 14
    at = max(at for at, step in enumerate(steps) if isinstance(step, Transfer) and isinstance(step.instruction, Store))
    before = [step for step in steps[:at] if isinstance(step, Transfer) and isinstance(step.instruction, Store)]
    last = max(at for at, step in enumerate(steps) if isinstance(step, Call) and _multiplies(step.kernel))
    assert steps.index(before[-1]) < last
    assert kernel.counters.gemm == 196 * 8 * 4 * 9


def _multiplies(kernel: Kernel) -> bool:
    return isinstance(kernel, GemmKernel) and not kernel.reset
