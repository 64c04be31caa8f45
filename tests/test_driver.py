"""The driver shows what each stage makes, once, in the order in which the stages are listed."""

import re
from pathlib import Path

from tests.passes.graphs import apply, value
from tilewright.base.settings import Stage
from tilewright.compilation import Options, Services
from tilewright.driver import compile_graph
from tilewright.graph import Graph
from tilewright.loops.parser import parse_program
from tilewright.target.target import Target

ROOT = Path(__file__).parents[1]


def test_every_stage_is_shown() -> None:
    x = value("x", 4)
    node = apply("Relu", [x], "y")
    shown: list[Stage] = []
    services = Services(watch=lambda stage, _: shown.append(stage))
    compile_graph(Graph("g", (x,), node.outputs, (node,), {}), Options(Target.host()), services)
    assert shown == [stage for stage in Stage if stage is not Stage.SUPEROPT]  # only where it is asked for


def test_every_stage_is_documented() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    told = page.replace("\n", " ").replace(" (if it is asked for)", "")
    assert ", ".join(f"`{stage.value}`" for stage in Stage) in told


def test_kernels_are_printed_with_the_names_of_the_model() -> None:
    """A program with them is the same program; names that the kernel has itself, and calls that differ, keep theirs."""
    x, z = value("x", 4), value("/in 0", 4)
    y = apply("Add", [x, z], "i0")
    first = Graph("g", (x, z), y.outputs, (y,), {})
    kernel = compile_graph(first, Options(Target.host())).kernels[0]
    text = kernel.naive_text()
    assert text.startswith(f"program {kernel.program.name}(x: f32[4], _in_0: f32[4]) -> (i0_1: f32[4]):")
    assert str(kernel).startswith(f"program {kernel.program.name}(x: f32[4], _in_0: f32[4]) -> (i0_1: f32[4]):")
    (result,) = (buffer.name for buffer in kernel.naive.results)
    renamed = {"x": "p0", "_in_0": "p1", "i0_1": result}
    assert re.sub(r"\w+", lambda word: renamed.get(word[0], word[0]), text) == str(kernel.naive)
    assert str(parse_program(text)) == text


def test_parameters_that_differ_between_calls_keep_their_names() -> None:
    x = value("x", 4, 4)
    first = apply("MatMul", [x, x], "a")
    second = apply("MatMul", [first.outputs[0], x], "b")
    third = apply("MatMul", [second.outputs[0], x], "c")
    graph = Graph("g", (x,), third.outputs, (first, second, third), {})
    kernel = next(kernel for kernel in compile_graph(graph, Options(Target.host())).kernels if len(kernel.groups) == 2)
    assert "(p0: f32[4, 4], x: f32[4, 4]) ->" in kernel.naive_text()
