"""Tiles of rows that ask for the next panel together: all of it, and where they are known to be faster."""

from dataclasses import replace

import numpy as np
import pytest

from tests.passes.graphs import apply, value
from tilewright.compilation import Options
from tilewright.driver import compile_graph
from tilewright.graph import Graph
from tilewright.loops.ir import Loop
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.target.target import Target

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


@pytest.mark.parametrize(("rows", "depth", "columns"), [(128, 256, 256), (100, 300, 192)])
def test_the_parts_of_all_tiles_are_the_next_panel(rows: int, depth: int, columns: int) -> None:
    """The lines that the loads of one panel ask for, by the definition of a distance along loops, tile by tile."""
    program, error = product(rows, depth, columns, host(1))
    assert error < 1e-3
    panels = next(p for p in program.params if p.name == "p1")
    width = int(str(panels.shape[-1])) * panels.dtype.itemsize
    steps, distance = program.prefetch_steps("p1"), program.prefetched("p1")
    assert program.prefetch_cache("p1") == 2
    assert distance == depth * width
    (of_tile, of_step) = steps.values()
    extents = {loop.var.name: int(str(loop.extent)) for loop in walk(program.body) if isinstance(loop, Loop)}
    tiles, loops = extents[next(iter(steps))], [extents[name] for name in steps]
    assert loops == [tiles, depth]
    asked = [k * width + distance + tile * of_tile + k * of_step for tile in range(tiles) for k in range(depth)]
    lines = {place // LINE for place in asked}
    wanted = range(distance // LINE, -(-2 * distance // LINE))
    assert set(wanted) <= lines
    assert len(lines - set(wanted)) <= len(wanted) // 4 + 1


def test_only_where_the_processor_gains_by_it() -> None:
    """And not of one row: there is one tile, which waits for the panel that it reads."""
    program, _ = product(128, 256, 256, host(0))
    assert not program.prefetch_steps("p1")
    program, _ = product(1, 256, 256, host(1))
    assert not program.prefetch_steps("p1")
    gains = {cpu for cpu in ("znver4", "znver5", "graniterapids") if Target.parse(f"x86_64,{cpu}").machine.panels_ahead}
    assert gains == {"graniterapids"}
