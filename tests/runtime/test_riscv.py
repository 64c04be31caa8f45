"""Objects for RISC-V are linked as their instructions want: run by an emulator."""

import struct
from dataclasses import replace

import pytest

from tests.backend.shipping.emulator import Functions
from tests.runtime.images import compile_text
from tests.runtime.test_loader import ONE, TWO
from tilewright.base import vector_length
from tilewright.base.errors import BadArtifact
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.linker import link, plan
from tilewright.runtime.objectfile import Machine
from tilewright.runtime.relocations import rule

RISCV = Machine.RISCV64
SET = """
@here = global i64 4
define void @set(i64 %value) {
  store i64 %value, ptr @here
  ret void
}
define i64 @get() {
  %value = load i64, ptr @here
  ret i64 %value
}
"""
MEMSET = struct.pack("<4I", 0x00B50023, 0x00100513, 0x00008067, 0x00100073)  # sb a1, (a0); li a0, 1; ret


@pytest.fixture(scope="module", params=[RISCV, Machine.AARCH64])
def call(request: pytest.FixtureRequest):
    machine = request.param
    memset = MEMSET if machine is RISCV else struct.pack("<3I", 0x39000001, 0xD2800020, 0xD65F03C0)
    objects = [parse_elf(compile_text(text, machine)) for text in (ONE, TWO, SET)]
    return Functions(plan(objects, machine, {"memset": 0}), {"memset": memset})


def test_constants_data_and_zeros(call) -> None:
    assert [call("lookup", i) for i in range(4)] == [10, 20, 30, 40]
    assert [call("count"), call("count")] == [6, 7]
    assert call("zero", 999) == 0
    call("set", 77)
    assert call("get") == 77


def test_calls_and_jump_tables(call) -> None:
    assert call("call_other", 5) == 16
    assert [call("pick", i) for i in range(6)] == [31, (1 << 64) - 2, 27, 1000, 12, 7]


def test_imports_through_stub_and_table(call) -> None:
    block = 0x7F_0000_0100
    call("fill", block, 1)
    assert call("memset_address") == 0x2_0000_0000


@pytest.mark.parametrize(
    ("kind", "most", "least"),
    [(16, 4094, -4096), (17, (1 << 20) - 2, -(1 << 20)), (44, 254, -256), (45, 2046, -2048)],
)
def test_jumps_reach_as_far_as_they_can(kind: int, most: int, least: int) -> None:
    found = rule(RISCV, kind)
    assert found is not None
    for distance in (most, least):
        assert found.encode((1 << 30) + distance, 1 << 30, 0) is not None
    for distance in (most + 2, least - 2, 1):
        assert found.encode((1 << 30) + distance, 1 << 30, 0) is None


# By hand, from the manual's figures: ``j .+0x5a5a2``, ``beq a0, a1, .-2730``, ``c.j .+0x55a``.
@pytest.mark.parametrize(
    ("kind", "distance", "plain", "word"),
    [(17, 0x5A5A2, 0x6F, 0x5A25A06F), (16, -2730, 0xB50063, 0xD4B50B63), (45, 0x55A, 0xA001, 0xABA9)],
)
def test_bits_of_jumps(kind: int, distance: int, plain: int, word: int) -> None:
    found = rule(RISCV, kind)
    assert found is not None
    assert found.encode((1 << 30) + distance, 1 << 30, plain) == word


def test_lower_bits_without_upper_ones_are_refused() -> None:
    item = parse_elf(compile_text(SET, RISCV))
    section = next(s for s in item.sections if s.relocations)
    lonely = replace(section, relocations=tuple(r for r in section.relocations if r.kind not in (20, 23)))
    sections = tuple(lonely if s is section else s for s in item.sections)
    layout = plan([replace(item, sections=sections)], RISCV, {})
    with pytest.raises(BadArtifact, match="upper bits"):
        link(layout, memoryview(bytearray(layout.size)), 0x40_0000)


def test_how_the_vector_length_is_read() -> None:
    """The bytes are those that LLVM makes."""
    text = """
    declare i64 @llvm.read_register.i64(metadata)
    define i64 @length() {
      %bytes = call i64 @llvm.read_register.i64(metadata !0)
      ret i64 %bytes
    }
    !0 = !{!"vlenb"}
    """
    section = next(s for s in parse_elf(compile_text(text, RISCV)).sections if s.name == ".text")
    assert section.data[:4] == vector_length.READ_VLENB[:4]
