"""Products of an open number of rows by the matrix unit of x86: what they compute for each number of rows, in code too.

The unit's instructions are functions of Python here (``tile_emulator``), which check what Intel's manual says of them,
and that nothing outside of the operands is touched.
"""

import ctypes
import re
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

import tilewright
from tests.kernels.tile_emulator import Emulated
from tilewright import te
from tilewright.backend.cpu.image import assembly, listing
from tilewright.backend.reference.machine import run_reference
from tilewright.base.dtypes import DType, bf16, f32, i8, i32, u8
from tilewright.base.errors import ScheduleError
from tilewright.cost.analytic import open_space, schedule
from tilewright.cost.few_rows import few_rows
from tilewright.cost.model import least_cycles
from tilewright.kernels.dot_products import all_dot_products
from tilewright.kernels.matrix_tiles import MatrixTiles
from tilewright.kernels.tile_products import known_tile_product
from tilewright.loops.interpreter import Order, interpret
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.runtime.memory import aligned_array
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.target.target import Target
from tilewright.tensor.ir import Reduction

Array = NDArray[np.generic]

UNIT = Target.parse("x86_64,sapphirerapids,+amx-bf16,+amx-int8")
ALONE = replace(UNIT, machine=replace(UNIT.machine, parallel_work=1 << 40))
"""Without parallel loops."""
KINDS = {"tdpbf16ps": (bf16, bf16, f32), "tdpbusd": (u8, i8, i32), "tdpbssd": (i8, i8, i32)}
PRODUCT = "{}_s{}_{}_r{}_{}_a0_2m{}p3_b2_1_3_open"


def drawn(dtype: DType, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    made = aligned_array(shape, dtype.numpy)
    if dtype.is_float:
        made[...] = random.standard_normal(shape).astype(dtype.numpy)
    else:
        made[...] = random.choice([dtype.min, dtype.max, 0, 1, 77], shape).astype(dtype.numpy)
    return made


def exact(a: Array, b: Array) -> NDArray[np.float64]:
    """The product of ``a`` and of a matrix in panels of groups. Sums of bytes are whole numbers in float64, too."""
    depth = b.shape[-3] * b.shape[-1]
    columns = np.moveaxis(b.reshape(-1, *b.shape[-3:]), -1, -2).transpose(1, 2, 0, 3)
    return a.astype(np.float64) @ columns.reshape(depth, -1).astype(np.float64)


def product(rows: int | None, depth: int, columns: int, unit: str = "tdpbf16ps") -> Program:
    """A product with twice a number for each column added, for any number of rows by default."""
    left, right, wide = KINDS[unit]
    group, m = 32 // left.bits, te.var("m") if rows is None else rows
    a = te.placeholder((m, depth), left, "A")
    b = te.placeholder((columns // 32, depth // group, 32, group), right, "B")
    bias = te.placeholder((columns,), wide, "D")
    ko, ki = te.reduce_axis((0, depth // group), "ko"), te.reduce_axis((0, group), "ki")

    def body(i: te.Expr, j: te.Expr) -> Reduction:
        x, y = a[i, ko.var * group + ki.var], b[j // 32, ko.var, j % 32, ki.var]
        return te.sum(te.cast(x, wide) * te.cast(y, wide), axis=(ko, ki))

    c = te.compute((m, columns), body, name="C")
    return te.lower(te.create_schedule(te.compute((m, columns), lambda i, j: c[i, j] + bias[j] * 2, name="E")))


def nest_of(naive: Program, target: Target = UNIT) -> MatrixTiles:
    (nest,) = open_space(Schedule(naive), target).nests
    assert isinstance(nest, MatrixTiles)
    return nest


# Functions on memory --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", KINDS)
@pytest.mark.parametrize(("most", "columns"), [(160, 16), (96, 32), (64, 64), (48, 80)])
def test_code_for_each_number_of_rows(unit: str, most: int, columns: int) -> None:
    """With blocks of one to five tiles, whose last has each height; none for no rows."""
    left, right, wide = KINDS[unit]
    group, steps, random = 32 // left.bits, 24, np.random.default_rng(most)
    name = PRODUCT.format(unit, most, columns, steps, group, group)
    intrinsic = known_tile_product(name)
    assert intrinsic is not None and intrinsic.compute is not None
    emulated = Emulated(intrinsic.compute.implementation)
    long, pointer = ctypes.c_int64, ctypes.c_void_p
    function = emulated.function(name, pointer, long, pointer, long, long, pointer, long, long)
    b = drawn(right, (steps, columns, group), random)
    for rows in range(71):
        a, c = drawn(left, (rows, steps * group), random), aligned_array((rows, columns), wide.numpy)
        emulated.unit.allow([a, b], [c])
        sizes = (a.ctypes.data, steps * group, b.ctypes.data, columns * group, group, c.ctypes.data, columns)
        emulated.unit.log.clear()
        function(*sizes, rows)
        emulated.unit.check()
        assert emulated.unit.log.count("ldtilecfg") == (rows >= most_at_once(columns)) + (
            rows % most_at_once(columns) > 0
        )
        np.testing.assert_allclose(c.astype(np.float64), exact(a, b), rtol=0, atol=1e-4)


def most_at_once(columns: int) -> int:
    return {16: 80, 32: 32, 64: 32, 80: 16}[columns]


def test_code_asks_for_the_next_panel_in_whole_blocks() -> None:
    name = f"{PRODUCT.format('tdpbf16ps', 64, 32, 64, 2, 2)}_ahead"
    made = known_tile_product(name)
    assert made is not None and made.name == name and made.compute is not None
    text = made.compute.implementation
    # A step reads 32 lines: 16 groups of both tiles of columns. Each of two blocks of rows asks for half of them.
    assert text.count("call void @llvm.prefetch") == 16


@pytest.mark.parametrize(
    "name",
    [
        "tdpbf16ps_s48_32_r8_2_a0_2m2p3_b2_1_3_open",  # no whole blocks
        "tdpbf16ps_s32_32_r8_2_a0m2_2m2p3_b2_1_3_open",  # every other row
        "tdpbf16ps_s32_32_r8_2_a0p2_2m2p3_b2_1_3_open",
    ],
)
def test_other_names_are_none_of_these(name: str) -> None:
    assert known_tile_product(name) is None


# Kernels --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", KINDS)
def test_kernels_for_each_number_of_rows(unit: str) -> None:
    """Whole kernels, of several tiles of rows and columns, with what follows the product."""
    naive, random = product(None, 64, 64, unit), np.random.default_rng(0)
    s, nest = Schedule(naive), nest_of(naive, ALONE)
    open_space(s, ALONE)
    nest.schedule(s, {"lanes": 32, "rows": 32, "panels": 1, "order": 0, "ahead": 1})
    assert f"{unit}_s32_32" in str(s.program) and "_open_ahead" in str(s.program)
    emulated, (left, right, wide) = Emulated(listing(s.program, ALONE)), KINDS[unit]
    b, bias = drawn(right, (2, 64 * left.bits // 32, 32, 32 // left.bits), random), drawn(wide, (64,), random)
    for rows in range(71):
        a, e = drawn(left, (rows, 64), random), aligned_array((rows, 64), wide.numpy)
        emulated.run(s.program.name, [a, b, bias, e], [rows])
        with np.errstate(over="ignore"):
            expected = exact(a, b).astype(wide.numpy) + bias * 2 if wide == i32 else exact(a, b) + bias * 2.0
        np.testing.assert_allclose(e, expected, rtol=0, atol=1e-4)


MORE_ROWS = (2, 15, 16, 31, 32, 33, 37)
"""The interpreters take half a minute for each of these; all numbers of rows are emulated above."""


@pytest.mark.parametrize("rows", [0, 1, 17, *(pytest.param(rows, marks=pytest.mark.slow) for rows in MORE_ROWS)])
def test_what_is_scheduled_means_the_same(rows: int) -> None:
    """By both interpreters, which check that parallel loops do not depend on their order."""
    naive, random = product(None, 32, 32), np.random.default_rng(rows)
    s, nest = Schedule(naive), nest_of(naive)
    open_space(s, UNIT)
    nest.schedule(s, {"lanes": 32, "rows": 32, "panels": 1, "order": 1, "ahead": 0})
    arrays = {"A": drawn(bf16, (rows, 32), random), "B": drawn(bf16, (1, 16, 32, 2), random)}
    arrays["D"] = drawn(f32, (32,), random)
    expected = interpret(naive, arrays)["E"]
    np.testing.assert_array_equal(interpret(s.program, arrays, order=Order.SHUFFLED)["E"], expected)
    found, report = run_reference(s.program, arrays)
    report.check()
    np.testing.assert_array_equal(found["E"], expected)


def test_a_call_without_an_implementation_is_its_description() -> None:
    made, random = schedule(Schedule(product(None, 32, 32)), ALONE).program, np.random.default_rng(0)
    (intrinsic,) = made.intrinsics
    bare = replace(made, intrinsics=(replace(intrinsic, implementation="", features=()),))
    a, b, bias = drawn(bf16, (300, 32), random), drawn(bf16, (1, 16, 32, 2), random), drawn(f32, (32,), random)
    emulated, e = Emulated(listing(bare, ALONE)), aligned_array((300, 32), np.dtype(np.float32))
    emulated.run(bare.name, [a, b, bias, e], [300])
    assert not emulated.unit.log
    np.testing.assert_allclose(e, exact(a, b) + bias * 2.0, rtol=0, atol=1e-5)


NAMES = ("ldtilecfg", "tdpbf16ps", "tilerelease")


def test_instructions_of_a_processor_with_the_unit() -> None:
    """A configuration for whole blocks and two for the rest; one release behind all."""
    text = assembly(schedule(Schedule(product(None, 64, 64)), UNIT).program, UNIT)
    function = text[text.index("_open_ahead:") : text.index("retq")]
    assert [len(re.findall(rf"\t{name}\b(?!_)", function)) for name in NAMES] == [3, 4 + 2 + 4, 1]
    assert function.rindex("\ttilerelease") > function.rindex("\ttilestored")


def test_traces_and_texts_are_read_by_others() -> None:
    naive = product(None, 64, 64)
    made = schedule(Schedule(naive), UNIT)
    assert replay(Trace.from_json(made.trace.to_json()), naive, intrinsics=all_dot_products()).program == made.program
    assert parse_program(str(made.program), made.program.intrinsics) == made.program


def test_a_last_tile_that_is_lower_needs_an_intrinsic_for_it() -> None:
    naive = product(None, 64, 64)
    s = Schedule(naive)
    nest = nest_of(naive)
    open_space(s, UNIT)
    closed = replace(nest, open_rows=None)
    with pytest.raises(ScheduleError, match="split by factors that divide the extents"):
        closed.schedule(s, {"lanes": 32, "rows": 32, "panels": 1, "order": 0, "ahead": 0})


# What is chosen -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [16, 48, 128, 200, 256, 300])
def test_an_open_number_of_rows_costs_what_it_costs_if_it_is_known(rows: int) -> None:
    """For the same tiles; nothing else about the choice is compared."""
    opened, known = nest_of(product(None, 768, 768)), nest_of(product(rows, 768, 768))
    assert least_cycles(opened.of_rows(rows), UNIT) == pytest.approx(least_cycles(known, UNIT), rel=0.1)


def test_few_rows_are_computed_without_the_unit() -> None:
    naive = product(None, 64, 64)
    made = schedule(Schedule(naive), UNIT).program
    few = few_rows(naive, made, UNIT)
    assert few is not None
    assert str(few.where) == "m < 16"
    assert not few.target.has("amx-bf16") and few.target.has("amx-int8") and few.target.has("avx512bf16")
    assert few_rows(naive, schedule(Schedule(naive), few.target).program, few.target) is None
    known = product(64, 64, 64)
    assert few_rows(known, schedule(Schedule(known), UNIT).program, UNIT) is None


# Models ---------------------------------------------------------------------------------------------------------------


def network(rows: str, random: np.random.Generator) -> onnx.ModelProto:
    made = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        net (float[{rows}, 32] x) => (float[{rows}, 64] y)
        {{ h = Relu(x)  p = MatMul(h, w)  q = Add(p, b)  r = MatMul(q, v)  y = Neg(r) }}"""
    )
    for name, shape in (("w", (32, 32)), ("b", (32,)), ("v", (32, 64))):
        array = random.normal(0, 0.2, shape).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


def calls_of(program: Program) -> set[str]:
    return {intrinsic.name.split("_")[0] for intrinsic in program.intrinsics}


@pytest.mark.parametrize("rows", ["R", "B, R"])
def test_models_of_open_rows(rows: str, tmp_path: Path) -> None:
    """What their kernels compute, by the interpreter, against NumPy; few rows have kernels without the unit."""
    random = np.random.default_rng(0)
    model = tilewright.compile(network(rows, random), precision="bf16", target=UNIT, dynamic="symbolic")
    kernels = {kernel.program.name: kernel for kernel in model.compiled.kernels}
    products = [kernel for kernel in kernels.values() if "tdpbf16ps" in calls_of(kernel.program)]
    assert len(products) == 2
    for kernel in products:
        single, few = kernel.variants
        assert not single.program.dims and str(few.where) == f"n{rows.count(',')} < 16"
        assert {*calls_of(single.program), *calls_of(few.program)} == {"vdpbf16ps"}
    model.save(tmp_path / "m.tw", signed=False)
    x = random.normal(size=(1,) * rows.count(",") + (19, 32)).astype(np.float32)
    found = by_interpreter(model, x)
    weights = {w.name: numpy_helper.to_array(w) for w in network(rows, np.random.default_rng(0)).graph.initializer}
    h = rounded(np.maximum(x, 0))
    q = rounded((h.astype(np.float64) @ rounded(weights["w"]) + weights["b"]).astype(np.float32))
    expected = -(q.astype(np.float64) @ rounded(weights["v"]))
    assert np.linalg.norm(found - expected) < 1e-2 * np.linalg.norm(expected)


def rounded(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    return numbers.astype(ml_dtypes.bfloat16).astype(np.float32)


def by_interpreter(model: tilewright.CompiledModel, x: NDArray[np.float32]) -> Array:
    """Main and the kernels as scheduled, without variants."""
    main = model.compiled.main
    programs = {kernel.program.name: kernel.program for kernel in model.compiled.kernels}
    constants = dict(zip((p.name for p in main.inputs[1:]), model.executable.constants, strict=True))
    return next(iter(interpret(main, {main.inputs[0].name: x, **constants}, programs=programs).values()))


def test_an_open_number_of_bytes_uses_the_unit() -> None:
    made = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        net (uint8[R, 100] x) => (int32[R, 48] y) { y = MatMulInteger(x, w, a, b) }"""
    )
    arrays = {"w": np.ones((100, 48), np.int8), "a": np.uint8(200), "b": np.int8(-3)}
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items())
    model = tilewright.compile(made, target=UNIT)
    assert any("tdpbusd" in calls_of(kernel.program) for kernel in model.compiled.kernels)
