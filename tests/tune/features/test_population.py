"""Features of populations are those of their candidates; and what they count is there.

Sketches are random: split, reordered and fused loops of some kinds, with symbols as factors. Each candidate is also
scheduled by itself, which gives a program without symbols, written differently by the simplifier.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loops.workloads import conv2d_padded, matmul
from tilewright.base.errors import ScheduleError
from tilewright.loops.ir import Block, Buffer, Loop, Store
from tilewright.loops.lower import lower
from tilewright.loops.memory import LOCAL
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Const, Expr, Extent, Read, const
from tilewright.symbolic.traversal import reads_in, substitute
from tilewright.tune.features import (
    NO_FACTORS,
    Extractor,
    Factors,
    curve_buffers,
    curve_features,
    itervar_columns,
    itervar_features,
)

MOST = 40
"""Factors may be larger than the loops that they split."""


@st.composite
def naive_programs(draw: st.DrawFn) -> tuple[Program, str]:
    """A matrix product or a convolution, and the name of its block."""
    if draw(st.booleans()):
        rows, columns, depth = (draw(st.integers(1, 30)) for _ in range(3))
        return lower(matmul(rows, columns, depth)), "C"
    size, channels, filters = draw(st.integers(1, 12)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    kernel, stride = draw(st.sampled_from([1, 3])), draw(st.sampled_from([1, 2]))
    return lower(conv2d_padded(size, channels, filters, kernel, stride)), "conv"


@st.composite
def sketches(draw: st.DrawFn) -> Schedule:
    program, block = draw(naive_programs())
    s = Schedule(program)
    if block == "conv" and draw(st.booleans()):
        s.compute_inline("padded")
    if draw(st.booleans()):
        s.cache_write(block, s.program.results[0].name if block == "C" else "conv", LOCAL)
    for loop in s.get_loops(block):
        parts = draw(st.integers(1, 3))
        if parts > 1:
            s.split(loop, (None, *(Extent(f"{loop}_f{part}") for part in range(1, parts))))
    s.reorder(*draw(st.permutations(s.get_loops(block))))
    for _ in range(draw(st.integers(0, 3))):
        maybe(draw, s, block)
    return s


def maybe(draw: st.DrawFn, s: Schedule, block: str) -> None:
    """One more primitive, if it is legal."""
    loops = s.get_loops(block)
    position = draw(st.integers(0, len(loops) - 1))
    loop, name = loops[position], draw(st.sampled_from(["fuse", "vectorize", "parallel", "unroll", "move", "init"]))
    try:
        match name:
            case "fuse":
                s.fuse(*loops[position : position + 2])
            case "vectorize":
                s.vectorize(loop)
            case "parallel":
                s.parallel(loop)
            case "unroll":
                s.unroll(loop)
            case "init":
                s.decompose_reduction(block, loop)
            case _:
                s.compute_at("padded", loop) if block == "conv" else s.reverse_compute_at("C_copy", loop)
    except ScheduleError:
        pass


@st.composite
def populations(draw: st.DrawFn) -> tuple[Schedule, Factors]:
    s = draw(sketches())
    symbols = len(s.program.dims)
    rows = draw(st.lists(st.tuples(*[st.integers(1, MOST)] * symbols), min_size=1, max_size=4))
    return s, np.array(rows, np.int64).reshape(len(rows), symbols)


@settings(max_examples=40)
@given(populations())
def test_rows_are_the_features_of_the_candidates(population: tuple[Schedule, Factors]) -> None:
    s, factors = population
    sketch = Extractor.of(s.program)
    by_loop, curves = itervar_features(sketch, factors), curve_features(sketch, factors)
    plain = itervar_features(sketch, factors, logarithms=False)
    assert np.all(np.isfinite(by_loop)) and np.all(np.isfinite(curves))
    for position, row in enumerate(factors.tolist()):
        candidate = s.copy()
        candidate.bind_factors(**dict(zip(sketch.symbols, row, strict=True)))
        own = Extractor.of(candidate.program)
        assert own.symbols == ()
        assert itervar_columns(own.structure) == itervar_columns(sketch.structure)
        assert [t.name for t in curve_buffers(own.structure)] == [t.name for t in curve_buffers(sketch.structure)]
        np.testing.assert_array_equal(itervar_features(own, NO_FACTORS, logarithms=False)[0], plain[position])
        np.testing.assert_array_equal(itervar_features(own, NO_FACTORS)[0], by_loop[position])
        np.testing.assert_array_equal(curve_features(own, NO_FACTORS)[0], curves[position])


def test_fused_reductions_that_a_factor_takes_out() -> None:
    """With ``f`` 1, the fused loop no longer drives the reduction, and an init runs in each of its iterations."""
    s = Schedule(lower(matmul(1, 1, 1)))
    s.split("i", (None, Extent("g")), names=("io", "ii"))
    s.split("k", (None, Extent("f")), names=("ko", "ki"))
    s.reorder("io", "ko", "ii", "ki")
    s.fuse("ii", "ki", name="both")
    factors = np.array([[2, 1], [2, 3], [1, 3]])
    features = itervar_features(Extractor.of(s.program), factors, logarithms=False)
    for position, (g, f) in enumerate(factors.tolist()):
        candidate = s.copy()
        candidate.bind_factors(f=f, g=g)
        own = itervar_features(Extractor.of(candidate.program), NO_FACTORS, logarithms=False)
        np.testing.assert_array_equal(own[0], features[position])


def test_populations_of_any_size() -> None:
    """They are evaluated in pieces."""
    s = Schedule(lower(matmul(48, 8, 8)))
    s.split("i", (None, Extent("f")))
    extractor = Extractor.of(s.program)
    factors = np.arange(1, 601, dtype=np.int64)[:, None]
    features = itervar_features(extractor, factors)
    for position in (0, 255, 256, 257, 511, 512, 599):
        alone = itervar_features(extractor, factors[position : position + 1])
        np.testing.assert_array_equal(features[position], alone[0])


# What is counted, against programs that are run ----------------------------------------------------------------------


@st.composite
def exact_tilings(draw: st.DrawFn) -> Schedule:
    """A matrix product in which each iteration is executed: all factors divide."""
    s = Schedule(lower(matmul(*(draw(st.sampled_from([1, 2, 4, 6])) for _ in range(3)))))
    for loop in s.get_loops("C"):
        if draw(st.booleans()):
            s.split(loop, s.sample_perfect_tile(loop, 2, decision=draw(st.sampled_from(divisions(s, loop.name)))))
    s.reorder(*draw(st.permutations(s.get_loops("C"))))
    if draw(st.booleans()):
        maybe_fuse = s.get_loops("C")[:2]
        s.fuse(*maybe_fuse)
    return s


def divisions(s: Schedule, loop: str) -> list[tuple[int, int]]:
    extent = next(int(str(x.extent)) for x in walk(s.program.body) if isinstance(x, Loop) and x.var.name == loop)
    return [(extent // f, f) for f in range(1, min(extent, 16) + 1) if extent % f == 0]


def accesses(block: Block) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Those of the body, by the names that the features give them; ``C_0`` is the one of the init."""
    assert isinstance(block.body, Store)
    yield "C_1", block.body.indices
    for read in reads_in(block.body.value):
        assert isinstance(read, Read) and isinstance(read.source, Buffer)
        yield ("C_2" if read.source.name == "C" else f"{read.source.name}_0"), read.indices


@settings(max_examples=40)
@given(exact_tilings())
def test_counts_are_of_distinct_elements(s: Schedule) -> None:
    """Each loop is run with all loops around it at 0, and the elements that are accessed are collected."""
    extractor = Extractor.of(s.program)
    row = itervar_features(extractor, NO_FACTORS, logarithms=False)[0]
    features = dict(zip(itervar_columns(extractor.structure), row.tolist(), strict=True))
    loops = [stmt for stmt in walk(s.program.body) if isinstance(stmt, Loop)]
    block = next(stmt for stmt in walk(s.program.body) if isinstance(stmt, Block))
    bindings = dict(zip((axis.var for axis in block.axes), block.bindings, strict=True))
    for depth, loop in enumerate(loops):
        seen: dict[str, list[tuple[int, ...]]] = {name: [] for name, _ in accesses(block)}
        ranges = [range(1)] * depth + [range(int(str(inner.extent))) for inner in loops[depth:]]
        for point in product(*ranges):
            at = {each.var: const(value) for each, value in zip(loops, point, strict=True)}
            for name, indices in accesses(block):
                seen[name].append(tuple(number(substitute(substitute(i, bindings), at)) for i in indices))
        for name, elements in seen.items():
            distinct = len(set(elements))
            assert features[f"{loop.var}.{name}.count"] == distinct
            assert features[f"{loop.var}.{name}.reuse"] == len(elements) / distinct
            assert features[f"{loop.var}.bottomup"] == len(elements)
        assert features[f"{loop.var}.C_0.count"] == features[f"{loop.var}.C_1.count"]
        assert features[f"{loop.var}.C_0.reuse"] == 1


def number(expr: Expr) -> int:
    assert isinstance(expr, Const)
    return int(expr.value)
