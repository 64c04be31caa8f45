"""Dot-product instructions of all processors: their descriptions against NumPy, their code where it can run, and their
names in the code for processors that have them."""

import re
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright import te
from tilewright.backend.cpu.image import assembly
from tilewright.backend.cpu.llvm import compile_object
from tilewright.base.dtypes import DType, bf16, f32, i8, i16, i32, u8
from tilewright.base.processors import FEATURES
from tilewright.compilation import build_program
from tilewright.cost.analytic import schedule
from tilewright.kernels.dot_descriptions import group_of, has_limits, lanes_of, types_of
from tilewright.kernels.dot_products import all_dot_products, dot_products, product_of
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.ops.operator import require
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.objectfile import Segment
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Architecture, Target
from tilewright.tensor.build import placeholder

Array = NDArray[np.generic]

HOST = Target.host()
ALL = all_dot_products().intrinsics
NAMES = [one.name for one in ALL]
EDGES = {
    u8: [0, 1, 2, 127, 128, 254, 255],
    i8: [-128, -127, -1, 0, 1, 126, 127],
    i16: [-32768, -256, -1, 0, 1, 255, 32767],
}
STEPS = 6


def intrinsic_of(name: str) -> TensorIntrinsic:
    found = all_dot_products().get(name)
    assert found is not None
    return found


def features_of(intrinsic: TensorIntrinsic) -> tuple[str, ...]:
    assert intrinsic.update is not None
    return intrinsic.update.features


def drawn(dtype: DType, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """The least and the greatest numbers, and what is next to them."""
    if dtype == bf16:
        return random.standard_normal(shape).astype(ml_dtypes.bfloat16)
    return random.choice(EDGES[dtype], shape).astype(dtype.numpy)


def operands(intrinsic: TensorIntrinsic) -> dict[str, Array]:
    """Of ``STEPS`` updates; in the first ones all are as far from 0 as they can be."""
    random, lanes, group = np.random.default_rng(0), lanes_of(intrinsic), group_of(intrinsic)
    left, right, *more = types_of(intrinsic)[:-1]
    found = {"A": drawn(left, (STEPS, group), random), "B": drawn(right, (STEPS, lanes, group), random)}
    if more:
        found["D"] = drawn(more[0], (STEPS, group), random)
    for array in found.values():
        if array.dtype != ml_dtypes.bfloat16:
            array[0], array[1] = (np.iinfo(array.dtype).max, np.iinfo(array.dtype).min)
            array[2] = 255 if array.dtype == np.uint8 else -128
    return found


def expected(arrays: Mapping[str, Array], is_limited: bool = False) -> Array:
    wide = np.float64 if arrays["A"].dtype == ml_dtypes.bfloat16 else np.int64
    a, b = (arrays[name].astype(wide) for name in "AB")
    if is_limited:
        b = np.clip(b, -64, 64)
    if "D" not in arrays:
        sums = np.einsum("sk,sjk->j", a, b)
        return sums.astype(np.int32) if wide is np.int64 else sums  # modulo 2^32
    return np.einsum("sk,sjk->j", a, b & 15) + np.einsum("sk,sjk->j", arrays["D"].astype(wide), b >> 4)


def sums(intrinsic: TensorIntrinsic) -> te.TeSchedule:
    """``STEPS`` updates of one register."""
    lanes, group = lanes_of(intrinsic), group_of(intrinsic)
    left, right, *more, wide = types_of(intrinsic)
    a, b = te.placeholder((STEPS, group), left, "A"), te.placeholder((STEPS, lanes, group), right, "B")
    d = te.placeholder((STEPS, group), more[0], "D") if more else None
    ko, ki = te.reduce_axis((0, STEPS), "ko"), te.reduce_axis((0, group), "ki")

    def body(j: te.Expr) -> object:
        x, y = a[ko, ki], b[ko, j, ki]
        if has_limits(intrinsic.block):
            y = te.minimum(te.maximum(y, te.const(-64, i8)), te.const(64, i8))
        if d is None:
            return te.sum(te.cast(x, wide) * te.cast(y, wide), axis=(ko, ki))
        low, high = te.cast(y & te.const(15, u8), wide), te.cast(y >> te.const(4, u8), wide)
        return te.sum(te.cast(x, wide) * low + te.cast(d[ko, ki], wide) * high, axis=(ko, ki))

    c = te.compute((lanes,), body, name="C")
    s = te.create_schedule(c)
    s[c].reorder(ko, c.op.axis[0], ki)
    s[c].tensorize(c.op.axis[0], intrinsic)
    return s


@pytest.mark.parametrize("name", NAMES)
def test_descriptions_are_sums_of_products(name: str) -> None:
    intrinsic, arrays = intrinsic_of(name), operands(intrinsic_of(name))
    found = interpret(te.lower(sums(intrinsic)), arrays)["C"]
    exact = expected(arrays, has_limits(intrinsic.block))
    np.testing.assert_allclose(found, exact, atol=1e-4 if found.dtype == np.float32 else 0)


@pytest.mark.parametrize("name", NAMES)
def test_code_is_what_descriptions_say(name: str) -> None:
    """On this processor, as far as it has the instruction; for others, there is code."""
    intrinsic = intrinsic_of(name)
    features, arrays = features_of(intrinsic), operands(intrinsic)
    arch = next(arch for arch in Architecture if set(features) <= FEATURES[arch].keys())
    target = Target.of(arch, features=features)
    if arch is not HOST.arch or not set(features) <= set(HOST.features):
        assert name.partition("_")[0] in assembly(te.lower(sums(intrinsic)), target)
        return
    found = build_program(te.lower(sums(intrinsic)), target, threads=1).run(arrays)[0]
    exact = expected(arrays, has_limits(intrinsic.block))
    np.testing.assert_allclose(found, exact, atol=1e-4 if found.dtype == np.float32 else 0)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("sdot")])
def test_code_for_arm_in_an_emulator(name: str) -> None:
    intrinsic = intrinsic_of(name)
    arrays = operands(intrinsic)
    total = np.zeros(lanes_of(intrinsic), np.int32)
    for step in range(STEPS):
        total = emulated(intrinsic, [arrays[one][step] for one in "ABD" if one in arrays], total)
    np.testing.assert_array_equal(total, expected(arrays))


def emulated(intrinsic: TensorIntrinsic, given: list[Array], total: Array) -> Array:
    """One update by Unicorn, whose AArch64 has ``dotprod``; it has neither ``i8mm`` nor ``bf16``."""
    unicorn, arm64 = pytest.importorskip("unicorn"), pytest.importorskip("unicorn.arm64_const")
    code, begin, buffers = function_of(intrinsic), 0x10000, 0x40000
    machine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
    machine.ctl_set_cpu_model(arm64.UC_CPU_ARM64_MAX)
    machine.mem_map(begin, 0x10000)
    machine.mem_map(buffers, 0x10000)
    machine.mem_write(begin, code)
    places = [buffers + 256 * place for place in range(len(given) + 1)]
    for place, array in zip(places, (*given, total), strict=True):
        machine.mem_write(place, array.tobytes())
    for place, register in zip(places, ("X0", "X1", "X2", "X3"), strict=False):
        machine.reg_write(getattr(arm64, f"UC_ARM64_REG_{register}"), place)
    machine.reg_write(arm64.UC_ARM64_REG_LR, begin + 0x8000)
    machine.reg_write(arm64.UC_ARM64_REG_SP, buffers + 0x8000)
    machine.emu_start(begin, begin + 0x8000, count=1000)
    return np.frombuffer(bytes(machine.mem_read(places[-1], total.nbytes)), np.int32)


def function_of(intrinsic: TensorIntrinsic) -> bytes:
    """Code of a function of pointers to the operands, and to the accumulators."""
    assert intrinsic.update is not None
    types = re.search(r"define .*\((.*)\) \{", intrinsic.update.implementation)
    assert types is not None
    loaded = [one.rpartition(" ")[0] for one in re.split(r", (?=<)", types[1])]
    count, wide = len(loaded), loaded[-1]
    lines = [
        f"define void @f({', '.join(f'ptr %p{n}' for n in range(count))}) {{",
        *(f"%v{n} = load {one}, ptr %p{n}, align 1" for n, one in enumerate(loaded)),
        f"%r = call {wide} @{intrinsic.update.name}({', '.join(f'{one} %v{n}' for n, one in enumerate(loaded))})",
        f"store {wide} %r, ptr %p{count - 1}, align 1",
        "ret void",
        "}",
        intrinsic.update.implementation.replace("define ", "define internal ", 1),
    ]
    target = Target.of(Architecture.AARCH64, features=features_of(intrinsic))
    made = parse_elf(compile_object("\n".join(lines), target))
    (text,) = (one for one in made.sections if one.segment is Segment.CODE)
    assert not text.relocations
    return text.data


def product(target: Target, data: DType, rows: int = 64, columns: int = 128, depth: int = 64) -> Program:
    """A matrix product as the analytic model schedules it for ``target``."""
    lanes = target.lanes(32)
    group = 32 // data.bits
    shape = -(-columns // lanes), depth // group, lanes, group
    a, b = placeholder((rows, depth), data, "a"), placeholder(shape, i8, "b")
    naive = lower(require("DotProducts").apply([a, b], {"columns": columns})[0])
    return schedule(Schedule(naive), target).program


PROCESSORS = {
    "x86_64,alderlake": (u8, r"vpdpbusd\t.*%ymm", r"zmm|pmadd"),
    "x86_64,x86-64-v3": (u8, r"vpmaddwd\t.*%ymm", r"zmm|vpdp|imull"),
    "x86_64,haswell": (i8, r"vpmaddwd\t.*%ymm", r"zmm|vpdp|imull"),
    "x86_64,znver3": (i16, r"vpmaddwd\t.*%ymm", r"zmm|vpdp|imull|vpand|vps[rl]"),
    "x86_64,x86-64-v2": (u8, r"\tpmaddwd\t.*%xmm", r"[yz]mm|\tv|imull"),
    "x86_64,skylake-avx512": (u8, r"vpmaddwd\t.*%zmm", r"vpdp|imull"),
    "aarch64,neoverse-n1": (i8, r"\tsdot\t", r"usdot|\tsmull|\tmla|\tsub\tv"),
    "aarch64,cortex-a76": (u8, r"\tsdot\t", r"usdot|\tsmull|\tmla"),
    "aarch64,neoverse-v1": (u8, r"\tusdot\t", r"\tsdot|\tsmull|\tmla|\teor\tv"),
    "aarch64,apple-m2": (i8, r"\tsdot\t", r"usdot|\tsmull|\tmla"),
}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_instructions_in_the_code_for_a_processor(processor: str) -> None:
    data, wanted, forbidden = PROCESSORS[processor]
    target = Target.parse(processor)
    lines = assembly(product(target, data), target).splitlines()
    at = [place for place, line in enumerate(lines) if re.search(wanted, line)]
    assert len(at) >= 16, "a tile is written out"
    assert not [line for line in lines if re.search(forbidden, line)]
    loop = lines[at[0] : next(place for place in range(at[7], len(lines)) if re.match(r"\t(j|b\.)", lines[place]))]
    assert not [line for line in loop if "%rsp" in line or "[sp" in line], "accumulators stay in registers"


@pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64-v2", "skylake-avx512"])
@pytest.mark.parametrize("data", [u8, i8, i16])
def test_products_on_older_processors(processor: str, data: DType) -> None:
    target = Target.parse(f"x86_64,{processor}")
    if not set(target.features) <= set(HOST.features):
        pytest.skip(f"this machine is no {processor}")
    random, lanes = np.random.default_rng(0), target.lanes(32)
    a, b = drawn(data, (13, 64), random), drawn(i8, (64, 96), random)
    group = 32 // data.bits
    packed = np.ascontiguousarray(b.reshape(64 // group, group, 96 // lanes, lanes).transpose(2, 0, 3, 1))
    found = build_program(product(target, data, 13, 94), target, threads=1).run({"a": a, "b": packed})[0]
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32)[:, :94])


def test_each_processor_has_the_best_of_each_product() -> None:
    found = {text: [i.name for i in dot_products(Target.parse(text)).intrinsics] for text in (*PROCESSORS, "x86_64")}
    assert found["x86_64"] == []
    assert found["x86_64,x86-64-v3"] == [
        "pmaddubsw_ymm",
        "pmaddwd_ymm",
        "pmaddwd_signed_ymm",
        "pmaddwd_bytes_ymm",
        "pmaddwd_words_ymm",
        "pmaddwd_pairs_ymm",
        "pmaddubsw_nibbles_ymm",
    ]
    assert found["x86_64,alderlake"][0] == "vpdpbusd_ymm"
    assert found["aarch64,neoverse-n1"] == ["sdot", "sdot_nibbles", "sdot_unsigned", "sdot_bytes"]
    assert found["aarch64,neoverse-v1"] == ["usdot", "sdot", "usdot_bytes", "sdot_nibbles", "bfdot"]
    assert not dot_products(Target.parse("riscv64")).intrinsics
    assert product_of(Target.parse("x86_64,znver3"), bf16, bf16, f32) is None
    assert product_of(Target.parse("aarch64,apple-m1"), u8, i8, i32) == intrinsic_of("sdot_unsigned")
