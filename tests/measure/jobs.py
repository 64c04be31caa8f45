"""Small jobs, and a runner whose children obey their names."""

import sys
import zlib
from functools import cache
from pathlib import Path

from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.measure.job import Job, Timing
from tilewright.measure.limits import Limits
from tilewright.measure.runner import Runner
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Var
from tilewright.target.target import Target
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction

FAULTY = (sys.executable, "-P", str(Path(__file__).with_name("faulty_child.py")))
QUICK = Timing(repeats=3, least_seconds=0.0005)
HOST = str(Target.host())
EMPTY = '{"version": 1, "steps": []}'


def product(name: str, size: int = 6) -> Program:
    """A matrix product."""
    a, b = (te.placeholder((size, size), name=name) for name in "AB")
    k = te.reduce_axis((0, size), "k")

    def element(i: Var, j: Var) -> Reduction:
        return te.sum(a[i, k] * b[k, j], axis=k)

    return lower(te.compute((size, size), element, name="C"), name)


@cache
def scheduled(size: int) -> tuple[str, str]:
    """The text of a matrix product that is called NAME, and a schedule for it."""
    program = product("NAME", size)
    schedule = Schedule(program)
    schedule.split("j", (None, 4))
    schedule.vectorize("j_1")
    return str(program), schedule.trace.to_json()


def job(name: str, size: int = 6, *, threads: int = 1) -> Job:
    """A scheduled matrix product; what a faulty child makes of it depends on the name, if that has ``__`` in it.

    Names of programs do not tell jobs apart, so seeds do.
    """
    program, trace = scheduled(size)
    seed = zlib.crc32(name.encode()) if "__" in name else 0
    return Job(program.replace("NAME", name), trace, HOST, threads, timing=QUICK, seed=seed)


def runner(limits: Limits | None = None, *, lanes: int = 1, spares: int = 0) -> Runner:
    """A runner with faulty children."""
    return Runner(limits, lanes=lanes, spares=spares, command=FAULTY)
