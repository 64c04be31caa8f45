"""Numbers that are known: of a naive matrix product, of kinds of loops, of loops that are fused."""

import dataclasses

import numpy as np
import pytest

from tests.loops.workloads import conv2d_padded, matmul
from tilewright.base.dtypes import i32
from tilewright.base.errors import BadInput, Unsupported
from tilewright.loops.ir import Alloc, Barrier, Block, Buffer, Loop, LoopKind, Seq, Stmt, Store
from tilewright.loops.lower import lower
from tilewright.loops.memory import SHARED
from tilewright.loops.program import Program
from tilewright.loops.visit import transform_stmts
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import ONE, Extent, Var, const
from tilewright.tensor import build as te
from tilewright.tune.features import NO_FACTORS, Extractor, Factors, itervar_columns, itervar_features
from tilewright.tune.features.itervar import ANNOTATIONS


def named(program: Program, logarithms: bool = False, factors: Factors = NO_FACTORS) -> dict[str, float]:
    """The features of one candidate by name."""
    extractor = Extractor.of(program)
    columns = itervar_columns(extractor.structure)
    row = itervar_features(extractor, factors, logarithms=logarithms)[0]
    assert len(set(columns)) == len(columns)
    return dict(zip(columns, row.tolist(), strict=True))


def touched(features: dict[str, float], loop: str) -> dict[str, list[float]]:
    """The six numbers of each access in ``loop``."""
    found: dict[str, list[float]] = {}
    for name, value in features.items():
        parts = name.split(".")
        if len(parts) == 3 and parts[0] == loop and not name.startswith((f"{loop}.blockIdx", f"{loop}.threadIdx")):
            found.setdefault(parts[1], []).append(value)
    return found


def attributes(features: dict[str, float], loop: str) -> list[float]:
    return [features[f"{loop}.{name}"] for name in ("length", "level", "topdown", "bottomup")]


def with_kinds(program: Program, kinds: dict[str, LoopKind]) -> Program:
    def change(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Loop) and stmt.var.name in kinds:
            return dataclasses.replace(stmt, kind=kinds[stmt.var.name])
        return None

    return dataclasses.replace(program, body=transform_stmts(program.body, change))


def test_naive_matmul() -> None:
    features = named(lower(matmul(128, 128, 128)))
    assert attributes(features, "i") == [128, 1, 128, 2097152]
    assert attributes(features, "j") == [128, 2, 16384, 16384]
    assert attributes(features, "k") == [128, 3, 2097152, 128]
    assert touched(features, "i") == {
        "A_0": [128, -1, 16384, 128, 0, 0],
        "B_0": [0, -1, 16384, 128, 0, 0],
        "C_0": [128, -1, 16384, 1, 0, 0],
        "C_1": [128, -1, 16384, 128, 0, 0],
        "C_2": [128, -1, 16384, 128, 0, 0],
    }
    assert touched(features, "j") == {
        "A_0": [0, -1, 128, 128, 0, 0],
        "B_0": [1, -1, 16384, 1, 0, 0],
        "C_0": [1, -1, 128, 1, 0, 0],
        "C_1": [1, -1, 128, 128, 0, 0],
        "C_2": [1, -1, 128, 128, 0, 0],
    }
    assert touched(features, "k") == {
        "A_0": [1, -1, 128, 1, 0, 0],
        "B_0": [128, -1, 128, 1, 0, 0],
        "C_0": [0, -1, 1, 1, 0, 0],
        "C_1": [0, -1, 1, 128, 0, 0],
        "C_2": [0, -1, 1, 128, 0, 0],
    }


def test_columns_of_a_loop() -> None:
    """In AutoTVM's order: attributes, eleven kinds, three counts, then accesses by buffer."""
    extractor = Extractor.of(lower(matmul(4, 5, 6)))
    first = [name.removeprefix("i.") for name in itervar_columns(extractor.structure)[:30]]
    assert first[:4] == ["length", "level", "topdown", "bottomup"]
    assert first[4:15] == [kind.value for kind in ANNOTATIONS]
    grid = ["blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"]
    assert first[4:15] == [*grid, "unrolled", "vectorized", "parallel", "serial", "vthread"]
    assert first[15:18] == ["add", "mul", "div"]
    numbers = ("stride", "mod", "count", "reuse", "thread_count", "thread_reuse")
    assert first[18:24] == [f"A_0.{name}" for name in numbers]
    assert first[24] == "B_0.stride"
    assert itervar_features(extractor, NO_FACTORS).shape == (1, len(itervar_columns(extractor.structure)))


def test_logarithms() -> None:
    """``sign(x) * log2(|x| + 1)`` of numbers; levels and kinds stay."""
    program = lower(matmul(127, 31, 7))
    plain, scaled = named(program), named(program, logarithms=True)
    assert scaled["i.length"] == 7 and scaled["j.length"] == 5 and scaled["k.length"] == 3
    assert scaled["k.level"] == 3 and scaled["k.serial"] == 1 and scaled["k.A_0.mod"] == -1 and scaled["k.add"] == 1
    for name, value in plain.items():
        if not name.endswith((".level", *(kind.value for kind in ANNOTATIONS))):
            assert scaled[name] == np.sign(value) * np.log2(abs(value) + 1), name


def test_negative_strides() -> None:
    a = te.placeholder((8,), name="A")
    features = named(lower(te.compute((8,), lambda i: a[7 - i], name="B")), logarithms=True)
    assert features["i.A_0.stride"] == -1
    assert features["i.A_0.count"] == np.log2(9)


def test_arithmetic_is_of_the_loop_that_it_is_in() -> None:
    a = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    mean = te.compute((4,), lambda i: te.sum(a[i, k] * a[i, k] - a[i, k] / 3.0, axis=k), name="S")
    half = te.compute((4,), lambda i: mean[i] % 2.0 * 0.5 + i.astype(a.dtype), name="H")
    features = named(lower(half))
    assert [features[f"k.{name}"] for name in ("add", "mul", "div")] == [2, 1, 1]
    assert [features[f"i.{name}"] for name in ("add", "mul", "div")] == [0, 0, 0]
    assert [features[f"i_1.{name}"] for name in ("add", "mul", "div")] == [1, 1, 1]


def test_inits_are_no_arithmetic_of_the_loops_that_reduce() -> None:
    def change(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Block) and isinstance(stmt.init, Store):
            init = dataclasses.replace(stmt.init, value=stmt.init.value * 2.0)
            return dataclasses.replace(stmt, init=init)
        return None

    program = lower(matmul(4, 4, 4))
    assert named(dataclasses.replace(program, body=transform_stmts(program.body, change))) == named(program)


def test_integers_are_no_arithmetic() -> None:
    features = named(lower(matmul(4, 4, 4, i32)))
    assert features["k.add"] == features["k.mul"] == 0


def test_split_and_reordered() -> None:
    s = Schedule(lower(matmul(128, 128, 128)))
    s.tile(("i", "j"), (8, 32), names=("io", "jo", "ii", "ji"))
    s.split("k", (None, 4), names=("ko", "ki"))
    s.reorder("io", "jo", "ko", "ii", "ki", "ji")
    features = named(s.program)
    assert attributes(features, "io") == [16, 1, 16, 128**3]
    assert attributes(features, "ii") == [8, 4, 16 * 4 * 32 * 8, 8 * 4 * 32]
    assert touched(features, "ii") == {
        "A_0": [128, -1, 32, 32, 0, 0],
        "B_0": [0, -1, 128, 8, 0, 0],
        "C_0": [128, -1, 256, 1, 0, 0],
        "C_1": [128, -1, 256, 4, 0, 0],
        "C_2": [128, -1, 256, 4, 0, 0],
    }
    assert touched(features, "ko")["B_0"] == [512, -1, 128 * 32, 8, 0, 0]
    assert touched(features, "jo")["B_0"] == [32, -1, 128 * 128, 8, 0, 0]


def test_kinds() -> None:
    s = Schedule(lower(matmul(128, 128, 128)))
    s.split("j", (None, 8), names=("jo", "ji"))
    s.reorder("i", "jo", "k", "ji")
    s.parallel("i")
    s.vectorize("ji")
    s.unroll("k")
    features = named(s.program)
    kinds = {loop: [features[f"{loop}.{kind.value}"] for kind in ANNOTATIONS] for loop in ("i", "jo", "k", "ji")}
    assert {loop: ANNOTATIONS[row.index(1)] for loop, row in kinds.items()} == {
        "i": LoopKind.PARALLEL,
        "jo": LoopKind.SERIAL,
        "k": LoopKind.UNROLLED,
        "ji": LoopKind.VECTORIZED,
    }
    assert all(sum(row) == 1 for row in kinds.values())


def test_parallel_loops_are_compared_to_one_thread() -> None:
    s = Schedule(lower(matmul(128, 64, 32)))
    s.parallel("i")
    features = named(s.program)
    assert touched(features, "i")["A_0"] == [32, -1, 128 * 32, 64, 128, 1]
    assert touched(features, "i")["B_0"] == [0, -1, 32 * 64, 128, 1, 128]
    assert touched(features, "j")["A_0"][4:] == [0, 0]


def test_blocks_are_compared_to_threads() -> None:
    s = Schedule(lower(matmul(64, 64, 16)))
    s.tile(("i", "j"), (8, 16), names=("by", "bx", "ty", "tx"))
    kinds = {
        "by": LoopKind.BLOCK_Y,
        "bx": LoopKind.BLOCK_X,
        "ty": LoopKind.THREAD_Y,
        "tx": LoopKind.THREAD_X,
    }
    features = named(with_kinds(s.program, kinds))
    assert touched(features, "by")["A_0"][4:] == [8, 4]
    assert touched(features, "bx")["A_0"][4:] == [1, 4]
    assert touched(features, "ty")["A_0"][4:] == [8, 16]
    assert touched(features, "tx")["A_0"][4:] == [1, 16]
    assert touched(features, "k")["A_0"][4:] == [0, 0]


def test_only_adjacent_levels_are_compared() -> None:
    """A block is compared to threads that are directly in it, and to nothing if there are none."""
    for kinds in ({"i": LoopKind.BLOCK_X}, {"i": LoopKind.BLOCK_X, "k": LoopKind.THREAD_X}):
        features = named(with_kinds(lower(matmul(64, 64, 16)), kinds))
        assert touched(features, "i")["A_0"][4:] == [0, 0]


def test_fused_loops() -> None:
    """``A`` is at ``f // 6``, ``B`` at ``f % 6``: the elements that are there are counted."""
    s = Schedule(lower(matmul(4, 6, 5)))
    s.fuse("i", "j", name="f")
    features = named(s.program)
    assert touched(features, "f")["A_0"] == [5, -1, 4 * 5, 6, 0, 0]
    assert touched(features, "f")["B_0"] == [1, 6, 6 * 5, 4, 0, 0]
    assert touched(features, "f")["C_1"] == [1, -1, 24, 5, 0, 0]
    assert touched(features, "f")["C_0"] == [1, -1, 24, 1, 0, 0]


def test_inits_of_fused_reductions() -> None:
    """An init runs where the fused loop reaches another element, not in each iteration."""
    s = Schedule(lower(matmul(4, 6, 5)))
    s.fuse("j", "k", name="f")
    features = named(s.program)
    assert touched(features, "f")["C_0"] == [1, -1, 6, 1, 0, 0]
    assert touched(features, "f")["C_1"] == [1, -1, 6, 5, 0, 0]


def test_inits_run_in_each_iteration_of_loops_that_do_not_reduce() -> None:
    """Such as one that is fused with a reduction that has one iteration."""
    s = Schedule(lower(matmul(4, 6, 1)))
    s.split("j", (None, 3), names=("jo", "ji"))
    s.fuse("ji", "k", name="f")
    features = named(s.program)
    assert touched(features, "f")["C_0"] == touched(features, "f")["C_1"] == [1, -1, 3, 1, 0, 0]


def test_inits_of_what_is_computed_again() -> None:
    """A sum inside a loop that it does not depend on starts anew in each iteration."""
    a, b = te.placeholder((4, 6), name="A"), te.placeholder((5,), name="B")
    k = te.reduce_axis((0, 6), name="k")
    total = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="S")
    s = Schedule(lower(te.compute((4, 5), lambda y, x: total[y] * b[x], name="D")))
    s.compute_at("S", "x")
    assert touched(named(s.program), "x")["S_0"] == [0, -1, 1, 5, 0, 0]


def test_loops_that_run_once_have_no_stride() -> None:
    features = named(lower(matmul(1, 6, 5)))
    assert touched(features, "i")["A_0"] == [0, -1, 5, 6, 0, 0]


def test_windows() -> None:
    """Both the output and the window move along the image; padding is read where the image is."""
    s = Schedule(lower(conv2d_padded(8, 3, 4, 3, 2)))
    s.compute_inline("padded")
    features = named(s.program)
    assert touched(features, "y_1")["X_0"][:2] == [16, -1]
    assert touched(features, "z_1")["X_0"][:2] == [2, -1]
    assert touched(features, "ky")["X_0"] == [8, -1, 9, 1, 0, 0]
    assert touched(features, "f")["X_0"][2:4] == [4 * 4 * 3 * 3 * 3, 4]


def test_one_nest_after_another() -> None:
    """Products are those of the nest that a loop is in."""
    features = named(lower(conv2d_padded(8, 3, 4, 3, 1)))
    assert attributes(features, "c") == [3, 1, 3, 300]
    assert attributes(features, "kx") == [3, 6, 4 * 8 * 8 * 3 * 3 * 3, 3]
    assert attributes(features, "f_1") == [4, 1, 4, 256]
    assert attributes(features, "y_2") == [8, 2, 32, 64]


def test_indices_that_are_data_are_all_different() -> None:
    table, rows = te.placeholder((100, 8), name="T"), te.placeholder((5,), i32, "R")
    taken = te.compute((5, 8), lambda i, j: table[rows[i].astype(table.shape[0].dtype), j], name="G")
    features = named(lower(taken))
    assert touched(features, "i")["T_0"] == [8, -1, 40, 1, 0, 0]
    assert touched(features, "i")["R_0"] == [1, -1, 5, 8, 0, 0]
    assert touched(features, "j")["R_0"] == [0, -1, 1, 8, 0, 0]


def test_symbols_have_columns() -> None:
    s = Schedule(lower(matmul(12, 4, 4)))
    s.split("i", (None, Extent("f")))
    extractor = Extractor.of(s.program)
    assert extractor.symbols == ("f",)
    features = itervar_features(extractor, np.array([[1], [5], [12]]), logarithms=False)
    columns = itervar_columns(extractor.structure)
    assert features[:, columns.index("i_0.length")].tolist() == [12, 3, 1]
    assert features[:, columns.index("i_0.A_0.stride")].tolist() == [4, 20, 0]
    assert itervar_features(extractor, np.zeros((0, 1), np.int64)).shape == (0, len(columns))


@pytest.mark.parametrize("factors", [np.ones((3, 2), np.int64), np.ones(1, np.int64), np.array([[1], [0]])])
def test_bad_factors_are_refused(factors: Factors) -> None:
    s = Schedule(lower(matmul(12, 4, 4)))
    s.split("i", (None, Extent("f")))
    with pytest.raises(BadInput, match="factors"):
        itervar_features(Extractor.of(s.program), factors)


A = Buffer("A", i32, (const(8),))
OUTER, INNER = Var("i"), Var("j")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (Store(A, (ONE,), const(1, i32)), "no loops"),
        (Seq(()), "no loops"),
        (Loop(OUTER, const(4), Loop(INNER, OUTER, Store(A, (INNER,), const(1, i32)))), "varies"),
        (Loop(OUTER, A[ONE].astype(OUTER.dtype), Store(A, (OUTER,), const(1, i32))), "varies"),
        (Loop(OUTER, const(4), Alloc(Buffer("S", i32, (ONE,), SHARED), Barrier())), "barriers"),
    ],
)
def test_what_has_no_features_is_refused(body: Stmt, reason: str) -> None:
    """Rather than zeros, which a model would take for a candidate."""
    with pytest.raises(Unsupported, match=reason):
        Extractor.of(Program("main", (A,), body))
