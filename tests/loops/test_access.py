import itertools

from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.dtypes import f32, index
from tilewright.loops.access import region_over, regions, whole
from tilewright.loops.ir import Buffer, Loop, Region, Store
from tilewright.loops.parser import parse_program
from tilewright.loops.printer import format_region
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import Expr, Read, Var, const, maximum, minimum, select

X, J, K = Var("i"), Var("j"), Var("k")
EXTENTS = {X: 4, J: 3, K: 5}
BOUNDS = Bounds(EXTENTS)


@st.composite
def indices(draw: st.DrawFn, depth: int = 3) -> Expr:
    if depth == 0:
        return draw(st.sampled_from([X, J, K]) | st.integers(-3, 9).map(const))
    a = draw(indices(depth - 1))
    scale = draw(st.integers(1, 6))
    match draw(st.integers(0, 7)):
        case 0:
            return a // scale
        case 1:
            return a % scale
        case 2:
            return a * (scale - 3)
        case 3:
            return a - draw(indices(depth - 1))
        case 4:
            return minimum(a, draw(indices(depth - 1)))
        case 5:
            return maximum(a, draw(indices(depth - 1)))
        case 6:
            return select(draw(indices(0)) < 2, a, draw(indices(depth - 1)))
        case _:
            return a + draw(indices(depth - 1))


@given(indices(), st.sets(st.sampled_from([X, J, K])))
def test_regions_hold_all_accesses(expr: Expr, relaxed: set[Var]) -> None:
    buffer = Buffer("A", f32, (const(1000),))
    (region,) = regions(Store(buffer, (expr,), const(0.0, f32)), BOUNDS, relaxed).writes
    (start, extent), *_ = region.ranges
    if region == whole(buffer):
        return
    evaluate = compile_exprs([expr, start, extent], [X, J, K])
    fixed = [v for v in (X, J, K) if v not in relaxed]
    for values in itertools.product(*(range(EXTENTS[v]) for v in (X, J, K))):
        at, lo, size = (int(x) for x in evaluate(*values))
        assert lo <= at < lo + size, (expr, fixed, values)


def of(text: str, *relaxed: Var, bounds: Bounds = BOUNDS) -> str:
    program = parse_program(f"program f[n](A: f32[64, 64], N: i64[64]) -> (C: f32[64]):\n  C[0] = {text}\n")
    read = next(region for region in regions(program.body, bounds, relaxed).reads if region.buffer.name == "A")
    return format_region(read)


def test_regions_are_exact_for_tiles() -> None:
    assert of("A[i * 3 + j, k]", J) == "A[i * 3 + j, k]".replace("i * 3 + j", "i * 3 +: 3")
    assert of("A[i * 3 + j, k]", X, J) == "A[0 +: 12, k]"
    assert of("A[(i * 6 + k) // 2, (i * 6 + k) % 6]", K) == "A[i * 3 +: 3, 0 +: 5]"
    assert of("A[i + j - 1, 2 - k]", J, K) == "A[i - 1 +: 3, -2 +: 5]"


def test_accesses_of_one_buffer_are_merged() -> None:
    assert of("A[i - 1, j] + A[i + 1, j] + A[i, j]") == "A[i - 1 +: 3, j]"


def test_data_dependent_indices_take_the_whole_dimension() -> None:
    assert of("A[N[i], j]", J) == "A[:, 0 +: 3]"


def test_symbolic_extents() -> None:
    n = Var("n")
    bounds = Bounds({X: n, J: const(8)}, {n: None})
    assert of("A[i * 8 + j, 0]", J, bounds=bounds) == "A[i * 8 +: 8, 0]"
    assert of("A[i * 8 + j, 0]", X, J, bounds=bounds) == "A[0 +: n * 8, 0]"


def test_loops_inside_are_relaxed_and_their_buffers_left_out() -> None:
    program = parse_program(
        """
program f(A: f32[64]) -> (C: f32[64]):
  for i in range(4):
    alloc T: f32[8]
    for a in range(8):
      T[a] = A[i * 8 + a]
    for b in range(8):
      C[i * 8 + b] = T[b]
"""
    )
    assert isinstance(program.body, Loop)
    found = regions(program.body.body, Bounds({X: 4}))
    assert [format_region(r) for r in (*found.reads, *found.writes)] == ["A[i * 8 +: 8]", "C[i * 8 +: 8]"]


def test_blocks_count_with_what_they_declare() -> None:
    program = parse_program(
        """
program f(A: f32[64]) -> (C: f32[64]):
  for i in range(4):
    block C(v = i * 2: spatial 64):
      reads A[v +: 5]
      writes C[v]
      C[v] = A[v]
"""
    )
    found = regions(program.body, Bounds())
    assert [format_region(r) for r in (*found.reads, *found.writes)] == ["A[0 +: 11]", "C[0 +: 7]"]
    only = regions(program.body, Bounds(), wanted=set(program.results))
    assert only.reads == () and only.writes == found.writes


def test_region_over() -> None:
    buffer = Buffer("A", f32, (const(64),))
    region = Region(buffer, ((X * 8 + J, const(4)),))
    assert format_region(region_over(region, BOUNDS, [J])) == "A[i * 8 +: 6]"
    assert Read(Buffer("D", index, (const(4),)), (X,)) == Buffer("D", index, (const(4),))[X]
