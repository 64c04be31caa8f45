"""Artifacts with right hashes and wrong contents, loaded with ``trust=True``: refused in words, at once, by a live
process."""

import itertools
import json
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.artifact.forge import Members, members_of, scaler, write
from tests.runtime.artifact.parts import adder
from tilewright.base import dtypes as dt
from tilewright.base.errors import BadArtifact, BadFeed, CorruptArtifact
from tilewright.runtime import elf
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.loading import load
from tilewright.runtime.manifest import MAX_NUMBER, MAX_OPERATIONS, Formula, Manifest, Symbol, TensorSpec, evaluate


def forge(folder: Path, seed: int, count: int) -> None:
    """In a child of limited memory, as it may die."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))

    command = [sys.executable, "-m", "tests.runtime.artifact.forge", str(folder), str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, preexec_fn=limit)
    assert done.returncode == 0, (done.returncode, done.stdout[-300:], done.stderr[-3000:])


def test_any_field(tmp_path: Path) -> None:
    forge(tmp_path, seed=1, count=400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_field_often(tmp_path: Path, seed: int) -> None:
    forge(tmp_path, seed=100 + seed, count=10_000)


# ---------------------------------------------------------------------------------------------------------------------
# Symbols
# ---------------------------------------------------------------------------------------------------------------------


def symbols(data: bytes) -> dict[str, int]:
    """Where the entries of the named symbols are."""
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * number) for number in range(count)]
    (found,) = (header for header in headers if header[1] == 2)
    names = headers[found[6]][4]
    entries = range(found[4], found[4] + found[5], 24)
    starts = {at: names + struct.unpack_from("<I", data, at)[0] for at in entries}
    return {data[start : data.index(b"\0", start)].decode(): at for at, start in starts.items()}


def with_symbol(members: Members, name: str, section: int | None = None, value: int | None = None) -> Members:
    """The symbol's entry says another section or value."""
    changed = dict(members)
    for member, data in members.items():
        if member.endswith(".o") and name in symbols(data):
            entry = bytearray(data)
            at = symbols(data)[name]
            if struct.unpack_from("<H", data, at + 6)[0] == 0:
                continue
            if section is not None:
                struct.pack_into("<H", entry, at + 6, section)
            if value is not None:
                struct.pack_into("<Q", entry, at + 8, value)
            changed[member] = bytes(entry)
    assert changed != members
    return changed


def section_named(data: bytes, start: str) -> int:
    """The number of the first section of that kind that has bytes."""
    wanted = {".text": 0x6, ".rodata": 0x2}[start]
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for number in range(count):
        header = struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * number)
        if header[1] == 1 and header[2] & 0x6 == wanted and header[5]:
            return number
    raise AssertionError(start)


@pytest.mark.parametrize("name", ["tw_main", "tw_enter", "tw_worker", "tw_stop", "tw_abi_version"])
@pytest.mark.parametrize("value", [0, 8, 0x4141_4141_4141, (1 << 64) - 1])
def test_a_symbol_at_a_fixed_address(tmp_path: Path, name: str, value: int) -> None:
    write(tmp_path / "m.tw", with_symbol(members_of(scaler(), tmp_path), name, 0xFFF1, value))
    with pytest.raises(CorruptArtifact, match=rf"symbol '{name}' is a fixed address"):
        load(tmp_path / "m.tw", trust=True)


@pytest.mark.parametrize("name", ["tw_enter", "tw_worker", "tw_stop"])
def test_a_function_that_is_a_constant(tmp_path: Path, name: str) -> None:
    members = members_of(scaler(), tmp_path)
    data = next(d for n, d in members.items() if n.endswith(".o") and "tw_enter" in symbols(d))
    entry = bytearray(data)
    struct.pack_into("<HQQ", entry, symbols(data)[name] + 6, section_named(data, ".rodata"), 0, 0)
    write(tmp_path / "m.tw", {n: bytes(entry) if d == data else d for n, d in members.items()})
    with pytest.raises(CorruptArtifact, match=rf"symbol '{name}' of the image is no function"):
        load(tmp_path / "m.tw", trust=True)


@pytest.mark.parametrize("value", [1 << 20, 1 << 40, (1 << 64) - 1])
def test_a_function_outside_of_its_section(tmp_path: Path, value: int) -> None:
    write(tmp_path / "m.tw", with_symbol(members_of(scaler(), tmp_path), "tw_main", value=value))
    with pytest.raises(CorruptArtifact, match="symbol 'tw_main' is outside its section"):
        load(tmp_path / "m.tw", trust=True)


def test_a_version_that_is_code_or_at_the_end(tmp_path: Path) -> None:
    members = members_of(scaler(), tmp_path)
    data = next(d for n, d in members.items() if n.endswith(".o") and "tw_enter" in symbols(d))
    at = symbols(data)["tw_abi_version"]
    for section, value in ((section_named(data, ".text"), 0), (struct.unpack_from("<H", data, at + 6)[0], None)):
        entry = bytearray(data)
        struct.pack_into("<H", entry, at + 6, section)
        if value is None:  # the last byte of its section
            header = struct.unpack_from("<IIQQQQIIQQ", data, struct.unpack_from("<Q", data, 40)[0] + 64 * section)
            struct.pack_into("<QQ", entry, at + 8, header[5], 0)
        write(tmp_path / "m.tw", {n: bytes(entry) if d == data else d for n, d in members.items()})
        with pytest.raises(CorruptArtifact, match="'tw_abi_version' of the image is no constant of 4 bytes"):
            load(tmp_path / "m.tw", trust=True)


def test_many_long_names_that_share_their_bytes() -> None:
    """100 KB of text under 20,000 names would be 2 GB of strings."""
    data = adder().objects[0]
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    headers = [list(struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * number)) for number in range(count)]
    place = next(i for i, header in enumerate(headers) if header[1] == 2)
    link = headers[place][6]
    text, entries = b"\0" + b"a" * 100_000 + b"\0", bytes(24) + struct.pack("<IBBHQQ", 1, 0x10, 0, 0, 0, 0) * 20_000
    grown = bytearray(data)
    for number, content in ((link, text), (place, entries)):
        struct.pack_into("<QQ", grown, table + 64 * number + 24, len(grown), len(content))
        grown += content
    begin = time.process_time()
    with pytest.raises(BadArtifact, match="longer than"):
        parse_elf(bytes(grown))
    assert time.process_time() - begin < 5


def test_tables_that_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    data = adder().objects[1]
    item = parse_elf(data)
    monkeypatch.setattr(elf, "_MAX_RECORDS", len(item.symbols) - 1)
    with pytest.raises(BadArtifact, match=r"has more than \d+ entries"):
        parse_elf(data)
    monkeypatch.setattr(elf, "_MAX_RECORDS", 1)
    with pytest.raises(BadArtifact, match=r"more than 1 (relocations|entries)"):
        parse_elf(data)


# ---------------------------------------------------------------------------------------------------------------------
# The manifest
# ---------------------------------------------------------------------------------------------------------------------


def squarings(count: int) -> list[dict[str, object]]:
    """n ** (2 ** count), a symbol for each step."""
    names = ["n", *(f"s{i}" for i in range(count))]
    steps = [
        {"name": after, "minimum": 0, "maximum": None, "value": ["*", before, before]}
        for before, after in itertools.pairwise(names)
    ]
    return [{"name": "n", "minimum": 1, "maximum": 99, "value": None}, *steps]


def test_sixty_squarings(tmp_path: Path) -> None:
    """As seen: it took for ever."""
    members = members_of(scaler(), tmp_path)
    fields = json.loads(members["manifest.json"])
    own = json.dumps(fields["symbols"][0])
    more = ",\n ".join(json.dumps(symbol) for symbol in squarings(60))
    text = members["manifest.json"].decode()
    assert own in text
    write(tmp_path / "m.tw", {**members, "manifest.json": text.replace(own, more).encode()})
    model = load(tmp_path / "m.tw", trust=True)
    for n in (2, 99):
        with pytest.raises(BadFeed, match=r"an extent is computed as .*give smaller ones|extent 's5'"):
            model.run(None, {"x": np.ones(n, np.float32)})


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        (("*", 1 << 40, 1 << 40), None),
        (("*", -(1 << 40), 1 << 40), None),
        (("min", ("+", (1 << 63) - 1, "n"), "n"), 7),
        (("-", ("*", 1 << 32, 1 << 31), 1), (1 << 63) - 1),
        (("//", "n", 0), None),
    ],
)
def test_formulas_are_exact_or_an_error(formula: Formula, value: int | None) -> None:
    if value is None:
        with pytest.raises(BadFeed):
            evaluate(formula, {"n": 7})
    else:
        assert evaluate(formula, {"n": 7}) == value


def test_a_symbol_is_no_larger_than_native_code_can_take() -> None:
    Symbol("n").check(MAX_NUMBER, "here")
    with pytest.raises(BadFeed):
        Symbol("n").check(MAX_NUMBER + 1, "here")


def test_formulas_are_bounded_in_size() -> None:
    formula: Formula = 1
    for _ in range(14):
        formula = ("+", formula, formula)
    spec = TensorSpec("x", dt.f32, ("n",))
    many = [Symbol(f"s{i}", value=formula) for i in range(MAX_OPERATIONS >> 14)]
    Manifest((spec,), (spec,), symbols=(Symbol("n"), *many))
    with pytest.raises(BadArtifact, match="formulas have more than"):
        Manifest((spec,), (spec,), symbols=(Symbol("n"), *many, Symbol("t", value=formula)))


@pytest.mark.parametrize("shape", [(1,) * 33, (1 << 62, 2), (0, 1 << 40, 1 << 40), (1 << 61,)])
def test_shapes_that_no_array_has(shape: tuple[int, ...]) -> None:
    spec = TensorSpec("x", dt.f32, shape)
    for specs in ((spec,), ()), ((), (spec,)):
        with pytest.raises(BadArtifact, match="has more than 32 dimensions, or than"):
            Manifest(*specs)
    with pytest.raises(BadArtifact, match="has more than 32 dimensions, or than"):
        Manifest((), (), (spec,))
