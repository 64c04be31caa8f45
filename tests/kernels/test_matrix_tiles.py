"""Products of tiles by the matrix unit of x86: what they compute, when they are chosen, and who can read their names.

Code runs where the processor has the unit and the system grants it; elsewhere it is compiled, and found.
"""

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright import te
from tilewright.backend.cpu.image import assembly
from tilewright.base.dtypes import DType, bf16, f32, i8, i32, u8
from tilewright.base.errors import BadInput, ScheduleError
from tilewright.cost.analytic import open_space, schedule
from tilewright.kernels.dot_products import all_dot_products
from tilewright.kernels.matrix_tiles import MatrixTiles
from tilewright.kernels.tile_products import known_tile_product, tile_product
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Call
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.measure.build import Builder
from tilewright.measure.job import Job
from tilewright.ops.operator import require
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.target.target import Target
from tilewright.tensor.build import placeholder
from tilewright.tune.spaces import kernel_space, space_of

Array = NDArray[np.generic]

HOST = Target.host()
UNIT = Target.parse("x86_64,sapphirerapids,+amx-bf16,+amx-int8")
CONVOLUTION = "tdpbf16ps_s2_1_7_16_r3_3_3_8_2_a4_5_2m2p6_7m2p8_b0_4_5_6_7_3_8"
KINDS = [(bf16, bf16, f32, "tdpbf16ps"), (u8, i8, i32, "tdpbusd"), (i8, i8, i32, "tdpbssd")]
has_unit = pytest.mark.skipif(
    not {"amx-bf16", "amx-int8"} <= set(HOST.features), reason="needs AMX, and a kernel that grants it"
)


def drawn(dtype: DType, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    if dtype == bf16:
        return random.standard_normal(shape).astype(ml_dtypes.bfloat16)
    return random.choice([dtype.min, dtype.max, 0, 1, 77], shape).astype(dtype.numpy)


def packed(b: Array, columns: int, group: int) -> Array:
    """A matrix as tiles read it: in panels of columns, and groups of rows."""
    depth, width = b.shape
    return np.ascontiguousarray(b.reshape(depth // group, group, width // columns, columns).transpose(2, 0, 3, 1))


def tensorized(
    left: DType, right: DType, wide: DType, shape: tuple[int, int, int], intrinsic: TensorIntrinsic
) -> te.TeSchedule:
    """A product of matrices, tile by tile."""
    m, k, n = shape
    rows, columns = (int(str(extent)) for extent in intrinsic.description.params[-1].shape)
    group = 32 // left.bits
    a = te.placeholder((m, k), left, "A")
    b = te.placeholder((n // columns, k // group, columns, group), right, "B")
    ko, ki = te.reduce_axis((0, k // group), "ko"), te.reduce_axis((0, group), "ki")

    def body(i: te.Expr, j: te.Expr) -> object:
        x, y = a[i, ko.var * group + ki.var], b[j // columns, ko, j % columns, ki]
        return te.sum(te.cast(x, wide) * te.cast(y, wide), axis=(ko, ki))

    c = te.compute((m, n), body, name="C")
    s = te.create_schedule(c)
    tile = s.cache_write(c, "local")
    io, jo, ii, ji = s[c].tile(*c.op.axis, rows, columns)
    s[c].reorder(jo, io, ii, ji)
    s[tile].compute_at(s[c], io)
    s[tile].tensorize(tile.op.axis[0], intrinsic)
    s[c].vectorize(ji)
    return s


def exact(a: Array, b: Array) -> Array:
    wide = np.float64 if a.dtype == ml_dtypes.bfloat16 else np.int64
    return a.astype(wide) @ b.astype(wide)


@pytest.mark.parametrize(("left", "right", "wide", "name"), KINDS)
def test_descriptions_are_products_of_matrices(left: DType, right: DType, wide: DType, name: str) -> None:
    random = np.random.default_rng(0)
    intrinsic = tile_product(UNIT, left, right, rows=5, columns=16, depth=8)
    assert intrinsic.name.startswith(f"{name}_s5_16_")
    a, b = drawn(left, (10, 8), random), drawn(right, (8, 32), random)
    program = te.lower(tensorized(left, right, wide, (10, 8, 32), intrinsic))
    found = interpret(program, {"A": a, "B": packed(b, 16, 32 // left.bits)})["C"]
    np.testing.assert_allclose(found, exact(a, b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("left", "right", "wide", "name"), KINDS)
def test_there_is_code_for_processors_with_the_unit(left: DType, right: DType, wide: DType, name: str) -> None:
    intrinsic = tile_product(UNIT, left, right, rows=32, columns=32, depth=64)
    text = assembly(te.lower(tensorized(left, right, wide, (32, 64, 32), intrinsic)), UNIT)
    for instruction in ("ldtilecfg", "tileloadd", name, "tilestored", "tilerelease"):
        assert f"\t{instruction}" in text
    assert text.count(f"\t{name}\t") == 4


SIZES = [
    (32, 32, 64),
    (28, 32, 36),
    (49, 16, 34 * 2),
    (16, 80, 64),
    (2, 16, 8),
    (128, 32, 12),
    (17, 48, 132),
    (97, 32, 68),
    (67, 64, 32),
    (35, 32, 64),
    (80, 16, 64),
    (40, 96, 64),
    (20, 112, 36),
    (5, 128, 72),
]


@has_unit
@pytest.mark.parametrize(("rows", "columns", "depth"), SIZES)
@pytest.mark.parametrize(("left", "right", "wide", "name"), KINDS)
def test_code_is_what_descriptions_say(
    rows: int, columns: int, depth: int, left: DType, right: DType, wide: DType, name: str
) -> None:
    random = np.random.default_rng(rows * columns)
    intrinsic = tile_product(HOST, left, right, rows=rows, columns=columns, depth=depth)
    a, b = drawn(left, (2 * rows, depth), random), drawn(right, (depth, 2 * columns), random)
    built = te.build(tensorized(left, right, wide, (2 * rows, depth, 2 * columns), intrinsic), HOST)
    found = built(a, packed(b, columns, 32 // left.bits))
    np.testing.assert_allclose(found, exact(a, b), rtol=0, atol=1e-4 if wide == f32 else 0, err_msg=name)


def test_two_products_in_one_kernel() -> None:
    """LLVM's functions are declared once."""
    wide, sizes = i32, (16, 32)
    first, second = (tile_product(UNIT, u8, i8, rows=16, columns=16 * n, depth=64) for n in (1, 2))
    a, results = te.placeholder((16, 64), u8, "A"), list[te.Tensor]()
    for number, columns in enumerate(sizes):
        b = te.placeholder((16, columns, 4), i8, f"B{number}")
        ko, ki = te.reduce_axis((0, 16), "ko"), te.reduce_axis((0, 4), "ki")
        results.append(
            te.compute(
                (16, columns),
                lambda i, j, b=b, ko=ko, ki=ki: te.sum(
                    te.cast(a[i, ko.var * 4 + ki.var], wide) * te.cast(b[ko, j, ki], wide), axis=(ko, ki)
                ),
                name=f"C{number}",
            )
        )
    s = te.create_schedule(results)
    for result, intrinsic in zip(results, (first, second), strict=True):
        s[result].tensorize(result.op.axis[0], intrinsic)
    assert assembly(te.lower(s), UNIT).count("\ttilerelease") == 2


@has_unit
def test_denormal_numbers_count_as_zero() -> None:
    intrinsic = tile_product(HOST, bf16, bf16, rows=16, columns=16, depth=32)
    a, b = (
        np.full((16, 32), 2.0**-130).astype(ml_dtypes.bfloat16),
        np.full((32, 16), 2.0**100).astype(ml_dtypes.bfloat16),
    )
    built = te.build(tensorized(bf16, bf16, f32, (16, 32, 16), intrinsic), HOST)
    assert not np.any(built(a, packed(b, 16, 2)))


@has_unit
@pytest.mark.parametrize("rows", [16, 49, 96])
def test_asking_for_the_next_panel_changes_no_sum(rows: int) -> None:
    plain = tile_product(HOST, bf16, bf16, rows=rows, columns=32, depth=320)
    asking = known_tile_product(f"{plain.name}_ahead")
    assert asking is not None
    assert asking.name == f"{plain.name}_ahead"
    random = np.random.default_rng(rows)
    a, b = drawn(bf16, (rows, 320), random), packed(drawn(bf16, (320, 96), random), 32, 2)
    programs = [tensorized(bf16, bf16, f32, (rows, 320, 96), intrinsic) for intrinsic in (plain, asking)]
    assert "\tprefetcht1" in assembly(te.lower(programs[1]), HOST)
    found, expected = (te.build(s, HOST)(a, b) for s in programs)
    np.testing.assert_array_equal(found, expected)


def test_a_name_says_what_is_computed() -> None:
    for name in (CONVOLUTION, tile_product(UNIT, u8, i8, rows=49, columns=16, depth=64).name):
        made = known_tile_product(name)
        assert made is not None
        assert made.name == name
        assert all_dot_products().get(name) is made
    convolution = known_tile_product(CONVOLUTION)
    assert convolution is not None
    assert "f32(a[vx4, vx5, vi2 * 2 + vx6, vx7 * 2 + vx8])" in str(convolution.description)


def windows(name: str) -> tuple[te.TeSchedule, TensorIntrinsic]:
    """The product ``name`` as a whole program: windows of 3 rows of 28 numbers, every 8 numbers."""
    intrinsic = known_tile_product(name)
    assert intrinsic is not None
    a, b, _ = intrinsic.description.params
    left, right = (te.placeholder(tuple(p.shape), p.dtype, n) for p, n in ((a, "A"), (b, "B")))
    tap, pair, inner = (te.reduce_axis((0, extent), f"r{extent}") for extent in (3, 14, 2))

    def body(panel: te.Expr, i: te.Expr, j: te.Expr) -> object:
        x, y = left[tap.var, i * 8 + pair.var * 2 + inner.var], right[panel, tap.var, pair.var, j, inner.var]
        return te.sum(te.cast(x, f32) * te.cast(y, f32), axis=(tap, pair, inner))

    c = te.compute(tuple(intrinsic.description.params[-1].shape), body, name="C")
    s = te.create_schedule(c)
    s[c].tensorize(c.op.axis[0], intrinsic)
    return s, intrinsic


OVERLAPPING = "tdpbf16ps_s{}_{}_32_r3_14_2_a3_1m8p4m2p5_b0_3_4_2_5"


@has_unit
@pytest.mark.parametrize(("panels", "rows"), [(2, 20), (3, 37), (4, 16), (5, 70)])
def test_blocks_of_panels_and_rows_that_overlap(panels: int, rows: int) -> None:
    """As in a first convolution: pixels of four numbers, every second one of which begins a window of seven."""
    random = np.random.default_rng(panels)
    s, intrinsic = windows(OVERLAPPING.format(panels, rows))
    a, b = (drawn(bf16, tuple(int(str(e)) for e in p.shape), random) for p in intrinsic.description.params[:2])
    starts = np.lib.stride_tricks.sliding_window_view(a.astype(np.float64), 28, axis=1)[:, ::8]
    expected = np.einsum(
        "tik,pkjt->pij", starts, b.astype(np.float64).transpose(0, 2, 4, 3, 1).reshape(panels, 28, 32, 3)
    )
    np.testing.assert_allclose(te.build(s, HOST)(a, b), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "tdpbf16ps",
        "tdpbf16ps_s32_32_r384_2_a0_2m2p3",
        "tdpother_s32_32_r384_2_a0_2m2p3_b2_1_3",
        "tdpbf16ps_s32_17_r384_2_a0_2m2p3_b2_1_3",  # no whole tiles
        "tdpbf16ps_s32_32_r384_4_a0_2m4p3_b2_1_3",  # another group
        "tdpbf16ps_s32_32_r384_2_a0_2m2p9_b2_1_3",  # no such axis
        "tdpbf16ps_s32_32_r384_2_a0_2m2p3_b1_2_3",  # another layout
        "tdpbf16ps_s_r384_2_a0_2m2p3_b2_1_3",
        "tdpbf16ps_s1_32_r384_2_a0_2m2p3_b2_1_3",  # no rows
    ],
)
def test_other_names_are_none_of_these(name: str) -> None:
    assert known_tile_product(name) is None


def test_what_a_unit_has_not_is_refused() -> None:
    with pytest.raises(BadInput, match="columns in multiples of 16"):
        te.tile_product(UNIT, bf16, bf16, rows=32, columns=24, depth=64)
    with pytest.raises(BadInput, match="has no matrix unit for bf16 and bf16"):
        te.tile_product(Target.parse("x86_64,znver5"), bf16, bf16, rows=32, columns=32, depth=64)


def test_rows_of_the_panel_must_be_dense() -> None:
    intrinsic = tile_product(UNIT, u8, i8, rows=16, columns=16, depth=8)
    a, b = te.placeholder((16, 8), u8, "A"), te.placeholder((2, 16, 5), i8, "B")
    ko, ki = te.reduce_axis((0, 2), "ko"), te.reduce_axis((0, 4), "ki")

    def body(i: te.Expr, j: te.Expr) -> object:
        return te.sum(te.cast(a[i, ko.var * 4 + ki.var], i32) * te.cast(b[ko, j, ki], i32), axis=(ko, ki))

    c = te.compute((16, 16), body, name="C")
    s = te.create_schedule(c)
    with pytest.raises(ScheduleError, match="takes whole rows of b, and B has longer ones"):
        s[c].tensorize(c.op.axis[0], intrinsic)


# The compiler -------------------------------------------------------------------------------------------------------


def product(m: int, k: int, n: int, columns: int | None = None) -> Program:
    a, b = placeholder((m, k), u8, "a"), placeholder((n // 16, k // 4, 16, 4), i8, "b")
    return lower(require("DotProducts").apply([a, b], {"columns": columns or n})[0])


def called(program: Program) -> set[str]:
    return {stmt.callee.split("_")[0] for stmt in walk(program.body) if isinstance(stmt, Call)}


@pytest.mark.parametrize(
    ("rows", "columns", "unit"),
    [(64, 96, "tdpbusd"), (98, 90, "tdpbusd"), (97, 96, "tdpbusd"), (1, 96, "vpdpbusd"), (521, 96, "vpdpbusd")],
)
def test_the_compiler_chooses_a_unit_for_many_rows(rows: int, columns: int, unit: str) -> None:
    """Of 521 rows there are no tiles."""
    naive = product(rows, 64, 96, columns)
    assert called(schedule(Schedule(naive), UNIT).program) == {unit}
    (nest,) = open_space(Schedule(naive), UNIT).nests
    assert isinstance(nest, MatrixTiles) is (unit == "tdpbusd")


@pytest.mark.slow
def test_every_choice_computes_the_same() -> None:
    naive, random = product(32, 64, 32, 30), np.random.default_rng(0)
    arrays = {"a": drawn(u8, (32, 64), random), "b": drawn(i8, (2, 16, 16, 4), random)}
    expected, opened = interpret(naive, arrays), Schedule(naive)
    (tiles,) = open_space(opened, UNIT).nests
    assert isinstance(tiles, MatrixTiles)
    population = tiles.population()
    for place in range(0, len(population), 29):
        s = opened.copy()
        tiles.schedule(s, dict(zip(population.names, population[place], strict=True)))
        found = interpret(s.program, arrays)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)


def test_traces_and_texts_are_read_by_others() -> None:
    naive = product(64, 64, 96, 90)
    made = schedule(Schedule(naive), UNIT)
    trace = Trace.from_json(made.trace.to_json())
    assert replay(trace, naive, intrinsics=all_dot_products()).program == made.program
    objects = Builder(1 << 30).build(Job(str(naive), made.trace.to_json(), str(UNIT))).objects
    assert objects
    assert space_of(naive, UNIT).knobs == kernel_space(naive, UNIT).knobs
