"""Register tiles by dot-product instructions: what the compiler chooses, and that a tuner can build it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.backend.cpu.prepare import prepare
from tilewright.base.dtypes import DType, i8, i32, u8
from tilewright.cost.analytic import open_space, schedule
from tilewright.kernels.dot_products import all_dot_products
from tilewright.kernels.nests import Tiles
from tilewright.kernels.relayout import blocked, relayout, spread
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Call, If, Loop
from tilewright.loops.lower import lower
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.measure.build import Builder
from tilewright.measure.job import Job
from tilewright.ops.operator import require
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.tensor.build import placeholder
from tilewright.tensor.ir import Tensor
from tilewright.tune.spaces import kernel_space, space_of

BEST = Target.parse("x86_64,znver5")


def product(m: int, k: int, n: int, columns: int) -> Program:
    a, b = placeholder((m, k), u8, "a"), placeholder((n // 16, k // 4, 16, 4), i8, "b")
    return lower(require("DotProducts").apply([a, b], {"columns": columns})[0])


def called(program: Program) -> set[str]:
    return {stmt.callee for stmt in walk(program.body) if isinstance(stmt, Call)}


@pytest.mark.parametrize("columns", [96, 90])
@pytest.mark.parametrize("rows", [1, 13, 64])
def test_the_compiler_chooses_a_tile_by_instructions(rows: int, columns: int) -> None:
    naive = product(rows, 64, 96, columns)
    (nest,) = open_space(Schedule(naive), BEST).nests
    assert isinstance(nest, Tiles) and nest.instruction is not None
    assert nest.values("lanes") == (16, 32)  # 64 is no part of 96
    assert called(schedule(Schedule(naive), BEST).program) == {"vpdpbusd_zero", "vpdpbusd_add"}


def test_one_strip_of_columns() -> None:
    a, b = placeholder((8, 64), u8, "a"), placeholder((1, 16, 16, 4), i8, "b")
    columns = {"columns": 16}
    for naive in (lower(require("DotProducts").apply([a, b], columns)[0]), _simplified(a, b)):
        assert called(schedule(Schedule(naive), BEST).program) == {"vpdpbusd_zero", "vpdpbusd_add"}


def _simplified(a: Tensor, b: Tensor) -> Program:
    """As it is where layouts were chosen: the strip is 0."""
    product = require("DotProducts").apply([a, b], {"columns": 16})[0]
    return lower(relayout([product], {})[product])


def test_other_processors_have_other_tiles() -> None:
    naive = product(13, 64, 96, 96)
    old = Target.parse("x86_64")
    assert not any(isinstance(nest, Tiles) and nest.instruction for nest in open_space(Schedule(naive), old).nests)
    assert not called(schedule(Schedule(naive), old).program)


@pytest.mark.parametrize(("left", "right"), [(u8, u8), (i8, i8)])
def test_other_types_have_other_tiles(left: DType, right: DType) -> None:
    a, b = placeholder((8, 64), left, "a"), placeholder((64, 32), right, "b")
    wide = [require("Cast").apply([x], {"to": i32})[0] for x in (a, b)]
    naive = lower(require("MatMul").apply(wide, {})[0])
    assert not called(schedule(Schedule(naive), BEST).program)


def test_traces_and_texts_are_built_by_others() -> None:
    naive = product(13, 64, 96, 90)
    made = schedule(Schedule(naive), BEST)
    assert parse_program(str(made.program), all_dot_products().forms) == made.program
    assert replay(made.trace, naive, intrinsics=all_dot_products()).program == made.program
    by_trace = Job(str(naive), made.trace.to_json(), str(BEST))
    by_text = replace(by_trace, scheduled=str(made.program))
    objects = [Builder(1 << 30).build(job).objects for job in (by_trace, by_text)]
    assert objects[0] == objects[1]


def test_they_are_searched_by_their_own_knobs() -> None:
    naive = product(13, 64, 96, 96)
    assert space_of(naive, BEST).knobs == kernel_space(naive, BEST).knobs


def padded_convolution(size: tuple[int, ...], channels: int, strides: int, around: Tensor | None) -> Program:
    """Three taps in each dimension, and as many filters as channels."""
    rank, blocks = len(size), channels // 16
    x = placeholder((1, channels, *size), u8, "x")
    weight = placeholder((blocks, blocks, *(3,) * rank, 4, 16, 4), i8, "w")
    attributes = {"filters": channels, "strides": (strides,) * rank, "pads": (1,) * (2 * rank)}
    made = require("BlockedDotConvolution").apply([x, weight, around], attributes)[0]
    layouts = spread([made], {tensor: blocked(tensor.ndim, 16) for tensor in (x, made)}, BEST.machine)
    placed = relayout([made], layouts)
    inputs = [placed[x], weight, *([] if around is None else [around])]
    return lower([placed[made]], inputs=inputs)


@settings(max_examples=6)
@given(size=st.sampled_from([(2, 5), (2, 1, 3), (3, 3)]), strides=st.sampled_from([1, 2]), is_given=st.booleans())
def test_taps_in_the_padding_are_left_out(size: tuple[int, ...], strides: int, *, is_given: bool) -> None:
    """If it is known to be 0; the results are those of all taps."""
    naive = padded_convolution(size, 16, strides, placeholder((), u8, "around") if is_given else None)
    made = schedule(Schedule(naive), BEST)
    if strides == 1:  # with a stride, all positions of a short axis may leave out the same taps
        assert ("skip_padding" in str(made.trace)) is not is_given
    assert called(made.program) == {"vpdpbusd_zero", "vpdpbusd_add"}
    random = np.random.default_rng(0)
    kinds = {u8: (0, 256), i8: (-128, 128)}
    feeds = {
        p.name: np.asarray(random.integers(*kinds[p.dtype], [int(str(e)) for e in p.shape]), p.dtype.numpy)
        for p in naive.params
        if p.dtype in kinds
    }
    (expected,), (found,) = (interpret(program, feeds).values() for program in (naive, made.program))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("size", "channels", "is_left_out"),
    [((4, 14, 14), 64, True), ((14, 14), 64, False), ((7, 7), 64, True), ((7, 7), 512, False)],
)
def test_how_much_padding_is_left_out(size: tuple[int, ...], channels: int, is_left_out: bool) -> None:
    """A twentieth of the terms; a tenth by filters that do not fit in the second cache, of which the next panel is then
    not asked for. Terms of a row of a tile do not count."""
    target = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M")
    made = schedule(Schedule(padded_convolution(size, channels, 1, None)), target)
    assert ("skip_padding" in str(made.trace)) is is_left_out


def test_a_tap_is_tested_once_for_all_channels_of_a_block() -> None:
    made = schedule(Schedule(padded_convolution((2, 7, 7), 64, 1, None)), BEST)
    conditions = [node for node in walk(prepare(made.program).body) if isinstance(node, If)]
    assert conditions and all(any(isinstance(inner, Loop) for inner in walk(node.then)) for node in conditions)
