"""Tiles that are estimated from their sizes take what the schedules with these sizes take."""

import numpy as np
import pytest

from tests.sketch.programs import matmul, product_of_rows
from tilewright import te
from tilewright.base.errors import Unsupported
from tilewright.sketch import sketch_spaces
from tilewright.target.target import Target
from tilewright.tensor.ir import Tensor
from tilewright.tune.features.cycles import program_cycles
from tilewright.tune.untuned.tiles import untiled

TARGET = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M")


@pytest.mark.parametrize("output", [matmul(48, 96, 40), product_of_rows(32, 48, 96)], ids=["product", "rows"])
def test_they_take_what_their_schedules_take(output: Tensor) -> None:
    program = te.create_schedule(output).program
    (space,) = [space for sketch, space in sketch_spaces(program, TARGET, threads=1) if str(sketch) == "tile(C)"]
    block = untiled(program, ["C"], TARGET)["C"]
    for digits in space.sample(24, np.random.default_rng(0)):
        decisions = {**space.describe(digits), "C.pack.B": 0}
        made = space.schedule(space.digits({knob.name: decisions[knob.name] for knob in space.knobs}))
        assert block.cycles(decisions) == pytest.approx(program_cycles(made.program, TARGET))


def test_packing_makes_lanes_neighbours() -> None:
    program = te.create_schedule(product_of_rows(32, 48, 96)).program
    block = untiled(program, ["C"], TARGET)["C"]
    sizes = {"C.i": (4, 1, 1, 8), "C.j": (1, 1, 3, 16), "C.r": (6, 16), "C.unroll": 64}
    names = {f"C.{name}": sizes[f"C.{letter}"] for letter, (name, _, _) in zip("ijr", block.axes, strict=True)}
    decisions = {**names, "C.unroll": 64}
    assert block.cycles({**decisions, "C.pack.B": 1}) < 0.5 * block.cycles({**decisions, "C.pack.B": 0})


def test_other_levels_are_refused() -> None:
    block = untiled(te.create_schedule(matmul(8, 8, 8)).program, ["C"], TARGET)["C"]
    with pytest.raises(Unsupported, match="usual levels"):
        block.cycles({"C.unroll": 16})
