"""Objects are linked, placed and protected as their relocations say."""

import ctypes
import struct
from pathlib import Path

import pytest

from tests.runtime.images import compile_text, image_of, support_object
from tilewright.base.errors import BadArtifact
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.linker import link, plan
from tilewright.runtime.loader import LoadedImage, load_image
from tilewright.runtime.objectfile import Machine, Segment

ONE = """
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@counter = internal global i64 5
@zeros = internal global [1000 x i64] zeroinitializer
@pointer = internal global ptr @counter
declare i64 @other(i64)
declare ptr @memset(ptr, i32, i64)

define i64 @lookup(i64 %i) {
  %at = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %at
  ret i64 %v
}
define i64 @count() {
  %p = load ptr, ptr @pointer
  %v = load i64, ptr %p
  %w = add i64 %v, 1
  store i64 %w, ptr %p
  ret i64 %w
}
define i64 @zero(i64 %i) {
  %at = getelementptr i64, ptr @zeros, i64 %i
  %v = load i64, ptr %at
  ret i64 %v
}
define i64 @call_other(i64 %i) {
  %v = call i64 @other(i64 %i)
  %w = add i64 %v, 1
  ret i64 %w
}
define void @fill(ptr %p, i64 %n) {
  call ptr @memset(ptr %p, i32 7, i64 %n)
  ret void
}
define ptr @memset_address() {
  ret ptr @memset
}
define i64 @pick(i64 %i) {
  switch i64 %i, label %d [ i64 0, label %a  i64 1, label %b  i64 2, label %c  i64 3, label %e  i64 4, label %f ]
a:
  ret i64 31
b:
  ret i64 -2
c:
  %x = call i64 @other(i64 9)
  ret i64 %x
e:
  ret i64 1000
f:
  %y = call i64 @other(i64 %i)
  ret i64 %y
d:
  ret i64 7
}
"""
TWO = "define i64 @other(i64 %i) {\n  %r = mul i64 %i, 3\n  ret i64 %r\n}\n"


def function(image: LoadedImage, name: str, *kinds: type, result: type = ctypes.c_int64):
    return ctypes.CFUNCTYPE(result, *kinds)(image.symbol(name))


@pytest.fixture(scope="module")
def image() -> LoadedImage:
    return load_image([compile_text(ONE), compile_text(TWO)])


def test_constants_data_and_zeros(image: LoadedImage) -> None:
    lookup = function(image, "lookup", ctypes.c_int64)
    assert [lookup(i) for i in range(4)] == [10, 20, 30, 40]
    count = function(image, "count")
    assert [count(), count()] == [6, 7]
    assert function(image, "zero", ctypes.c_int64)(999) == 0


def test_calls_across_objects_and_jump_tables(image: LoadedImage) -> None:
    assert function(image, "call_other", ctypes.c_int64)(5) == 16
    pick = function(image, "pick", ctypes.c_int64)
    assert [pick(i) for i in range(6)] == [31, -2, 27, 1000, 12, 7]


def test_imports_through_stub_and_table(image: LoadedImage) -> None:
    block = (ctypes.c_uint8 * 20)()
    function(image, "fill", ctypes.c_void_p, ctypes.c_int64, result=ctypes.c_int)(ctypes.addressof(block), 19)
    assert list(block) == [7] * 19 + [0]
    expected = ctypes.cast(ctypes.CDLL(None).memset, ctypes.c_void_p).value
    assert function(image, "memset_address", result=ctypes.c_void_p)() == expected


def test_own_imports_win() -> None:
    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    def other(i: int) -> int:
        return -i

    address = ctypes.cast(other, ctypes.c_void_p).value or 0
    image = load_image([compile_text(ONE)], {"other": address})
    assert function(image, "call_other", ctypes.c_int64)(5) == -4


def test_no_page_is_writable_and_executable(image: LoadedImage) -> None:
    access = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, mode, *_ = line.split()
        start, end = (int(x, 16) for x in span.split("-"))
        for name in ("lookup", "count"):
            if start <= image.symbol(name) < end:
                access[name] = mode
    assert access == {"lookup": "r-xp", "count": "r-xp"}
    item = parse_elf(compile_text(ONE))
    assert {s.segment for s in item.sections if s.size} == set(Segment)


def test_weak_definitions_yield() -> None:
    weak = compile_text(
        "define weak i64 @f() {\n  ret i64 1\n}\ndefine i64 @g() {\n  %r = call i64 @f()\n  ret i64 %r\n}"
    )
    strong = compile_text("define i64 @f() {\n  ret i64 2\n}")
    assert function(load_image([weak]), "g")() == 1
    assert function(load_image([weak, strong]), "g")() == 2


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["declare void @system(ptr)\ndefine void @f() {\n call void @system(ptr null)\n ret void\n}"], "'system'"),
        ([TWO, TWO], "'other' is defined in object 0 and in object 1"),
        (["@t = thread_local global i32 1\ndefine ptr @f() {\n ret ptr @t\n}"], "tdata|'t'"),
        (
            ["@llvm.global_ctors = appending global [1 x {i32, ptr, ptr}] [{i32, ptr, ptr} {i32 1, ptr @f, ptr null}]\n"
             "define void @f() {\n ret void\n}"],
            "constructors",
        ),
    ],
)  # fmt: skip
def test_what_an_image_may_not_have(texts: list[str], message: str) -> None:
    with pytest.raises(BadArtifact, match=message):
        load_image([compile_text(text) for text in texts])


def test_missing_symbol_is_named(image: LoadedImage) -> None:
    with pytest.raises(BadArtifact, match=r"'nothing'; it has .*lookup"):
        image.symbol("nothing")
    assert "lookup" in image
    assert "nothing" not in image


def test_other_machines_and_formats_are_refused() -> None:
    foreign = Machine.AARCH64 if parse_elf(support_object()).machine is Machine.X86_64 else Machine.X86_64
    with pytest.raises(BadArtifact, match=f"is code for {foreign.value}"):
        load_image([support_object(foreign)])
    for data in (b"", b"MZ" + bytes(100), b"\x7fELF"):
        with pytest.raises(BadArtifact, match="object 0"):
            load_image([data])


def test_unknown_relocation_is_named() -> None:
    large = compile_text("declare i64 @other(i64)\n" + "define ptr @f() {\n ret ptr @other\n}")
    item = parse_elf(large)
    kind = next(r.kind for s in item.sections for r in s.relocations)
    data = bytearray(large)
    at = large.index(struct.pack("<I", kind) + struct.pack("<I", _first_symbol(item)))
    data[at : at + 4] = struct.pack("<I", 250)
    with pytest.raises(BadArtifact, match="relocation type 250 for 'other'"):
        load_image([bytes(data)], {"other": 1})


def _first_symbol(item) -> int:
    return next(r.symbol for s in item.sections for r in s.relocations)


def test_images_are_unmapped() -> None:
    def mapped() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    objects = image_of()
    load_image(objects)
    before = mapped()
    for _ in range(50):
        load_image(objects)
    assert mapped() < before + 20


# ---------------------------------------------------------------------------------------------------------------------
# AArch64 can't run here: decode the patched instructions instead
# ---------------------------------------------------------------------------------------------------------------------

AARCH64 = """
@word = internal global i64 5
@wide = internal constant <2 x double> <double 1.0, double 2.0>
declare i64 @far(i64)
declare i64 @near(i64)
define i64 @load_word() {
  %v = load i64, ptr @word
  ret i64 %v
}
define ptr @word_address() {
  ret ptr @word
}
define ptr @far_address() {
  ret ptr @far
}
define <2 x double> @load_wide() {
  %v = load <2 x double>, ptr @wide
  ret <2 x double> %v
}
define i64 @calls(i64 %i) {
  %a = call i64 @far(i64 %i)
  %b = call i64 @near(i64 %a)
  ret i64 %b
}
"""
BASE, FAR = 0x7F12_3456_7000, 0x4321_0123_4560


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


class Code:
    """A linked AArch64 image and what its instructions refer to."""

    def __init__(self) -> None:
        texts = (AARCH64, "define i64 @near(i64 %i) {\n  ret i64 %i\n}")
        objects = [parse_elf(compile_text(text, Machine.AARCH64)) for text in texts]
        self.plan = plan(objects, Machine.AARCH64, {"far": FAR})
        self.memory = bytearray(self.plan.size)
        link(self.plan, memoryview(self.memory), BASE)

    def address(self, name: str) -> int:
        for file, item in enumerate(self.plan.objects):
            for index, symbol in enumerate(item.symbols):
                if symbol.name == name and isinstance(symbol.place, int):
                    return self.plan.address((file, index), BASE)
        raise AssertionError(name)

    def word(self, address: int, size: int = 4) -> int:
        return int.from_bytes(self.memory[address - BASE : address - BASE + size], "little")

    def instructions(self, name: str) -> list[tuple[int, int]]:
        start = self.address(name)
        return [(start + 4 * i, self.word(start + 4 * i)) for i in range(8)]

    def page_and_low(self, at: int, scale: int) -> int:
        adrp, low = self.word(at), self.word(at + 4)
        page = signed((adrp >> 5 & 0x7FFFF) << 2 | adrp >> 29 & 3, 21)
        assert adrp >> 24 & 0x9F == 0x90
        return ((at >> 12) + page << 12) + ((low >> 10 & 0xFFF) << scale)


def test_aarch64_addresses() -> None:
    code = Code()
    assert code.page_and_low(code.address("load_word"), 3) == code.address("word")
    assert code.page_and_low(code.address("word_address"), 0) == code.address("word")
    assert code.page_and_low(code.address("load_wide"), 4) % 16 == 0
    entry = code.page_and_low(code.address("far_address"), 3)
    assert code.word(entry, 8) == FAR


def test_aarch64_calls() -> None:
    code = Code()
    targets = [at + 4 * signed(w & 0x3FFFFFF, 26) for at, w in code.instructions("calls") if w >> 26 in (0x25, 0x05)]
    far, near = targets[:2]
    assert near == code.address("near")
    assert code.word(code.page_and_low(far, 3), 8) == FAR
    assert code.word(far + 8) == 0xD61F0200  # br x16
