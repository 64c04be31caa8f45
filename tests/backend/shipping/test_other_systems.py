"""Objects for macOS and Windows, as far as Linux can tell.

GNU's linker takes COFF objects, and its compiler calls functions by the convention of Windows, so their code runs here.
Mach-O objects are read back by a reader of our own, linked and emulated. LLVM reads both.
Neither has run on its system.
"""

import struct
import subprocess
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import tilewright
from tests.backend.shipping.emulator import Functions
from tests.backend.shipping.networks import lenet, opened, sample, transformer_block
from tests.backend.shipping.test_objects import GCC, macros, needs_gcc
from tests.backend.shipping.test_open_sizes_and_threads import OPEN, THREADS, several
from tilewright.backend.shipping.coff_file import coff_file
from tilewright.backend.shipping.macho_file import macho_file
from tilewright.backend.shipping.merged import merged
from tilewright.base.errors import BadInput, UnsupportedTarget
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.linker import plan, undefined
from tilewright.runtime.objectfile import Binding, Machine, ObjectFile, Place, Relocation, Section, Segment, Symbol
from tilewright.target.target import Architecture, Target

WINDOWS, MACOS = Target.parse("x86_64-windows"), Target.parse("aarch64-macos,apple-m1")


def sections_by_llvm(data: bytes) -> dict[str, int]:
    return {one.name().decode(): one.size() for one in llvm.ObjectFileRef.from_data(data).sections()}


WIN64 = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#define W __attribute__((ms_abi))
/* What the C library of Windows has: touches the pages of a large frame. Linux needs none of it. */
__asm__(".globl __chkstk\\n__chkstk: ret");

typedef W void task(void *argument, int64_t chunk, int64_t worker);
W int net_sizes(const int64_t *open, int64_t threads, int64_t *sizes);
W int net_run_parallel(const int64_t *open, const void *const *inputs, void *const *outputs, void *scratch,
    int64_t threads, W void (*parallel_for)(void *, task *, void *, int64_t), void *host);
%s

static W void parallel_for(void *host, task *run, void *argument, int64_t chunks) {
  int64_t threads = *(int64_t *)host;
  for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) run(argument, chunk, chunk %% threads);
}

int main(int count, char **words) {
  if (count != 4) return 90;
  int64_t open[2] = {atoll(words[1]), atoll(words[2])}, threads = atoll(words[3]), sizes[NET_SIZES];
  if (net_sizes(open, threads, sizes)) return 91;
  size_t taken = sizes[NET_INPUT_0_BYTES_AT], given = sizes[NET_OUTPUT_0_BYTES_AT];
  const void *inputs[1] = {malloc(taken)};
  void *outputs[1] = {malloc(given)};
  if (fread((void *)inputs[0], 1, taken, stdin) != taken) return 92;
  void *scratch = aligned_alloc(64, (sizes[NET_SCRATCH_BYTES_AT] + 63) / 64 * 64);
  /* By its convention, six to fifteen of the vector registers survive a call. */
  double kept[10], found[10];
  for (int i = 0; i < 10; i++) kept[i] = i + 0.5;
  __asm__ volatile("movsd %%0, %%%%xmm6\\n movsd %%1, %%%%xmm7\\n movsd %%2, %%%%xmm8\\n movsd %%3, %%%%xmm15"
      : : "m"(kept[0]), "m"(kept[1]), "m"(kept[2]), "m"(kept[3]) : "xmm6", "xmm7", "xmm8", "xmm15");
  int code = net_run_parallel(open, inputs, outputs, scratch, threads, parallel_for, &threads);
  __asm__ volatile("movsd %%%%xmm6, %%0\\n movsd %%%%xmm7, %%1\\n movsd %%%%xmm8, %%2\\n movsd %%%%xmm15, %%3"
      : "=m"(found[0]), "=m"(found[1]), "=m"(found[2]), "=m"(found[3]));
  for (int i = 0; i < 4; i++) if (found[i] != kept[i]) return 93;
  fwrite(outputs[0], 1, given, stdout);
  return code;
}
"""


@needs_gcc
@pytest.mark.slow
@pytest.mark.skipif(Target.host().arch is not Architecture.X86_64, reason="it is code of x86-64")
def test_code_for_windows(tmp_path: Path) -> None:
    model = tilewright.compile(opened(transformer_block(), OPEN), target=several(WINDOWS))
    path, header = model.emit(tmp_path / "net.obj", "object")
    assert sections_by_llvm(path.read_bytes()).keys() == {".text", ".rdata", ".data", ".bss"}
    sizes = "\n".join(f"#define {name} {value}" for name, value in macros(header).items() if value.isdigit())
    (tmp_path / "main.c").write_text(WIN64 % sizes)
    options = ("-O1", "-no-pie", "-Wl,-z,noexecstack", "-lm")
    command = [str(GCC), str(tmp_path / "main.c"), str(path), *options, "-o", str(tmp_path / "main")]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    x = sample((3, 9, 16))
    same = tilewright.compile(opened(transformer_block(), OPEN), target=several(Target.parse("x86_64")))
    for threads in THREADS:
        done = subprocess.run([tmp_path / "main", "3", "9", str(threads)], input=x.tobytes(), capture_output=True)
        assert (done.returncode, done.stdout) == (0, same(x).tobytes())


def test_fields_of_a_coff_object() -> None:
    """By hand, from the specification: alignments, distances, long names, and more relocations than a header counts."""
    name, many = "longer_than_eight_letters", 70_000
    places = tuple(Relocation(8 * place, 1, 1, place) for place in range(many))
    sections = (
        Section(".text", Segment.CODE, 16, 8, bytes(8), (Relocation(2, 2, 2, 4),)),
        Section(".rodata", Segment.CONSTANTS, 32, 8 * many, bytes(8 * many), places),
    )
    symbols = (
        Symbol("", Binding.LOCAL, Place.UNDEFINED, 0),
        Symbol(name, Binding.GLOBAL, 0, 0, 8),
        Symbol("numbers", Binding.LOCAL, 1, 16, 8 * many),
    )
    data = coff_file(merged([ObjectFile("x", Machine.X86_64, sections, symbols)], {name}))
    machine, count, _, symbols_at, symbol_count, _, _ = struct.unpack_from("<HHIIIHH", data)
    assert (machine, symbol_count) == (0x8664, 2)
    table = [struct.unpack_from("<8sIIIIIIHHI", data, 20 + 40 * place) for place in range(count)]
    (code, constants, *_), alignments = table, [fields[9] >> 20 & 15 for fields in table[:2]]
    assert (code[0].rstrip(b"\0"), constants[0].rstrip(b"\0")) == (b".text", b".rdata")
    assert alignments == [5, 6]  # 16 and 32
    # A distance counts from the end of its four bytes.
    assert struct.unpack_from("<i", data, code[4] + 2) == (8,)
    assert struct.unpack_from("<q", data, constants[4] + 8 * 69_999) == (69_999,)
    local, shared = (struct.unpack_from("<8sIhHBB", data, symbols_at + 18 * place) for place in range(2))
    assert struct.unpack_from("<IIH", data, code[5]) == (2, 0, 4)
    assert (code[7], constants[7], constants[9] & 0x01000000) == (1, 0xFFFF, 0x01000000)
    assert struct.unpack_from("<I", data, constants[5]) == (1 + many,)
    assert struct.unpack_from("<IIH", data, constants[5] + 10 * many) == (8 * 69_999, 1, 1)
    assert (local[0], local[1:4]) == (b"numbers\0", (16, 2, 0))
    assert shared[1:5] == (0, 1, 0x20, 2)
    (at,) = struct.unpack("<4xI", shared[0])
    assert data[symbols_at + 18 * symbol_count + at :].startswith(name.encode() + b"\0")


def test_a_mach_object_for_a_mac(tmp_path: Path) -> None:
    path, header = tilewright.compile(lenet(), target=MACOS).emit(tmp_path / "net.o", "object")
    data, sizes = path.read_bytes(), macros(header)
    assert sections_by_llvm(data).keys() == {"__text", "__const", "__data", "__bss"}
    read = mach_object(data)
    shared = {one.name for one in read.symbols if one.binding is Binding.GLOBAL and one.place is not Place.UNDEFINED}
    assert shared == {"_net_run", "_net_run_parallel"}
    assert undefined([read]) == set()
    functions = Functions(plan([read], Machine.AARCH64, {}), {})
    x = sample((1, 1, 28, 28))
    given = functions.memory(x.tobytes())
    results = [functions.memory(bytes(int(sizes[f"NET_OUTPUT_{i}_BYTES"]))) for i in range(2)]
    tables = [functions.memory(struct.pack(f"<{len(places)}Q", *places)) for places in ([given], results)]
    scratch = functions.memory(b"\xa5" * int(sizes["NET_SCRATCH_BYTES"]))
    assert functions("_net_run", *tables, scratch) == 0
    for at, wanted in zip(results, tilewright.compile(lenet())(x), strict=True):
        found = np.frombuffer(functions.read(at, wanted.nbytes), np.float32).reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_places_in_data_of_a_mach_object() -> None:
    """A function that loads the second of three numbers: adrp, ldr, ret."""
    code, numbers = struct.pack("<3I", 0x90000000, 0xF9400000, 0xD65F03C0), struct.pack("<3Q", 11, 22, 33)
    loads = (Relocation(0, 275, 2, 8), Relocation(4, 286, 2, 8))
    sections = (
        Section(".text", Segment.CODE, 4, len(code), code, loads),
        Section(".rodata", Segment.CONSTANTS, 8, len(numbers), numbers, ()),
    )
    symbols = (
        Symbol("", Binding.LOCAL, Place.UNDEFINED, 0),
        Symbol("second", Binding.GLOBAL, 0, 0, len(code)),
        Symbol("numbers", Binding.LOCAL, 1, 0, len(numbers)),
    )
    read = mach_object(macho_file(merged([ObjectFile("one", Machine.AARCH64, sections, symbols)], {"second"})))
    assert Functions(plan([read], Machine.AARCH64, {}), {})("_second") == 22


def test_a_register_that_macos_has_for_itself_is_not_used(tmp_path: Path) -> None:
    capstone = pytest.importorskip("capstone")
    disassembler = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)

    def names(target: Target) -> str:
        objects = tilewright.compile(transformer_block(), target=target).emit(
            tmp_path / f"{target.platform}.o", "object"
        )
        data = objects[0].read_bytes()
        item = mach_object(data) if target.system is MACOS.system else parse_elf(data)
        code = next(one.data for one in item.sections if one.segment is Segment.CODE)
        return " ".join(one.op_str for one in disassembler.disasm(code, 0))

    plain = names(Target.parse("aarch64,apple-m1")).replace(",", " ").split()
    assert "x18" in plain or "w18" in plain
    own = names(MACOS).replace(",", " ").split()
    assert "x18" not in own
    assert "w18" not in own


@pytest.mark.parametrize("target", [WINDOWS, MACOS])
def test_what_there_is_not_for_other_systems(target: Target, tmp_path: Path) -> None:
    model = tilewright.compile(lenet(), target=target)
    with pytest.raises(BadInput, match=f"emit=program is not for {target.platform}, .*; there: object, header"):
        model.emit(tmp_path / "net", "program")
    with pytest.raises(UnsupportedTarget, match=f"it is code for {target.platform}"):
        model(sample((1, 1, 28, 28)))
    path, _ = model.emit(tmp_path / "net.obj", "object")
    assert sum(sections_by_llvm(path.read_bytes()).values()) > 10_000
    assert Target.parse(str(target)) == target


def mach_object(data: bytes) -> ObjectFile:
    """A relocatable object of aarch64 in Mach-O's format, with ELF's relocations."""
    magic, cpu, _, kind, commands, *_ = struct.unpack_from("<8I", data)
    assert (magic, cpu, kind) == (0xFEEDFACF, 0x0100000C, 1)
    at, sections, symbols = 32, list[Section](), list[Symbol]()
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, at)
        if command == 0x19:
            count = struct.unpack_from("<I", data, at + 64)[0]
            parts = [struct.unpack_from("<16s16sQQ8I", data, at + 72 + 80 * i) for i in range(count)]
        elif command == 0x2:
            symbols_at, number, names_at, _ = struct.unpack_from("<4I", data, at + 8)
            symbols = [_symbol(data, symbols_at + 16 * i, names_at, parts) for i in range(number)]
        at += size
    for name, _, _, size, place, alignment, listed_at, listed, flags, *_ in parts:
        contents = b"" if flags & 0xFF == 1 else data[place : place + size]
        relocations = tuple(_relocation(data, listed_at + 8 * i, contents) for i in range(listed))
        segment = {b"__text": Segment.CODE, b"__const": Segment.CONSTANTS}.get(name.rstrip(b"\0"), Segment.DATA)
        sections.append(Section(name.rstrip(b"\0").decode(), segment, 1 << alignment, size, contents, relocations))
    return ObjectFile("mach", Machine.AARCH64, tuple(sections), tuple(symbols))


def _symbol(data: bytes, at: int, names_at: int, parts: list[tuple[int, ...]]) -> Symbol:
    name_at, sort, section, _, value = struct.unpack_from("<IBBHQ", data, at)
    begin = names_at + name_at
    name = data[begin : data.index(b"\0", begin)].decode()
    binding = Binding.GLOBAL if sort & 1 else Binding.LOCAL
    if not section:
        return Symbol(name, binding, Place.UNDEFINED, 0)
    return Symbol(name, binding, section - 1, value - parts[section - 1][2])


def _relocation(data: bytes, at: int, contents: bytes) -> Relocation:
    offset, bits = struct.unpack_from("<II", data, at)
    symbol, is_distance, length, kind = bits & 0xFFFFFF, bits >> 24 & 1, bits >> 25 & 3, bits >> 28
    assert bits >> 27 & 1  # of a symbol, not of a section
    assert (kind, is_distance, length) in ((0, 0, 3), (2, 1, 2), (3, 1, 2), (4, 0, 2))
    (word,) = struct.unpack_from("<I", contents, offset)
    low = 277 if kind != 4 or word & 0x3B00_0000 == 0x1100_0000 else _load(word)
    return Relocation(offset, {0: 257, 2: 283, 3: 275, 4: low}[kind], symbol, 0)


def _load(word: int) -> int:
    """A load or store: its scale follows from the instruction, as a linker of macOS finds it."""
    assert word & 0x3B00_0000 == 0x3900_0000
    is_wide = word >> 26 & 1 and word >> 23 & 1 and not word >> 30
    return 299 if is_wide else (278, 284, 285, 286)[word >> 30]
