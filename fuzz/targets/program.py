"""The text of loop programs: parsed, printed, verified; small ones interpreted, and compiled with bounds checks."""

from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

import fuzz
from fuzz.target import Target, sampled
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, BadProgram, OutOfBounds, Unsupported
from tilewright.compilation import build_program
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Loop
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.loops.visit import walk
from tilewright.symbolic.expr import Const
from tilewright.target.target import Target as Machine

GOLDEN = Path(fuzz.__file__).parents[1] / "tests" / "golden"
MOST_POINTS = 20_000
MOST_ELEMENTS = 1 << 14


def check(data: bytes) -> None:
    """The text reads back as it prints; what the verifier lets through computes the same natively."""
    program = parse_program(data.decode("utf-8", "surrogateescape"))
    assert str(parse_program(str(program))) == str(program)
    verify(program)
    if sampled(data, 4) and _is_small(program):
        _compare(program)


def _is_small(program: Program) -> bool:
    """Whether nothing in it is large: extents are literals."""
    points = 1
    for stmt in walk(program.body):
        if isinstance(stmt, Loop):
            points *= max(1, int(stmt.extent.value)) if isinstance(stmt.extent, Const) else MOST_POINTS
    sizes = [extent for param in program.params for extent in param.shape]
    if program.dims or not all(isinstance(extent, Const) for extent in sizes):
        return False
    elements = sum(prod(int(e.value) for e in p.shape if isinstance(e, Const)) for p in program.params)
    return points <= MOST_POINTS and elements <= MOST_ELEMENTS


def _compare(program: Program) -> None:
    """The interpreter, which checks everything, against code with bounds checks."""
    source = np.random.default_rng(1)
    feeds: dict[str, Array] = {}
    for param in program.inputs:
        shape = tuple(int(extent.value) for extent in param.shape if isinstance(extent, Const))
        feeds[param.name] = source.integers(0, 3, shape).astype(param.dtype.numpy)
    try:
        expected = interpret(program, feeds)
    except (BadProgram, OutOfBounds, BadFeed):
        return
    try:
        executable = build_program(program, Machine.host(), threads=1, checked=True)
    except Unsupported:
        return
    found = executable.run(feeds)
    for array, result in zip(found, program.results, strict=True):
        np.testing.assert_allclose(array, expected[result.name], rtol=1e-5, atol=1e-5)


def seeds() -> Iterator[bytes]:
    """The programs of the golden files."""
    for path in sorted(GOLDEN.glob("*/*.txt")):
        for text in path.read_text().split("\n\n"):
            if text.startswith("program "):
                yield text.encode() + b"\n"


WORDS = (
    *(
        "block ",
        "reads ",
        "writes ",
        "init:",
        "alloc ",
        " in local",
        " where ",
        "if ",
        "kernel ",
        "barrier",
        " in shared",
        "threadIdx.x(4)",
    ),
    *("range(", "parallel(", "vectorized(", "unrolled(", "spatial ", "reduce ", "ordered "),
    *("select(", "f32(", "i64(", "bool", " // ", " % ", " +: "),
)
TARGET = Target("program", check, seeds, words=WORDS, runs=16_000)
