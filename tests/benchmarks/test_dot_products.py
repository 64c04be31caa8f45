import re

import pytest

from benchmarks.dot_products import CASES, CHAINS, Case, chains, scheduled
from tilewright import te
from tilewright.backend.cpu.image import assembly
from tilewright.backend.cpu.llvm import compile_assembly
from tilewright.target.target import Target

TARGET = Target.parse("x86_64,znver5")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.intrinsic)
def test_the_peak_is_the_instruction_alone(case: Case) -> None:
    intrinsic = te.dot_products(TARGET).get(case.intrinsic)
    assert intrinsic is not None
    loop = compile_assembly(chains(intrinsic), TARGET)
    lines = [line for line in loop.splitlines() if case.intrinsic in line]
    assert len(lines) == CHAINS
    assert len({line.split("%")[-1] for line in lines}) == CHAINS  # accumulators of their own
    assert not any("(" in line for line in lines)  # none reads memory
    tiles = assembly(te.lower(scheduled(case, intrinsic)), TARGET)
    assert len(re.findall(rf"\b{case.intrinsic}\b", tiles)) == 2 * case.tile
