"""The checker of tokens: good programs pass, any token less is reported, and what passes is right in every order."""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backend.vta.linked import flags, linked, random_convolution, run_in_random_order, without
from tilewright.backend.vta.config import VTA, Module, Scratchpad
from tilewright.backend.vta.convolution import convolution_program
from tilewright.backend.vta.dataflow import Limits, pops, pushes
from tilewright.backend.vta.device_memory import DeviceMemory
from tilewright.backend.vta.footprints import Rows
from tilewright.backend.vta.functional import Core
from tilewright.backend.vta.hazards import LIMITS, Fault, Finding, check, require_safe
from tilewright.backend.vta.instructions import Finish, Gemm, Instruction, Load, Store, Tokens
from tilewright.base.errors import BadProgram

DELETED = [*range(4), *(pytest.param(shard, marks=pytest.mark.slow) for shard in range(4, 40))]
EACH = 5
HAZARDS = {Fault.READ_AFTER_WRITE, Fault.WRITE_AFTER_READ, Fault.WRITE_AFTER_WRITE, Fault.UNFINISHED}


@pytest.mark.parametrize("shard", DELETED)
def test_any_token_deleted_is_reported(shard: int) -> None:
    random = Random(shard)
    program = linked(convolution_program(*random_convolution(random), VTA), shard)
    footprints = program.footprints()
    assert check(program.instructions, footprints, VTA) == ()
    for flag in random.sample(flags(program.instructions), EACH):
        found = check(without(program.instructions, [flag]), footprints, VTA)
        assert found, flag
        assert {finding.fault for finding in found} & {Fault.DEADLOCK, Fault.LEFT_TOKENS}


@pytest.mark.parametrize("shard", [0, 1, *(pytest.param(shard, marks=pytest.mark.slow) for shard in range(2, 20))])
def test_a_push_deleted_with_its_pop_is_a_hazard_or_harmless(shard: int) -> None:
    """Harmless: results are right in every order of the modules that the tokens left allow."""
    random, seen = Random(100 + shard), Counter[bool]()
    program = linked(convolution_program(*random_convolution(random), VTA), shard)
    footprints = program.footprints()
    for _ in range(8):
        changed = without(program.instructions, pair(program.instructions, random))
        found = check(changed, footprints, VTA)
        assert {finding.fault for finding in found} <= HAZARDS
        assert all(finding.first is None or finding.first < (finding.second or 0) for finding in found)
        seen[bool(found)] += 1
        if not found:
            for _ in range(4):
                assert run_in_random_order(program, changed, random) == program.after
    assert seen[True] >= 5


def pair(instructions: tuple[Instruction, ...], random: Random) -> list[tuple[int, str]]:
    """A push and the pop of its token."""
    names = {
        (Module.LOAD, Module.COMPUTE): ("push_next", "pop_previous"),
        (Module.COMPUTE, Module.LOAD): ("push_previous", "pop_next"),
        (Module.COMPUTE, Module.STORE): ("push_next", "pop_previous"),
        (Module.STORE, Module.COMPUTE): ("push_previous", "pop_next"),
    }
    channel = random.choice([c for i in instructions for c in pushes(i)])
    givers = [number for number, instruction in enumerate(instructions) if channel in pushes(instruction)]
    takers = [number for number, instruction in enumerate(instructions) if channel in pops(instruction)]
    position = random.randrange(len(givers))
    push, pop = names[channel]
    return [(givers[position], push), (takers[position], pop)]


def test_good_programs_are_right_in_every_order() -> None:
    for seed in range(5):
        random = Random(200 + seed)
        program = linked(convolution_program(*random_convolution(random), VTA), seed)
        for _ in range(3):
            assert run_in_random_order(program, program.instructions, random) == program.after


INP, WGT = Scratchpad.INP, Scratchpad.WGT
GIVES_NEXT, GIVES_BACK = Tokens(push_next=True), Tokens(push_previous=True)
FROM_LOAD, FROM_STORE = Tokens(pop_previous=True), Tokens(pop_next=True)
LOADS = (Load(memory=INP), Load(memory=WGT, tokens=GIVES_NEXT))
PRODUCT = Gemm(tokens=Tokens(pop_previous=True, push_next=True))
RESULT = Store(dram=64, tokens=Tokens(pop_previous=True, push_previous=True))
END = Finish(tokens=FROM_STORE)


def findings(*program: Instruction, limits: Limits = LIMITS) -> list[Finding]:
    core = Core(VTA, DeviceMemory(1 << 14, VTA.alignment))
    footprints = [core.execute(instruction) for instruction in program]
    return list(check(program, footprints, VTA, limits))


def only(*program: Instruction) -> tuple[Fault, int | None, int | None, str]:
    (finding,) = findings(*program)
    return finding.fault, finding.first, finding.second, str(finding)


def test_a_good_program_has_no_findings() -> None:
    assert findings(*LOADS, PRODUCT, RESULT, END) == []


def test_read_after_write() -> None:
    found = findings(Load(memory=INP), Load(memory=WGT), replace(PRODUCT, tokens=GIVES_NEXT), RESULT, END)
    assert [(f.fault, f.first, f.second) for f in found] == [(Fault.READ_AFTER_WRITE, number, 2) for number in (0, 1)]
    assert str(found[0]) == (
        "read after write: 2 (GEMM  push(store)) may access inp[0] before 0 (LOAD inp) has; no token orders them"
    )


def test_write_after_read() -> None:
    fault, first, second, _ = only(*LOADS, PRODUCT, Load(memory=INP), RESULT, END)
    assert (fault, first, second) == (Fault.WRITE_AFTER_READ, 2, 3)
    ordered = replace(PRODUCT, tokens=Tokens(pop_previous=True, push_next=True, push_previous=True))
    assert findings(*LOADS, ordered, Load(memory=INP, tokens=Tokens(pop_next=True)), RESULT, END) == []
    assert findings(*LOADS, PRODUCT, Load(memory=INP, sram=1), RESULT, END) == []


def test_a_store_reads_the_accumulators() -> None:
    fault, first, second, _ = only(*LOADS, PRODUCT, RESULT, Gemm(reset=True), END)
    assert (fault, first, second) == (Fault.WRITE_AFTER_READ, 3, 4)
    fault, first, second, _ = only(*LOADS, replace(PRODUCT, tokens=FROM_LOAD), replace(RESULT, tokens=GIVES_BACK), END)
    assert (fault, first, second) == (Fault.READ_AFTER_WRITE, 2, 3)


def test_device_memory_is_a_memory_too() -> None:
    again = Load(memory=INP, sram=9, dram=64)
    fault, first, second, text = only(*LOADS, PRODUCT, RESULT, again, END)
    assert (fault, first, second) == (Fault.READ_AFTER_WRITE, 3, 4)
    assert "may access device memory before" in text
    fault, first, second, _ = only(Load(memory=INP, sram=9, dram=64), Gemm(tokens=GIVES_NEXT), RESULT, END)
    assert (fault, first, second) == (Fault.WRITE_AFTER_READ, 0, 2)
    assert findings(*LOADS, PRODUCT, RESULT, replace(again, dram=65), END) == []


def test_the_program_ends_when_all_is_stored() -> None:
    fault, first, second, _ = only(*LOADS, PRODUCT, replace(RESULT, tokens=FROM_LOAD), Finish())
    assert (fault, first, second) == (Fault.UNFINISHED, 3, 4)
    assert only(*LOADS, replace(PRODUCT, tokens=FROM_LOAD))[0] is Fault.UNFINISHED
    assert only(*LOADS, PRODUCT, Finish(), RESULT, END)[:3] == (Fault.UNFINISHED, 3, 5)


def test_deadlocks_name_both_instructions() -> None:
    waiting = Load(memory=INP, tokens=Tokens(pop_next=True, push_next=True))
    found = findings(waiting, Gemm(tokens=Tokens(pop_previous=True, push_previous=True)), Finish())
    assert [(finding.fault, finding.first, finding.second) for finding in found] == [
        (Fault.DEADLOCK, 0, 1),
        (Fault.DEADLOCK, 1, 0),
    ]
    assert "waits for a token of compute, which waits at 1 (GEMM  pop(load) push(load))" in str(found[0])
    (alone,) = findings(Gemm(tokens=FROM_LOAD))
    assert alone.second is None
    assert "which has ended" in str(alone)


def test_a_full_queue_of_tokens_is_a_deadlock() -> None:
    """Load gives three tokens before it waits for compute, whose first instruction waits for store."""
    program = (
        *[Load(memory=INP, tokens=GIVES_NEXT)] * 3,
        *[Gemm(reset=True, tokens=FROM_LOAD)] * 3,
        Store(rows=0, columns=0, tokens=GIVES_BACK),
        END,
    )
    assert findings(*program, limits=Limits(tokens=3)) == findings(*program) == []
    blocked = (*[Load(memory=INP, tokens=GIVES_NEXT)] * 3, Finish())
    assert {finding.fault for finding in findings(*blocked)} == {Fault.LEFT_TOKENS}
    assert {finding.fault for finding in findings(*blocked, limits=Limits(tokens=2))} == {Fault.DEADLOCK}


def test_a_full_queue_of_instructions_is_a_deadlock() -> None:
    """Fetch can't hand out the load that compute waits for, as compute's queue is full of what waits."""
    program = (
        Gemm(reset=True, tokens=FROM_LOAD),
        Gemm(reset=True),
        Gemm(reset=True),
        Load(memory=INP, tokens=GIVES_NEXT),
        Finish(),
    )
    assert findings(*program, limits=Limits(instructions=3)) == []
    assert {finding.fault for finding in findings(*program, limits=Limits(instructions=2))} == {Fault.DEADLOCK}


@given(st.lists(st.integers(0, 40), max_size=6), st.lists(st.integers(0, 40), max_size=6), st.data())
def test_rows_overlap_if_a_byte_is_in_both(first: list[int], second: list[int], data: st.DataObject) -> None:
    rows = [Rows(np.array(sorted(starts), np.int64), data.draw(st.integers(0, 6))) for starts in (first, second)]
    a, b = ({start + byte for start in row.starts.tolist() for byte in range(row.size)} for row in rows)
    assert rows[0].overlap(rows[1]) == bool(a & b)


def test_all_findings_are_raised() -> None:
    core = Core(VTA, DeviceMemory(1 << 14, VTA.alignment))
    program = (Load(memory=INP), Load(memory=WGT), Gemm())
    with pytest.raises(BadProgram, match=r"(?s)tokens of the program are wrong.*inp\[0\].*wgt\[0\].*not FINISH"):
        require_safe(program, [core.execute(instruction) for instruction in program], VTA)
