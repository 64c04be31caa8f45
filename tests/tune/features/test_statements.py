"""Features of statements: numbers that are known, numbers that running the loops gives, all schedules of sketches."""

from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from math import log2, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loops.workloads import argmax, conv2d_padded, cumsum, insertion_sort, matmul, welford
from tilewright.base.dtypes import i32
from tilewright.base.errors import ScheduleError, Unsupported
from tilewright.loops.ir import Block, Buffer, Call, Callee, Loop, Stmt, Store
from tilewright.loops.lower import lower
from tilewright.loops.memory import LOCAL
from tilewright.loops.program import Program
from tilewright.loops.visit import children
from tilewright.schedule.intrinsics import decl_tensor_intrin
from tilewright.schedule.schedule import Schedule
from tilewright.sketch import sketch_spaces
from tilewright.symbolic.check import checked_index
from tilewright.symbolic.expr import Binary, Const, Expr, Extent, Var, equal, maximum
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import reads_in
from tilewright.target.target import Target
from tilewright.tensor import build as te
from tilewright.tensor import functions as fn
from tilewright.tensor.ir import Tensor
from tilewright.tune.features.operations import Mode
from tilewright.tune.features.sites import sites
from tilewright.tune.features.statements import NAMES, program_matrix, statement_features, statement_numbers
from tilewright.tune.features.touched import LINE, touched

TARGET = Target.parse("x86_64,znver4,cores=8")


def numbers(program: Program, mode: Mode = Mode.REPAIRED) -> list[dict[str, float]]:
    """Of each statement, by name."""
    rows = statement_numbers(program, TARGET, mode).tolist()
    return [dict(zip(NAMES, row, strict=True)) for row in rows]


def accessed(features: Mapping[str, float], place: int) -> dict[str, float]:
    """Those of one of the five buffers."""
    head = f"buffer{place}."
    return {name.removeprefix(head): value for name, value in features.items() if name.startswith(head)}


def chosen(features: Mapping[str, float], group: str) -> str:
    """The position of which the feature is 1."""
    (found,) = (n for n in NAMES if n.startswith(f"{group}.is_") and features[n])
    return found.removeprefix(f"{group}.is_")


# --- numbers that are known --------------------------------------------------------------------------------------


def tiled_matmul() -> Schedule:
    s = Schedule(lower(matmul(512, 512, 512)))
    i, j, k = s.get_loops("C")
    io, ii = s.split(i, (None, 16))
    jo, ji = s.split(j, (None, 8))
    s.reorder(io, jo, k, ji, ii)
    return s


def test_there_are_164_with_a_name_each() -> None:
    assert len(NAMES) == len(set(NAMES)) == 164
    assert statement_features(tiled_matmul().program, TARGET).shape == (1, 164)


def test_the_matrix_product_of_the_paper() -> None:
    (features,) = numbers(tiled_matmul().program)
    of_c, of_b = (accessed(features, place) for place in (0, 2))
    assert of_c["is_read_and_written"] == 1
    assert of_c["bytes"] == 512**3 * 4
    assert (of_c["distance"], of_c["distance_bytes"], of_c["reuses"]) == (128, (128 + 8 + 16) * 4, 512)
    assert of_c["bytes_per_reuse"] == 512**2 * 4
    assert of_c["reused_in_loop"] == 1
    assert of_b["unique_bytes"] == 512**2 * 4
    assert of_b["stride"] == 0
    assert features["op.float_mad"] == 512**3
    assert features["outer.iterations"] == 512**3
    assert features["outer.loops"] == 5
    assert features["intensity.9"] == pytest.approx(2 * 512**3 / (3 * 512**2 * 4))
    assert features["intensity.0"] == pytest.approx(np.interp(2.8, [5, 8], [32 / 132, 256 / 608]))


def test_features_are_logarithms() -> None:
    program = tiled_matmul().program
    row = dict(zip(NAMES, statement_features(program, TARGET)[0].tolist(), strict=True))
    assert row["buffer0.bytes"] == pytest.approx(log2(512**3 * 4 + 1))
    assert row["buffer0.is_read_and_written"] == 1
    assert row["buffer0.is_read"] == 0


def test_annotations() -> None:
    s = tiled_matmul()
    io, jo, k, ji, ii = s.get_loops("C")
    s.reorder(io, jo, k, ii, ji)
    s.parallel(io)
    s.parallel(jo)
    s.unroll(k)
    s.unroll(ii)
    s.vectorize(ji)
    (features,) = numbers(s.program)
    assert [features[f"parallel.{name}"] for name in ("count", "product", "length")] == [2, 32 * 64, 64]
    assert [features[f"unroll.{name}"] for name in ("count", "product", "length")] == [2, 16 * 512, 16]
    assert [features[f"vectorize.{name}"] for name in ("count", "product", "length")] == [1, 8, 8]
    assert chosen(features, "parallel") == "middle_spatial"
    assert chosen(features, "unroll") == "middle_spatial"
    assert chosen(features, "vectorize") == "inner_spatial"
    assert features["outer.vectors"] == 16 * 512 * 1


@pytest.mark.parametrize(
    ("order", "unrolled", "position"),
    [
        ("io jo ko ki ii ji", "io", "outer_spatial"),
        ("io jo ko ki ii ji", "ko", "outer_reduce"),
        ("io jo ko ki ii ji", "ki", "inner_reduce"),
        ("ko io jo ii ji ki", "ji", "inner_spatial"),
        ("ko io jo ii ji ki", "ii", "middle_spatial"),
    ],
)
def test_positions(order: str, unrolled: str, position: str) -> None:
    s = Schedule(lower(matmul(16, 16, 16)))
    s.tile(("i", "j", "k"), (4, 4, 4), names=("io", "jo", "ko", "ii", "ji", "ki"))
    s.reorder(*order.split())
    s.unroll(unrolled)
    assert chosen(numbers(s.program)[0], "unroll") == position
    assert chosen(numbers(s.program, Mode.COMPAT)[0], "unroll") == "mixed"
    assert chosen(numbers(s.program)[0], "parallel") == "none"
    assert chosen(numbers(s.program, Mode.COMPAT)[0], "parallel") == "none"


def test_a_loop_of_both_kinds_is_mixed_and_a_middle_one_is_between() -> None:
    s = Schedule(lower(matmul(16, 16, 16)))
    s.unroll(s.fuse("j", "k"))
    assert chosen(numbers(s.program)[0], "unroll") == "mixed"
    s = Schedule(lower(matmul(16, 16, 64)))
    s.split("k", (None, 4, 4), names=("ko", "km", "ki"))
    s.unroll("km")
    assert chosen(numbers(s.program)[0], "unroll") == "middle_reduce"


def test_a_loop_that_no_axis_follows_is_outermost() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((8, 16), lambda i, j: b[j] * 2.0, name="C")
    s = Schedule(lower(c))
    s.compute_at("B", s.get_loops("C")[0])
    s.parallel(s.get_loops("C")[0])
    producer, consumer = numbers(s.program)
    assert chosen(producer, "parallel") == chosen(consumer, "parallel") == "outer_spatial"


def test_multiply_adds_are_two_operations_in_what_was_released() -> None:
    (features,) = numbers(lower(matmul(4, 5, 6)), Mode.COMPAT)
    found = {name: value for name, value in features.items() if name.startswith("op.") and value}
    assert found == {"op.float_addsub": 120, "op.float_mul": 120}
    (repaired,) = numbers(lower(matmul(4, 5, 6)))
    assert [features[f"intensity.{n}"] for n in range(10)] == [repaired[f"intensity.{n}"] for n in range(10)]


def test_operations() -> None:
    x, n = te.placeholder((8,), name="X"), te.placeholder((8,), i32, name="N")
    value = te.compute(
        (8,),
        lambda i: te.select((x[i] > 0.0) & equal(n[i], 1), maximum(x[i], 1.0) / x[i] - x[i], fn.exp(x[i]) * 2.0),
        name="V",
    )
    (features,) = numbers(lower(value))
    found = {name.removeprefix("op."): v / 8 for name, v in features.items() if name.startswith("op.") and v}
    wanted = {"float_addsub": 1, "float_mul": 1, "float_divmod": 1, "float_cmp": 2, "float_math": 1}
    assert found == {**wanted, "int_cmp": 1, "bool": 1, "select": 1}


def test_integers_count_apart() -> None:
    (features,) = numbers(lower(matmul(4, 5, 6, i32)))
    assert features["op.int_mad"] == 120
    assert features["op.float_mad"] == features["intensity.9"] == 0


def test_what_another_statement_makes_is_used_again() -> None:
    a = te.placeholder((64, 16), name="A")
    b = te.compute((64, 16), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((64, 16), lambda i, j: b[i, j] * 2.0, name="C")
    s = Schedule(lower([b, c]))
    s.reverse_compute_at("C", s.get_loops("B")[0])
    producer, _ = numbers(s.program)
    (made,) = (accessed(producer, n) for n in range(5) if accessed(producer, n)["is_written"])
    (read,) = (accessed(producer, n) for n in range(5) if accessed(producer, n)["is_read"])
    # In an iteration of the common loop, 16 elements are written, then read; two statements touch 64 of four buffers.
    assert made["reused_by_statements"] == 1
    assert (made["distance"], made["distance_bytes"], made["reuses"]) == (16 / 1, 4 * 64 * 16 * 4 / 64, 1)
    assert read["not_reused"] == 1
    assert (read["distance"], read["distance_bytes"], read["reuses"]) == (0, 0, 0)
    assert read["bytes_per_reuse"] == 2 * 64 * 16 * 4


def test_allocations() -> None:
    s = Schedule(lower(matmul(64, 64, 64)))
    s.cache_write("C", "C", LOCAL)
    io, _ = s.split(s.get_loops("C_copy")[0], (None, 8))
    s.compute_at("C", io)
    summed, copied = numbers(s.program)
    of_local = {name: summed[f"allocated.{name}"] for name in ("bytes", "elements", "times", "iterations")}
    assert of_local == {"bytes": 8 * 64 * 4, "elements": 64 * 64, "times": 8, "iterations": 8 * 64 * 64}
    assert copied["allocated.bytes"] == copied["allocated.times"] == 0


def test_lengths_of_a_grid() -> None:
    s = tiled_matmul()
    io, jo, *_ = s.get_loops("C")
    assert numbers(s.program)[0]["gpu.is_gpu"] == 0
    s.bind(io, "blockIdx.x")
    s.bind(jo, "threadIdx.y")
    (features,) = numbers(s.program)
    assert {n: v for n, v in features.items() if n.startswith("gpu.") and v != 1} == {
        "gpu.block_x": 32,
        "gpu.thread_y": 64,
    }


def test_a_call_of_an_intrinsic_does_what_its_loops_did() -> None:
    w, x = te.placeholder((4, 4), name="w"), te.placeholder((4, 4), name="x")
    k = te.reduce_axis((0, 4), name="k")
    y = te.compute((4, 4), lambda i, j: te.sum(w[i, k] * x[k, j], axis=k), name="y")
    s = Schedule(lower(matmul(8, 8, 8)))
    s.tile(("i", "j", "k"), (4, 4, 4), names=("io", "jo", "ko", "ii", "ji", "ki"))
    (loops,) = numbers(s.program)
    s.tensorize("ii", decl_tensor_intrin(y, "gemm", reset="gemm_reset", update="gemm_update"))
    calls = numbers(s.program)[-1]
    kept = [name for name in NAMES if name.startswith("op.")]
    assert [calls[name] for name in kept] == [loops[name] for name in kept]
    for place in range(5):
        assert accessed(calls, place)["unique_bytes"] == accessed(loops, place)["unique_bytes"]
    assert calls["outer.loops"] == 3


def test_run_time_extents_are_as_large_as_they_may_be() -> None:
    n = Extent("n")
    (features,) = numbers(lower(matmul(n, 16, 16)))
    assert features["outer.iterations"] == 128 * 16 * 16
    (bounded,) = numbers(lower(matmul(n, 16, 16), dims={"n": 40}))
    assert bounded["outer.iterations"] == 40 * 16 * 16


def test_data_may_be_anywhere() -> None:
    table, ids = te.placeholder((100, 16), name="T"), te.placeholder((8,), i32, name="I")
    rows = te.compute((8, 16), lambda i, j: table[checked_index(ids[i], 100, "Rows.ids"), j], name="R")
    (features,) = numbers(lower(rows))
    sizes = sorted(accessed(features, place)["unique_bytes"] for place in range(5))
    assert sizes == [0, 0, 8 * 4, 8 * 16 * 4, 8 * 16 * 4]


def test_calls_of_other_programs_have_no_features() -> None:
    program = lower(matmul(4, 4, 4))
    body = Call(Callee.KERNEL, "other", ())
    with pytest.raises(Unsupported, match="other"):
        statement_features(Program("main", program.params, body), TARGET)


# --- numbers that running the loops gives ------------------------------------------------------------------------


def evaluate(expr: Expr, values: Mapping[Var, int]) -> int:
    match expr:
        case Const(value):
            return int(value)
        case Var():
            return values[expr]
        case Binary(op, a, b):
            x, y = evaluate(a, values), evaluate(b, values)
            known = {BinaryOp.ADD: x + y, BinaryOp.SUB: x - y, BinaryOp.MUL: x * y}
            return known[op] if op in known else x // y if op is BinaryOp.FLOORDIV else x % y
        case _:
            raise AssertionError(f"no index of these programs has {expr}")


def stores(stmt: Stmt, loops: tuple[Loop, ...] = ()) -> Iterator[tuple[tuple[Loop, ...], Block, Store]]:
    """Each statement with the loops around it and its block."""
    if isinstance(stmt, Block):
        assert isinstance(stmt.body, Store)
        yield loops, stmt, stmt.body
        return
    inside = (*loops, stmt) if isinstance(stmt, Loop) else loops
    for child in children(stmt):
        yield from stores(child, inside)


def trips(loops: tuple[Loop, ...], start: int) -> Iterator[dict[Var, int]]:
    """The iterations of the loops from ``start`` on; the others are at 0."""
    extents = [evaluate(loop.extent, {}) if n >= start else 1 for n, loop in enumerate(loops)]
    for point in product(*map(range, extents)):
        yield {loop.var: value for loop, value in zip(loops, point, strict=True)}


def addresses(loops: tuple[Loop, ...], block: Block, store: Store, start: int) -> dict[str, list[int]]:
    """The elements of each buffer in the order in which they are accessed; what is outside of it is guarded."""
    points: dict[Buffer, set[tuple[Expr, ...]]] = {store.buffer: {store.indices}}
    for read in reads_in(store.value):
        assert isinstance(read.source, Buffer)
        points.setdefault(read.source, set()).add(read.indices)
    found: dict[str, list[int]] = {buffer.name: [] for buffer in points}
    for values in trips(loops, start):
        axes = {a.var: evaluate(b, values) for a, b in zip(block.axes, block.bindings, strict=True)}
        for buffer, places in points.items():
            shape = [evaluate(extent, {}) for extent in buffer.shape]
            for place in places:
                at = [evaluate(index, axes) for index in place]
                if all(0 <= one < extent for one, extent in zip(at, shape, strict=True)):
                    found[buffer.name].append(int(np.ravel_multi_index(at, shape)))
    return found


def convolution(size: int, channels: int, kernel: int, stride: int, dilation: int) -> Tensor:
    reach = (size - 1) * stride + (kernel - 1) * dilation + 1
    x, w = te.placeholder((channels, reach), name="X"), te.placeholder((channels, kernel), name="W")
    c, k = te.reduce_axis((0, channels), name="c"), te.reduce_axis((0, kernel), name="k")
    return te.compute((size,), lambda i: te.sum(x[c, i * stride + k * dilation] * w[c, k], axis=(c, k)), name="C")


@st.composite
def scheduled(draw: st.DrawFn, *, fuse: bool) -> Program:
    """A matrix product, a convolution or a stencil; loops are split and reordered, and fused."""
    few = st.integers(1, 6)
    kind = draw(st.sampled_from(["matmul", "convolution", "stencil"]))
    if kind == "matmul":
        made: Tensor = matmul(draw(few), draw(few), draw(few))
    elif kind == "convolution":
        stride, dilation = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2)]))
        made = convolution(draw(few), draw(few), draw(st.integers(1, 3)), stride, dilation)
    else:
        x = te.placeholder((draw(few), 8), name="X")
        made = te.compute((x.shape[0], 6), lambda i, j: x[i, j] + x[i, j + 1] + x[i, j + 2], name="C")
    s = Schedule(lower(made))
    for loop in s.get_loops("C"):
        if draw(st.booleans()):
            s.split(loop, (None, draw(st.integers(1, 4))))
    s.reorder(*draw(st.permutations(s.get_loops("C"))))
    if fuse:
        loops = s.get_loops("C")
        at = draw(st.integers(0, len(loops) - 1))
        s.fuse(*loops[at : at + 2])
    return s.program


@settings(max_examples=120)
@given(scheduled(fuse=False))
def test_elements_are_those_that_are_accessed(program: Program) -> None:
    (site,) = sites(program, Mode.REPAIRED)
    ((loops, block, store),) = stores(program.body)
    starts = [n for n, loop in enumerate(loops) if loop.extent != Const(1, loop.extent.dtype)]
    assert [loop.var for loop in site.loops] == [loops[n].var for n in starts]
    for level, start in enumerate([*starts, len(loops)]):
        found = addresses(loops, block, store, start)
        for access in site.accesses:
            expected = len(set(found[access.buffer.name]))
            assert touched(access, site.loops).elements[level] == expected, (access.buffer, level)


@settings(max_examples=120)
@given(scheduled(fuse=True))
def test_no_element_is_forgotten_where_loops_are_fused(program: Program) -> None:
    (site,) = sites(program, Mode.REPAIRED)
    ((loops, block, store),) = stores(program.body)
    found = addresses(loops, block, store, 0)
    for access in site.accesses:
        different, size = len(set(found[access.buffer.name])), prod(access.shape)
        assert different <= touched(access, site.loops).elements[0] <= size


def changes(lines: list[int]) -> int:
    return 1 + sum(a != b for a, b in pairwise(lines))


@pytest.mark.parametrize("order", ["i j k", "i k j", "j k i", "k i j"])
@pytest.mark.parametrize("split", [None, 4])
def test_bytes_and_lines_are_those_that_are_accessed(order: str, split: int | None) -> None:
    """Of rows that are several lines: 16 elements are one."""
    s = Schedule(lower(matmul(8, 48, 32)))
    s.reorder(*order.split())
    if split:
        s.split(order.split()[1], (None, split))
    (features,) = numbers(s.program)
    ((loops, block, store),) = stores(s.program.body)
    expected: list[tuple[float, ...]] = []
    for accesses in addresses(loops, block, store, 0).values():
        lines = [element * 4 // LINE for element in accesses]
        sizes = (len(accesses) * 4, len(set(accesses)) * 4)
        expected.append((*sizes, changes(lines), len(set(lines))))
    names = ("bytes", "unique_bytes", "lines", "unique_lines")
    found = [tuple(accessed(features, place)[name] for name in names) for place in range(3)]
    assert sorted(found) == sorted(expected)


def test_rows_shorter_than_a_line_share_it() -> None:
    x = te.placeholder((16, 4), name="X")
    (features,) = numbers(lower(te.compute((16, 2), lambda i, j: x[i, j], name="C")))
    assert accessed(features, 0)["unique_lines"] == 2
    assert accessed(features, 1)["unique_lines"] == 4  # of X: 64 elements, but for the last two


# --- all schedules of sketches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(matmul(64, 48, 96), id="matmul"),
        pytest.param(matmul(4, 4, 512), id="long"),
        pytest.param(conv2d_padded(14, 8, 16, 3, 2), id="convolution"),
        pytest.param(argmax(16, 40), id="argmax"),
        pytest.param(welford(16, 40), id="welford"),
        pytest.param(cumsum(12, 16), id="cumsum"),
        pytest.param(insertion_sort(8), id="sort"),
    ],
)
def test_all_schedules_have_features(made: Tensor | tuple[Tensor, ...]) -> None:
    naive, generator = lower(made), np.random.default_rng(0)
    programs = [naive]
    for _, space in sketch_spaces(naive, TARGET):
        for _ in range(12):
            digits = np.array([generator.integers(radix) for radix in space.radices], np.int64)
            try:
                programs.append(space.schedule(digits).program)
            except ScheduleError:
                continue
    assert len(programs) > 6
    for mode in Mode:
        matrix = program_matrix(programs, TARGET, mode)
        assert matrix.rows.shape == (matrix.offsets[-1], 164)
        assert len(matrix.offsets) == len(programs) + 1
        assert np.all(np.diff(matrix.offsets) > 0)
        assert np.isfinite(matrix.rows).all()
        assert (matrix.rows >= 0).all()
    sums = [sum(row["op.float_mad"] + row["op.float_addsub"] for row in numbers(p)) for p in programs]
    assert min(sums) == sums[0]  # what is computed again counts again


def test_rows_of_several_programs() -> None:
    programs = [lower(matmul(8, 8, 8)), lower(conv2d_padded(6, 2, 2, 3, 1))]
    matrix = program_matrix(programs, TARGET)
    assert matrix.offsets.tolist() == [0, 1, 4]
    np.testing.assert_array_equal(matrix.rows[1:], statement_features(programs[1], TARGET))
    assert program_matrix([], TARGET).rows.shape == (0, 164)
