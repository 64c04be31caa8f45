"""Everything that numbers depend on in a compiled model, without compiling it to the end."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import onnx

from tilewright.backend.cpu import image
from tilewright.base.settings import Stage
from tilewright.compilation import Options, Services
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read import importer
from tilewright.loops.ir import Block, Loop
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.passes.scheduled import ScheduledKernel
from tilewright.symbolic.expr import ZERO, Extent, Var, format_expr
from tilewright.target.target import Target


@dataclass(frozen=True)
class Text:
    """The code of a model, as text, and its programs. Equal ones compute the same bits of the same constants."""

    kernels: tuple[str, ...]
    """Programs and traces, printed."""
    code: image.Code
    more_workspace: str
    """Bytes that depend on run-time extents: a formula in their names inside."""


class _Enough(Exception):
    """The rest would be LLVM's work."""


def text_of(model: onnx.ModelProto, bounds: Mapping[str, int] | None = None) -> Text:
    """The code of ``model``. Raises what compiling it does."""
    seen: dict[Stage, object] = {}

    def watch(stage: Stage, made: object) -> None:
        seen[stage] = made
        if stage is Stage.MAIN:
            raise _Enough

    graph = importer.load(model, bounds=bounds)
    with suppress(_Enough):
        compile_graph(graph, Options(Target.host(), bounds=bounds or {}), Services(watch=watch))
    kernels, main = seen[Stage.SCHEDULE], seen[Stage.MAIN]
    assert isinstance(kernels, dict) and isinstance(main, Program)
    kernels = list(kernels.values())
    assert all(isinstance(kernel, ScheduledKernel) for kernel in kernels)
    code = image.emit(main, [kernel.program for kernel in kernels], Target.host())
    for program in (main, *(each for kernel in kernels for each in (kernel.naive, kernel.program))):
        _check_kinds(program)
    needs, more = replace(code.needs, more_workspace=ZERO), format_expr(code.needs.more_workspace)
    texts = tuple(f"{kernel.program}\n{kernel.schedule.trace}" for kernel in kernels)
    return Text(texts, replace(code, needs=needs), more)


def _check_kinds(program: Program) -> None:
    """What is called by the importer is a run-time extent, and nothing else is."""
    assert all(type(dim.var) is Extent and re.fullmatch(r"n\d+", dim.var.name) for dim in program.dims)
    for stmt in walk(program.body):
        if isinstance(stmt, Loop):
            assert type(stmt.var) is Var
        elif isinstance(stmt, Block):
            assert all(type(axis.var) is Var for axis in stmt.axes)
