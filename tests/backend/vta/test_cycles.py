"""The cycle simulator: times that are computed by hand, and the share of time in which the matrix unit works."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from tests.backend.vta.linked import linked, random_convolution
from tilewright.backend.vta.config import VTA, Module, Scratchpad
from tilewright.backend.vta.convolution import convolution_program
from tilewright.backend.vta.cycles import Timing, chart, simulate
from tilewright.backend.vta.dataflow import CHANNELS, pops, pushes
from tilewright.backend.vta.instructions import Alu, Finish, Gemm, Instruction, Load, Store, Tokens
from tilewright.base.errors import BadInput, BadProgram

PLAIN = Timing(latency=10, issue=0, gemm_depth=0, alu_depth=0, store_depth=0, fetch_start=0, fetch_interval=0)
GIVES = Tokens(push_next=True)
TAKES = Tokens(pop_previous=True)


def spans(timing: Timing, *program: Instruction) -> list[tuple[int, int]]:
    timeline = simulate(program, VTA, timing).timeline
    return list(zip(timeline.begins, timeline.ends, strict=True))


def test_instructions_take_their_micro_ops() -> None:
    assert spans(PLAIN, Gemm(uop_end=3, outer=4, inner=5)) == [(0, 60)]
    assert spans(replace(PLAIN, issue=2, gemm_depth=5), Gemm(uop_end=3)) == [(0, 10)]
    assert spans(PLAIN, Alu(uop_end=3), Alu(uop_end=3, use_immediate=True)) == [(0, 6), (6, 9)]
    assert spans(replace(PLAIN, alu_depth=4, alu_interval=3), Alu(uop_end=3, use_immediate=True)) == [(0, 13)]


def test_transfers_are_tiles_of_whole_words() -> None:
    """A tile of inp has 16 bytes, two words of 8; a micro-op has half a word, which is requested for each."""
    assert spans(PLAIN, Load(memory=Scratchpad.INP, rows=3, columns=4)) == [(0, 10 + 24)]
    assert spans(replace(PLAIN, bus_bytes=32), Load(memory=Scratchpad.INP, rows=3, columns=1)) == [(0, 10 + 3)]
    assert spans(PLAIN, Load(memory=Scratchpad.UOP, columns=5)) == [(0, 10 + 5)]
    assert spans(PLAIN, Store(columns=2)) == [(0, 10 + 4)]
    assert spans(replace(PLAIN, store_depth=3), Store(columns=2)) == [(0, 10 + 4 + 3)]


def test_zeros_are_written_one_in_a_cycle() -> None:
    """The first four while device memory has not answered yet."""
    load = Load(memory=Scratchpad.INP, rows=2, columns=2, pad_left=1, pad_top=1)
    assert spans(PLAIN, load) == [(0, 10 + 8 + 1)]
    assert spans(replace(PLAIN, latency=2), load) == [(0, 4 + 8 + 1)]
    assert spans(PLAIN, replace(load, rows=0)) == [(0, 3)]
    assert spans(PLAIN, Load(memory=Scratchpad.INP, rows=0, columns=0)) == [(0, 0)]


def test_device_memory_serves_one_transfer_at_a_time() -> None:
    """The latency of the second overlaps with the first, which began at the same time and comes first."""
    program = (Load(memory=Scratchpad.INP, columns=8), Load(memory=Scratchpad.ACC, columns=4), Store(columns=1))
    assert spans(PLAIN, *program) == [(0, 26), (0, 26 + 32), (0, 58 + 2)]
    assert simulate(program, VTA, PLAIN).transferring == 16 + 32 + 2


def test_tokens_make_modules_wait() -> None:
    program = (
        Load(memory=Scratchpad.INP, columns=8, tokens=GIVES),
        Gemm(outer=7, tokens=Tokens(pop_previous=True, push_next=True)),
        Store(tokens=TAKES),
        Load(memory=Scratchpad.INP, sram=8, columns=8),
    )
    assert spans(PLAIN, *program) == [(0, 26), (26, 33), (33, 52 + 2), (26, 52)]


def test_fetch_takes_its_time_and_waits_for_full_queues() -> None:
    program = (Gemm(outer=100), Gemm(), Gemm(), Load(memory=Scratchpad.INP, rows=0, columns=0))
    assert [begin for begin, _ in spans(replace(PLAIN, fetch_interval=3), *program)] == [3, 103, 104, 12]
    assert spans(replace(PLAIN, fetch_interval=3, fetch_start=7), Gemm()) == [(10, 11)]
    assert [begin for begin, _ in spans(replace(PLAIN, queue_length=1), *program)] == [0, 100, 101, 100]


def test_shares_and_chart() -> None:
    program = (
        Gemm(reset=True, outer=10),
        Gemm(outer=60, tokens=GIVES),
        Alu(use_immediate=True, outer=10, tokens=GIVES),
        Store(tokens=TAKES),
        Store(tokens=TAKES),
        Finish(),
    )
    cycles = simulate(program, VTA, replace(PLAIN, latency=8))
    assert cycles.total == 90
    assert cycles.utilisation == 60 / 90
    assert cycles.busy_share(Module.COMPUTE) == 80 / 90
    assert str(cycles) == ("90 cycles; products 67%; busy: load 0%, compute 89%, store 22%, device memory 4%")
    assert chart(cycles, program, width=9).splitlines() == [
        "load    .........",
        "compute rGGGGGGA.",
        "store   .......SS",
    ]


@pytest.mark.parametrize("seed", range(3))
def test_times_keep_the_order_of_queues_and_tokens(seed: int) -> None:
    random = Random(400 + seed)
    program = linked(convolution_program(*random_convolution(random), VTA)).instructions
    timing = Timing(
        bus_bytes=random.choice((1, 8, 64)), latency=random.choice((0, 100)), token_length=4, queue_length=9
    )
    cycles = simulate(program, VTA, timing)
    spans = list(zip(cycles.timeline.begins, cycles.timeline.ends, strict=True))
    for module in Module:
        mine = [span for span, instruction in zip(spans, program, strict=True) if instruction.module is module]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(mine))
        assert dict(cycles.busy)[module] == sum(end - begin for begin, end in mine) <= cycles.total
    for channel in CHANNELS:
        given = [end for (_, end), instruction in zip(spans, program, strict=True) if channel in pushes(instruction)]
        taken = [begin for (begin, _), instruction in zip(spans, program, strict=True) if channel in pops(instruction)]
        assert all(end <= begin for end, begin in zip(given, taken, strict=True))
        assert all(begin <= end for begin, end in zip(taken, given[4:], strict=False))
    assert cycles.transferring <= cycles.total


def test_a_deadlock_is_an_error() -> None:
    with pytest.raises(BadProgram, match=r"the program deadlocks: 0 \(GEMM  pop\(load\)\) never goes on"):
        simulate((Gemm(tokens=TAKES),), VTA, PLAIN)


def test_impossible_times() -> None:
    with pytest.raises(BadInput, match="Timing: bus_bytes=0 is impossible; the least is 1"):
        Timing(bus_bytes=0)
    with pytest.raises(BadInput, match="Timing: latency=-1 is impossible; the least is 0"):
        Timing(latency=-1)
