"""Loops are cut where a guard, or what a value selects by its place, is known; results stay what they are."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.backend.cpu.support import run_native
from tilewright import te
from tilewright.backend.cpu.prepare import prepare
from tilewright.base.dtypes import f32
from tilewright.loops.ir import If, Loop, LoopKind, Stmt, Store
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.loops.visit import children, walk
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Binary, Expr, Select, const, maximum, minimum
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars
from tilewright.symbolic.traversal import walk as walk_expr

ROWS, COLUMNS, LANES = 9, 30, 16


def stencil(window: int) -> Program:
    """The sum over a square of neighbours, those outside of the image being zero."""
    pad = window // 2
    image = te.placeholder((ROWS, COLUMNS, LANES), name="image")

    def neighbour(y: Expr, x: Expr, c: Expr) -> Expr:
        inside = (y >= pad) & (y < ROWS + pad) & (x >= pad) & (x < COLUMNS + pad)
        return te.select(inside, image[y - pad, x - pad, c], 0.0)

    ky, kx = te.reduce_axis((0, window), name="ky"), te.reduce_axis((0, window), name="kx")
    total = te.compute(
        (ROWS, COLUMNS, LANES), lambda y, x, c: te.sum(neighbour(y + ky, x + kx, c), axis=(ky, kx)), name="total"
    )
    return lower([total], name="stencil", inputs=[image])


def scheduled(tile: int, parallel: bool, window: int = 3) -> Program:
    s = Schedule(stencil(window))
    y, x, c, ky, kx = s.get_loops("total")
    outer, inner = s.split(x, (None, tile))
    s.reorder(y, outer, ky, kx, inner, c)
    for loop in (ky, kx, inner):
        s.unroll(loop)
    s.vectorize(c)
    if parallel:
        s.parallel(y)
    return s.program


def iterations(stmt: Stmt, selecting: bool) -> int:
    """How many stores run that select (or not), in loops that are not unrolled."""
    match stmt:
        case Loop(extent=extent, body=body, kind=kind):
            times = 1 if kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED) else int(str(extent))
            return times * iterations(body, selecting)
        case Store(_, _, value):
            return int(any(isinstance(node, Select) for node in walk_expr(value)) is selecting)
        case _:
            return sum(iterations(inner, selecting) for inner in children(stmt))


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("tile", [5, 6, 7, 15])
def test_results_are_those_of_numpy(tile: int, parallel: bool) -> None:
    program = scheduled(tile, parallel)
    image = np.random.default_rng(tile).standard_normal((ROWS, COLUMNS, LANES)).astype(np.float32)
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)))
    expected = sum(padded[y : y + ROWS, x : x + COLUMNS] for y in range(3) for x in range(3))
    result = run_native(program, {"image": image}, threads=2)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_the_middle_selects_nothing() -> None:
    body = prepare(scheduled(tile=5, parallel=False)).body
    # 9 rows of 6 tiles, with a border of one on each side.
    assert iterations(body, selecting=True) == 9 * 6 - 7 * 4
    assert iterations(body, selecting=False) >= 7 * 4


def test_the_interior_is_a_piece_also_where_tiles_are_idle_at_the_end() -> None:
    """Of eight tiles of four columns, the last one has two, and three reach the padding, of three columns."""
    s = Schedule(stencil(7))
    y, x, c, ky, kx = s.get_loops("total")
    outer, inner = s.split(x, (None, 4))
    s.reorder(y, outer, ky, kx, inner, c)
    for loop in (kx, inner):
        s.unroll(loop)
    s.vectorize(c)
    body = prepare(s.program).body
    interior = [loop for loop in walk(body) if isinstance(loop, Loop) and str(loop.extent) == "5"]
    assert any(not any(conditions_on(loop, inner.name)) for loop in interior)
    image = np.random.default_rng(0).standard_normal((ROWS, COLUMNS, LANES)).astype(np.float32)
    padded = np.pad(image, ((3, 3), (3, 3), (0, 0)))
    expected = sum(padded[y : y + ROWS, x : x + COLUMNS] for y in range(7) for x in range(7))
    np.testing.assert_allclose(run_native(s.program, {"image": image})[0], expected, rtol=1e-4, atol=1e-4)


def conditions_on(loop: Loop, name: str) -> Iterator[Expr]:
    """The conditions of selects in ``loop`` that depend on a loop of this name."""
    stores = (stmt for stmt in walk(loop) if isinstance(stmt, Store))
    selects = (node for store in stores for node in walk_expr(store.value) if isinstance(node, Select))
    yield from (one.condition for one in selects if any(var.name == name for var in free_vars(one.condition)))


def test_large_bodies_are_not_copied() -> None:
    tiles = COLUMNS // 15
    assert iterations(prepare(scheduled(15, False, window=9)).body, selecting=True) == ROWS * tiles
    assert iterations(prepare(scheduled(15, False)).body, selecting=False) > 0


def mean() -> Program:
    """The mean over those of three neighbours in a row that are inside of the image."""
    image = te.placeholder((COLUMNS, LANES), name="image")
    k = te.reduce_axis((0, 3), name="k")

    def neighbour(x: Expr, c: Expr) -> Expr:
        return te.select((x >= 1) & (x < COLUMNS + 1), image[x - 1, c], 0.0)

    def inside(x: Expr) -> Expr:
        return minimum(COLUMNS + 1 - x, 3) - maximum(1 - x, 0)

    total = te.compute((COLUMNS, LANES), lambda x, c: te.sum(neighbour(x + k.var, c), axis=k), name="total")
    result = te.compute((COLUMNS, LANES), lambda x, c: total[x, c] / inside(x).astype(f32), name="mean")
    return lower([result], name="mean", inputs=[image])


def scheduled_mean() -> Program:
    s = Schedule(mean())
    x, c, k = s.get_loops("total")
    outer, inner = s.split(x, (None, 5))
    s.reorder(outer, k, inner, c)
    s.reverse_compute_at("mean", outer)
    own = s.get_loops("mean")[1:]
    for loop in (k, inner, own[0]):
        s.unroll(loop)
    for loop in (c, own[-1]):
        s.vectorize(loop)
    return s.program


def test_in_the_middle_the_number_of_neighbours_is_known() -> None:
    def divisors(stmt: Stmt) -> int:
        match stmt:
            case Store(_, _, Binary(BinaryOp.DIV, _, divisor)):
                return int(not divisor.variables)
            case _:
                return sum(map(divisors, children(stmt)))

    assert divisors(prepare(scheduled_mean()).body) == 1
    image = np.random.default_rng(0).standard_normal((COLUMNS, LANES)).astype(np.float32)
    padded = np.pad(image, ((1, 1), (0, 0)))
    counts = np.array([2.0, *[3.0] * (COLUMNS - 2), 2.0])[:, None]
    expected = sum(padded[x : x + COLUMNS] for x in range(3)) / counts
    result = run_native(scheduled_mean(), {"image": image})[0]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_a_row_of_which_nothing_is_selected_stays_one_loop() -> None:
    image = te.placeholder((ROWS, COLUMNS, LANES), name="image")

    def element(y: Expr, x: Expr, c: Expr) -> Expr:
        inside = (y >= 1) & (y < ROWS + 1) & (x >= 1) & (x < COLUMNS + 1)
        return te.select(inside, image[y - 1, x - 1, c], 0.0)

    padded = te.compute((ROWS + 2, COLUMNS + 2, LANES), element, name="padded")
    s = Schedule(lower([padded], name="pad", inputs=[image]))
    s.vectorize(s.get_loops("padded")[-1])
    # The first row and the last one, and of the others the first element, those inside and the last one.
    assert sum(isinstance(stmt, Store) for stmt in walk(prepare(s.program).body)) == 5


def test_lanes_without_a_known_end_are_guarded_in_the_last_iteration_only() -> None:
    def guarded(stmt: Stmt) -> list[bool]:
        """Whether each vectorized loop has a guard inside."""
        lanes = [node for node in walk(stmt) if isinstance(node, Loop) and node.kind is LoopKind.VECTORIZED]
        return [isinstance(loop.body, If) for loop in lanes]

    n = te.var("n")
    a = te.placeholder((3, n), name="a")
    doubled = te.compute((3, n), lambda i, j: a[i, j] * 2.0, name="doubled")
    for is_parallel in (False, True):
        s = Schedule(lower([doubled], name="doubled", inputs=[a], dims={}))
        i, j = s.get_loops("doubled")
        outer, inner = s.split(j, (None, 16))
        s.vectorize(inner)
        for loop in (i, outer) if is_parallel else ():
            s.parallel(loop)
        assert guarded(prepare(s.program).body) == [False, True]
        for length in (0, 1, 15, 16, 17, 32, 50):
            data = np.random.default_rng(length).standard_normal((3, length)).astype(np.float32)
            np.testing.assert_array_equal(run_native(s.program, {"a": data})[0], data * 2)


def test_rows_of_a_tile_without_a_known_end_are_guarded_in_the_last_tile_only() -> None:
    n = te.var("n")
    a = te.placeholder((n, 16), name="a")
    doubled = te.compute((n, 16), lambda i, j: a[i, j] * 2.0, name="doubled")
    for is_parallel in (False, True):
        s = Schedule(lower([doubled], name="doubled", inputs=[a], dims={}))
        i, j = s.get_loops("doubled")
        outer, row = s.split(i, (None, 4))
        s.unroll(row)
        s.vectorize(j)
        for loop in (outer,) if is_parallel else ():
            s.parallel(loop)
        rows = [node for node in walk(prepare(s.program).body) if isinstance(node, Loop) and node.extent == const(4)]
        assert [any(isinstance(inner, If) for inner in walk(node)) for node in rows] == [False, True]
        for length in (0, 1, 3, 4, 5, 8, 11):
            data = np.random.default_rng(length).standard_normal((length, 16)).astype(np.float32)
            np.testing.assert_array_equal(run_native(s.program, {"a": data})[0], data * 2)


def thirds() -> Program:
    """Each element three times, from the first third of the one before on; at the end, the last one."""
    row = te.placeholder((COLUMNS,), name="row")
    places = te.compute((3 * COLUMNS,), lambda x: row[maximum(minimum((x + 1) // 3, COLUMNS - 1), 0)], name="thirds")
    return lower([places], name="thirds", inputs=[row])


def test_positions_are_limited_at_the_ends_only() -> None:
    s = Schedule(thirds())
    _, lanes = s.split(s.get_loops("thirds")[0], (None, LANES - 1))
    s.vectorize(lanes)

    def limits(stmt: Stmt) -> int:
        match stmt:
            case Loop(extent=extent, body=body, kind=LoopKind.SERIAL):
                return int(str(extent)) * limits(body)
            case Store(_, _, value):
                found = (node for node in walk_expr(value) if isinstance(node, Binary))
                return int(any(node.op in (BinaryOp.MIN, BinaryOp.MAX) for node in found))
            case _:
                return sum(map(limits, children(stmt)))

    assert limits(prepare(s.program).body) == 1
    row = np.arange(COLUMNS, dtype=np.float32)
    expected = row[np.minimum((np.arange(3 * COLUMNS) + 1) // 3, COLUMNS - 1)]
    np.testing.assert_array_equal(run_native(s.program, {"row": row})[0], expected)


@pytest.mark.parametrize("stride", [2, 3])
def test_each_phase_has_a_version(stride: int) -> None:
    """Which of its taps are in the padding depends on the phase by a division."""
    data = te.placeholder((6, LANES), name="data")
    k = te.reduce_axis((0, 3), name="k")

    def element(p: Expr, y: Expr, lane: Expr) -> Expr:
        place = y + k.var + (p + 1) // stride
        return te.sum(te.select((place >= 2) & (place < 7), data[place - 2, lane], 0.0), axis=k)

    s = Schedule(lower([te.compute((stride, 6, LANES), element, name="total")], inputs=[data]))
    phase, y, lane, tap = s.get_loops("total")
    s.reorder(phase, tap, y, lane)
    s.unroll(tap)
    s.unroll(y)
    s.vectorize(lane)
    s.parallel(phase)
    loops = [node for node in walk(prepare(s.program).body) if isinstance(node, If)]
    assert len(loops) == stride - 1
    values = np.random.default_rng(1).standard_normal((6, LANES)).astype(np.float32)
    padded = np.pad(values, ((2, 8), (0, 0)))
    padded[7:] = 0
    starts = [(p + 1) // stride for p in range(stride)]
    expected = [[sum(padded[y + start + k] for k in range(3)) for y in range(6)] for start in starts]
    np.testing.assert_allclose(run_native(s.program, {"data": values})[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("columns", "lanes", "expected"), [(48, 32, [32, 16]), (34, 32, [32, 8]), (40, 64, [64]), (72, 64, [64, 8])]
)
def test_the_last_lanes_are_those_that_are_needed(columns: int, lanes: int, expected: list[int]) -> None:
    """A tile of several registers at the end of a row computes in no register of which it needs no lane."""
    a, b = te.placeholder((5, 7), name="a"), te.placeholder((7, columns), name="b")
    k = te.reduce_axis((0, 7), name="k")
    c = te.compute((5, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    s = Schedule(lower([c], inputs=[a, b]))
    i, j, _ = s.get_loops("c")
    outer, lane = s.split(j, (None, lanes))
    s.reorder(outer, s.get_loops("c")[-1], i, lane)
    s.vectorize(lane)
    found = [node for node in walk(prepare(s.program).body) if isinstance(node, Loop)]
    extents = {int(str(loop.extent)) for loop in found if loop.kind is LoopKind.VECTORIZED}
    assert extents == set(expected)
    values = [np.random.default_rng(1).standard_normal(shape).astype(np.float32) for shape in ((5, 7), (7, columns))]
    result = run_native(s.program, {"a": values[0], "b": values[1]})[0]
    np.testing.assert_allclose(result, values[0] @ values[1], rtol=1e-5, atol=1e-5)
