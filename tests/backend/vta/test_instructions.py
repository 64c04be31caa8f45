"""Fields: round trips at all widths, what does not fit, what is no instruction, and the manual page."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.backend.vta.assembly import listing, text_of
from tilewright.backend.vta.config import LARGE, OSDI, PRESETS, VTA, Config, Scratchpad
from tilewright.backend.vta.fields import (
    Field,
    InvalidInstruction,
    Placed,
    UnencodableField,
    fields_of,
    layout,
    value_of,
)
from tilewright.backend.vta.instructions import (
    FORMS,
    Alu,
    AluOperation,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
    Tokens,
    Uop,
    decode,
    decode_program,
    encode,
    encode_program,
    encode_uops,
    places,
    uop_columns,
    uop_places,
)
from tilewright.backend.vta.manual import manual
from tilewright.base.errors import BadInput

MANUAL = Path(__file__).parents[3] / "docs" / "appendix" / "accelerator-instructions.md"
CONFIGS = [*PRESETS.values(), Config("wide", uop_bits=64, instruction_bits=256, inp_bytes=1 << 20, acc_bytes=1 << 22)]
LOADED = [pad for pad in Scratchpad if pad is not Scratchpad.OUT]


def drawn(draw: st.DrawFn, place: Placed) -> int:
    """A value of a field: often its least or largest one."""
    return draw(st.sampled_from([place.least, place.most]) | st.integers(place.least, place.most))


@st.composite
def instructions(draw: st.DrawFn, config: Config) -> Instruction:
    form = draw(st.sampled_from(FORMS))
    values: dict[str, object] = {}
    flags: dict[str, bool] = {}
    for place in places(form, config):
        field = place.field
        if field.path[0] == "tokens":
            flags[field.name] = draw(st.booleans())
        elif field.kind is AluOperation:
            values[field.name] = draw(st.sampled_from(AluOperation))
        elif field.kind is Scratchpad:
            values[field.name] = draw(st.sampled_from([Scratchpad.OUT] if form is Store else LOADED))
        else:
            values[field.name] = field.kind(drawn(draw, place))
    if form is Store:
        flags |= {"pop_next": False, "push_next": False}
    if form is Load and values["memory"] in (Scratchpad.INP, Scratchpad.WGT):
        flags |= {"pop_previous": False, "push_previous": False}
    return form(**values, tokens=Tokens(**flags))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@given(data=st.data())
@settings(max_examples=30)
def test_instructions_come_back(config: Config, data: st.DataObject) -> None:
    instruction = data.draw(instructions(config))
    encoded = encode(instruction, config)
    assert len(encoded) == config.instruction_bits // 8
    assert decode(encoded, config) == instruction


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@given(data=st.data())
@settings(max_examples=20)
def test_micro_ops_come_back(config: Config, data: st.DataObject) -> None:
    rows = [[drawn(data.draw, place) for place in uop_places(config)] for _ in range(3)]
    encoded = encode_uops(tuple(Uop(*row) for row in rows), config)
    words = [encoded[start : start + config.uop_bits // 8] for start in range(0, len(encoded), config.uop_bits // 8)]
    array = np.array([int.from_bytes(word, "little") for word in words], config.dtype(Scratchpad.UOP))
    assert uop_columns(array, config).tolist() == rows


EXAMPLES: list[Instruction] = [Load(memory=Scratchpad.ACC), Store(), Gemm(), Alu()]
FIELDS = [
    (example, field)
    for example in EXAMPLES
    for field in fields_of(type(example))
    if field.kind is int and len(field.path) == 1
]


@pytest.mark.parametrize(("example", "field"), FIELDS, ids=lambda item: getattr(item, "name", type(item).__name__))
def test_what_does_not_fit_names_the_field(example: Instruction, field: Field) -> None:
    place = next(place for place in places(type(example), VTA) if place.field == field)
    name = place.field.name
    for value in (place.least - 1, place.most + 1):
        with pytest.raises(UnencodableField, match=rf"{name}={value} does not fit its {place.width} bits") as caught:
            encode(replace(example, **{name: value}), VTA)
        assert (caught.value.field, caught.value.value, caught.value.width) == (name, value, place.width)


def test_what_vta_cannot_address_is_refused() -> None:
    with pytest.raises(UnencodableField, match="outer=16384 does not fit its 14 bits"):
        encode(Gemm(outer=1 << 14), VTA)
    with pytest.raises(UnencodableField, match="dst=2048 does not fit its 11 bits"):
        encode_uops((Uop(dst=2048),), VTA)
    with pytest.raises(UnencodableField, match="wgt=128 does not fit its 7 bits"):
        encode_uops((Uop(wgt=128),), OSDI)


def test_fields_are_where_vta_has_them() -> None:
    """Two words of 64 bits, micro-ops of 32."""
    starts = {place.field.name: (place.shift, place.width) for place in places(Load, VTA)}
    assert starts["memory"] == (7, 3)
    assert starts["dram"] == (26, 32)
    assert [starts[name][0] for name in ("rows", "columns", "stride", "pad_top", "pad_right")] == [64, 80, 96, 112, 124]
    starts = {place.field.name: (place.shift, place.width) for place in places(Gemm, VTA)}
    assert starts["uop_begin"] == (8, 13)
    assert starts["uop_end"] == (21, 14)
    assert starts["dst_outer"] == (64, 11)
    assert starts["wgt_inner"] == (118, 10)
    assert [(place.shift, place.width) for place in uop_places(VTA)] == [(0, 11), (11, 11), (22, 10)]
    assert encode(Gemm(outer=3, tokens=Tokens(pop_previous=True)), VTA)[0] == 0b0001_010


def test_every_field_of_every_form_is_placed_once() -> None:
    for config in CONFIGS:
        for form in FORMS:
            bits = [range(place.shift, place.shift + place.width) for place in places(form, config)]
            used = [bit for span in bits for bit in span]
            assert len(set(used)) == len(used)
            assert max(used, default=0) < config.instruction_bits


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (bytes([7, *[0] * 15]), "opcode 7 is unknown; known are LOAD 0"),
        (bytes([3, 1, *[0] * 14]), "Finish: bits 0x100 belong to no field"),
        (bytes([0, 3, *[0] * 14]), "Load: memory is 6; known are UOP 0"),
        (bytes([0, 2, *[0] * 14]), "LOAD: out is written by compute only"),
        (bytes([1, 0, *[0] * 14]), "STORE: uop can't be stored"),
        (bytes([0b0001_000, 1, *[0] * 14]), "LOAD: load has no previous module"),
        (bytes([0b0010_001, 2, *[0] * 14]), "STORE: store has no next module"),
        (b"1234", "an instruction has 16 bytes, not 4"),
    ],
)
def test_bits_that_are_no_instruction(data: bytes, told: str) -> None:
    with pytest.raises(InvalidInstruction, match=told):
        decode(data, VTA)


def test_programs_are_their_instructions_one_after_another() -> None:
    program = (Load(memory=Scratchpad.INP), Gemm(reset=True), Finish())
    data = encode_program(program, VTA)
    assert len(data) == 3 * 16
    assert decode_program(data, VTA) == program


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batch": 3}, "batch=3 is not a power of two"),
        ({"inp_bits": 4}, r"inp_bits=4 is not supported; use one of \(8, 16\)"),
        ({"acc_bits": 16}, "acc_bits=16 is not supported"),
        ({"inp_bytes": 100}, "inp_bytes=100 is not 2 to 65536 tiles of 16 bytes"),
        ({"uop_bits": 24}, "uop_bits=24 is not 32"),
        ({"clock_mhz": 0}, "clock_mhz=0"),
    ],
)
def test_impossible_configurations(changes: dict[str, int], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        replace(VTA, **changes)


def test_a_configuration_without_room_for_addresses_is_refused() -> None:
    with pytest.raises(BadInput, match="Uop takes 36 bits, and there are 32; use smaller memories"):
        uop_places(replace(VTA, inp_bytes=128 << 10, acc_bytes=512 << 10))
    assert layout(Uop, LARGE, 0, 32)


def test_sizes_are_those_of_the_papers() -> None:
    depths = [VTA.depth(pad) for pad in (Scratchpad.UOP, Scratchpad.INP, Scratchpad.WGT, Scratchpad.ACC)]
    assert depths == [8192, 2048, 1024, 2048]
    assert [OSDI.peak_gops, VTA.peak_gops] == [102.4, 51.2]
    assert value_of(Finish(), fields_of(Finish)[0]) == 0


def test_assembly() -> None:
    load = Load(memory=Scratchpad.INP, sram=8, rows=2, columns=3, stride=5, pad_left=1, tokens=Tokens(push_next=True))
    assert text_of(load) == "LOAD inp sram=8 rows=2 columns=3 stride=5 pad_left=1  push(compute)"
    alu = Alu(
        operation=AluOperation.SHR, use_immediate=True, immediate=-3, tokens=Tokens(pop_next=True, push_next=True)
    )
    assert text_of(alu) == "ALU shr use_immediate immediate=-3  pop(store) push(store)"
    assert listing([load, Finish()]).splitlines()[1] == "   1  compute  FINISH"


def test_the_manual_is_up_to_date(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        MANUAL.write_text(manual())
    assert MANUAL.read_text() == manual(), "run this test with --update-golden, and look at what is written"
