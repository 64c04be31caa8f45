"""Tiles of rows that ask for the next panel together: all of it, and where they are known to be faster."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.backend.cpu.support import run_native
from tests.closeness import assert_near
from tests.passes.graphs import apply, value
from tilewright import te
from tilewright.base.arrays import Array
from tilewright.compilation import Options
from tilewright.cost.analytic import open_space
from tilewright.driver import compile_graph
from tilewright.graph import Graph
from tilewright.kernels.nests import Tiles
from tilewright.kernels.tiling import Unroll
from tilewright.loops.ir import LoopKind
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.loops.scalars import int_evaluator
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks, block_at, loops_of
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE, Expr, Var, const
from tilewright.symbolic.traversal import substitute, vars_in
from tilewright.target.target import Target
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import Reduction, Tensor, inputs_of

LINE = 64


def host(panels_ahead: int) -> Target:
    """This machine, with caches and figures of a known one."""
    made = replace(Target.host(), l1_bytes=48 << 10, l2_bytes=2 << 20, l3_bytes=480 << 20)
    return replace(made, machine=replace(made.machine, panels_ahead=panels_ahead, memory_bytes=3.7, asking=0.1))


def product(rows: int, depth: int, columns: int, target: Target) -> tuple[Program, float]:
    """The kernel of a product with constant weights, and its largest error against NumPy."""
    x, w = value("x", 1, rows, depth), value("w", depth, columns)
    random = np.random.default_rng(0)
    weights = random.standard_normal((depth, columns)).astype(np.float32)
    node = apply("MatMul", [x, w], "y")
    compiled = compile_graph(Graph("g", (x,), node.outputs, (node,), {w: weights}), Options(target, threads=2))
    data = random.standard_normal((1, rows, depth)).astype(np.float32)
    (result,) = compiled.executable.run({"x": data})
    (kernel,) = compiled.kernels
    return kernel.program, float(np.abs(result - data.astype(np.float64) @ weights).max())


def asked_and_wanted(program: Program, buffer: str, ref: BlockRef) -> tuple[set[int], set[int]]:
    """The lines that the loads of a tile's panels ask for, by the definition of a distance along loops, and those that
    the loads of the next tile of columns are in."""
    block, loops = block_at(program, ref).stmt, loops_of(program, ref)
    region = next(region for region in block.reads if region.buffer.name == buffer)
    bound = {axis.var: value for axis, value in zip(block.axes, block.bindings, strict=True)}
    spatial = {axis.var for axis in block.axes if axis.kind is IterKind.SPATIAL}
    columns = vars_in(bound[var] for var in vars_in(start for start, _ in region.ranges) & spatial)
    column = max(
        place
        for place, loop in enumerate(loops)
        if loop.var in columns and loop.extent != ONE and loop.kind in (LoopKind.SERIAL, LoopKind.PARALLEL)
    )
    steps = {Var(name): step for name, step in program.prefetch_steps(buffer).items()}
    read = columns | vars_in(bound[axis.var] for axis in block.axes if axis.kind is IterKind.REDUCE) | steps.keys()
    inside = [loop for loop in loops[column + 1 :] if loop.var in read and loop.kind is not LoopKind.VECTORIZED]
    once = {loop.var for loop in inside if loop.kind is LoopKind.UNROLLED and steps.get(loop.var) == 0}
    place: Expr = const(0)
    for (start, _), extent in zip(region.ranges, region.buffer.shape, strict=True):
        place = place * extent + substitute(start, bound)
    element = int_evaluator(place, lambda *_: 0)
    asked, wanted = set[int](), set[int]()
    for point in itertools.product(*(range(int(str(loop.extent))) for loop in inside)):
        values = {loop.var: 0 for loop in loops} | {loop.var: n for loop, n in zip(inside, point, strict=True)}
        own, following = (
            element({var.unique: n for var, n in (values | {loops[column].var: tile}).items()}) for tile in (0, 1)
        )
        wanted.add(following * region.buffer.dtype.itemsize // LINE)
        if not any(values[var] for var in once):
            ahead = program.prefetched(buffer) + sum(step * values[var] for var, step in steps.items())
            asked.add((own * region.buffer.dtype.itemsize + ahead) // LINE)
    return asked, wanted


def matrices(rows: int, depth: int, columns: int) -> Tensor:
    """A product with panels of 16 columns."""
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((columns // 16, depth, 16), name="b")
    k = te.reduce_axis((0, depth), name="k")
    return te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[j // 16, k, j % 16], axis=k), name="c")


def groups(count: int, rows: int, depth: int, columns: int) -> Tensor:
    """So many products with panels of 16 columns."""
    a = te.placeholder((count, rows, depth), name="a")
    b = te.placeholder((count, columns // 16, depth, 16), name="b")
    k = te.reduce_axis((0, depth), name="k")

    def element(g: Expr, i: Expr, j: Expr) -> Reduction:
        return te.sum(a[g, i, k] * b[g, j // 16, k, j % 16], axis=k)

    return te.compute((count, rows, columns), element, name="c")


def filters(rows: int, depth: int, blocks: int) -> Tensor:
    """Three taps over one row of plain data; filters in blocks of 8."""
    x, w = te.placeholder((depth, rows + 2), name="a"), te.placeholder((blocks, depth, 3, 8), name="b")
    k, tap = te.reduce_axis((0, depth), name="k"), te.reduce_axis((0, 3), name="tap")

    def element(block: Expr, row: Expr, lane: Expr) -> Reduction:
        return te.sum(x[k, row + tap.var] * w[block, k, tap, lane], axis=(k, tap))

    return te.compute((blocks, rows, 8), element, name="c")


WIDE = Target.parse("x86_64,znver3,l1=32K,l2=4K,l3=32M,cores=1")
CHOICES = {
    "steps one by one": (matrices(40, 24, 64), {"unroll": 0}),
    "steps written out": (matrices(128, 24, 64), {"unroll": Unroll.INNERMOST.value}),
    "few tiles of rows": (matrices(14, 64, 64), {"unroll": Unroll.INNERMOST.value}),
    "slices": (matrices(50, 512, 64), {"unroll": Unroll.INNERMOST.value, "slices": 2}),
    "several matrices": (groups(3, 50, 16, 64), {"unroll": Unroll.INNERMOST.value}),
    "filters": (filters(32, 24, 8), {"panels": 2}),
    "filters, few tiles": (filters(12, 16, 8), {"panels": 2}),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_parts_of_all_tiles_are_the_next_panels(name: str) -> None:
    result, knobs = CHOICES[name]
    inputs = inputs_of(result.op)
    s = Schedule(lower([result], name="kernel", inputs=inputs))
    nests = open_space(s, WIDE)
    (nest,) = nests.nests
    assert isinstance(nest, Tiles) and nest.facts.next_panel
    wanted = {"rows": 6, "order": 0, "prefetch": 2, "panels": 1, "slices": 1} | knobs
    choices = nest.population()
    fits = np.logical_and.reduce([choices.column(knob) == value for knob, value in wanted.items()])
    is_whole = choices.column("lanes") == choices.column("lanes").max(initial=0, where=fits)
    assert (fits & is_whole).any()
    nests.apply(s, [choices[int(np.argmax(fits & is_whole))]])
    summing = next(b for b in all_blocks(s.program.body) if any(r.buffer.name == "b" for r in b.reads))
    asked, next_lines = asked_and_wanted(s.program, "b", BlockRef(summing.name))
    assert s.program.prefetch_cache("b") == 2 and s.program.prefetch_steps("b")
    assert next_lines <= asked
    assert len(asked - next_lines) <= len(next_lines) // 4 + 2
    random = np.random.default_rng(0)
    arrays: dict[Tensor, Array] = {
        tensor: random.standard_normal([int(str(n)) for n in tensor.shape]).astype(np.float32) for tensor in inputs
    }
    (found,) = run_native(s.program, {tensor.name: array for tensor, array in arrays.items()})
    assert_near(found, evaluate([result], arrays)[0], 1e-4)


def test_a_figure_above_the_highest_stands_for_it() -> None:
    for target in (WIDE, replace(WIDE, machine=replace(WIDE.machine, panels_ahead=7))):
        (nest,) = open_space(Schedule(lower([filters(32, 24, 8)])), target).nests
        assert isinstance(nest, Tiles) and nest.facts.next_panel


def test_only_where_the_processor_gains_by_it() -> None:
    """And not of one row: there is one tile, which waits for the panel that it reads."""
    program, _ = product(128, 256, 256, host(0))
    assert not program.prefetch_steps("p1")
    program, _ = product(1, 256, 256, host(1))
    assert not program.prefetch_steps("p1")
    figures = {cpu: Target.parse(f"x86_64,{cpu}").machine.panels_ahead for cpu in ("znver3", "znver4", "graniterapids")}
    assert figures == {"znver3": 2, "znver4": 0, "graniterapids": 1}
