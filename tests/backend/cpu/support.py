"""Compiling small loop programs for tests."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tilewright.base.checks import Checks
from tilewright.base.store import Recent
from tilewright.compilation import build_program
from tilewright.loops.program import Program
from tilewright.target.target import Target

Array = NDArray[np.generic]


def run_native(
    program: Program,
    feeds: dict[str, Array],
    threads: int = 1,
    checked: bool = False,
    checks: Checks = Checks.ON,
    target: Target | None = None,
) -> list[Array]:
    """The outputs of ``program`` as native code, for ``target``: by default this machine."""
    made_for = Target.host() if target is None else target
    executable = build_program(program, made_for, threads=threads, checked=checked, checks=checks, cache=compiled())
    return executable.run(feeds)


@cache
def compiled() -> Recent:
    """What most programs have in common takes three times as long to compile as they do."""
    return Recent(64)
