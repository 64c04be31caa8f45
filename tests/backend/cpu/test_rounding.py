"""Quantization by one scale for all lanes: against NumPy's division, near the middle of two integers."""

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import tilewright
from tilewright import te
from tilewright.backend.cpu.image import assembly, listing
from tilewright.base.dtypes import DType, f32, i8, u8
from tilewright.cost.analytic import schedule
from tilewright.kernels.schedules import ref
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.ops.operator import require
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks, loops_of
from tilewright.symbolic.expr import ONE
from tilewright.target.target import Target
from tilewright.tensor.build import placeholder

Array = NDArray[np.generic]

COUNT = 4096
V3 = Target.parse("x86_64,x86-64-v3")
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e-40, 1.2e-38, 3.4e38, -1e-3, -1e38, 1.0, 1 / 3, 0.1]


def scales(random: np.random.Generator) -> list[np.float32]:
    drawn = [*np.exp(random.uniform(-87, 88, 40)), *random.uniform(0.5, 2, 60)]
    return [np.float32(scale) for scale in (*SPECIAL, *drawn)]


def near_halves(scale: np.float32, random: np.random.Generator) -> NDArray[np.float32]:
    """Halves of integers times the ``scale``, and their neighbours."""
    halves = random.integers(-300, 300, COUNT) / 2
    x = (halves * np.float64(scale)).astype(np.float32)
    moved = np.where(np.isfinite(x) & (x != 0), random.integers(-2, 3, COUNT), 0).astype(np.int32)
    x = (x.view(np.int32) + moved).view(np.float32)
    x[:8] = [0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45]
    return x


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_quotients_are_rounded_as_divisions_are(kind: str) -> None:
    model = tilewright.compile(
        onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["": 21]>
            net (float[{COUNT}] x, float s, {kind} z) => ({kind}[{COUNT}] y) {{ y = QuantizeLinear(x, s, z) }}"""
        )
    )
    random, limits = np.random.default_rng(0), np.iinfo(kind)
    for scale in scales(random):
        with np.errstate(all="ignore"):
            x = near_halves(scale, random)
            zero = np.array(random.integers(limits.min, limits.max, endpoint=True), kind)
            steps = np.rint(x / scale) + zero.astype(np.float32)
            expected = np.where(np.isnan(steps), 0, np.clip(steps, limits.min, limits.max)).astype(kind)
        (found,) = model.run(None, {"x": x, "s": np.array(scale), "z": zero})
        np.testing.assert_array_equal(found, expected, err_msg=f"scale {scale}, zero point {zero}")


def quantized(rows: int, dtype: DType) -> Program:
    x, scale, zero = placeholder((rows, COUNT), f32, "x"), placeholder((), f32, "s"), placeholder((), dtype, "z")
    return lower(require("QuantizeLinear").apply([x, scale, zero], {}))


def quantizing() -> Schedule:
    return schedule(Schedule(quantized(64, u8)), V3)


def in_lanes(lanes: int, dtype: DType) -> Schedule:
    s = Schedule(quantized(1, dtype))
    (row,) = [loop for loop in loops_of(s.program, BlockRef(all_blocks(s.program.body)[0].name)) if loop.extent != ONE]
    _, inner = s.split(ref(row), (None, lanes))
    s.vectorize(inner)
    return s


@pytest.mark.parametrize("dtype", [u8, i8])
@pytest.mark.parametrize("lanes", [16, 32, 64])
def test_bytes_of_several_vectors_are_those_of_each(lanes: int, dtype: DType) -> None:
    run, random = te.build(in_lanes(lanes, dtype)), np.random.default_rng(lanes)
    for scale in scales(random)[:40:3]:
        with np.errstate(all="ignore"):
            x = near_halves(scale, random)
            zero = np.array(random.integers(int(dtype.min), int(dtype.max), endpoint=True), dtype.numpy)
            steps = np.rint(x / scale) + zero.astype(np.float32)
            expected = np.where(np.isnan(steps), 0, np.clip(steps, int(dtype.min), int(dtype.max))).astype(dtype.numpy)
        found = run(x[None], np.array(scale), zero)
        np.testing.assert_array_equal(found[0], expected, err_msg=f"scale {scale}, zero point {zero}")


def test_vectors_are_put_together_where_the_processor_does_that() -> None:
    wide, narrow = Target.parse("x86_64,znver4"), V3
    for lanes, dtype, name in ((64, u8, "vpackuswb"), (32, i8, "vpacksswb")):
        program = in_lanes(lanes, dtype).program
        assert f"\t{name}" in assembly(program, wide) and "\tvpmovdb" not in assembly(program, wide)
        assert "cvtps2dq.512" not in listing(program, narrow)
    assert "cvtps2dq.512" not in listing(in_lanes(16, u8).program, wide)


def test_vectors_are_not_divided_where_products_and_sums_are_rounded_once() -> None:
    program = quantizing().program
    assert "\tvdivps" not in assembly(program, V3)
    assert "\tvfnmadd" in assembly(program, V3) or "\tvfmadd" in assembly(program, V3)
    assert "\tdivps" in assembly(program, Target.parse("x86_64,x86-64-v2"))


def test_the_scale_and_the_zero_point_are_read_before_loops() -> None:
    lines = listing(quantizing().program, V3).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("define internal void"))
    loop = next(place for place in range(start, len(lines)) if " phi " in lines[place])
    assert any("load float" in line or "load <1 x float>" in line for line in lines[start:loop])
    assert any("load i8" in line for line in lines[start:loop])
    assert not any("load i8" in line for line in lines[loop:])
