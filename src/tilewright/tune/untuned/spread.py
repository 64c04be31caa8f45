"""Parallel loops of a schedule that was made for one core."""

from collections.abc import Iterator

from tilewright.base.errors import ScheduleError
from tilewright.kernels.schedules import iterations, ref
from tilewright.loops.ir import Alloc, Loop, LoopKind, Seq, Stmt
from tilewright.schedule.schedule import Schedule
from tilewright.target.machine import ENOUGH_CHUNKS
from tilewright.target.target import Target


def spread(s: Schedule, target: Target) -> None:
    """Make outermost loops with enough work parallel, as far as they may be, until there are ``ENOUGH_CHUNKS``."""
    for outermost in list(_outermost(s.program.body)):
        loop: Stmt = outermost
        chunks = 1 if _points(outermost) >= target.machine.parallel_work else ENOUGH_CHUNKS
        while isinstance(loop, Loop) and loop.kind is LoopKind.SERIAL and chunks < ENOUGH_CHUNKS:
            try:
                if iterations(loop) > 1:
                    s.parallel(ref(loop))
            except ScheduleError:  # its iterations depend on each other, as those of a reduction do
                break
            chunks *= iterations(loop)
            loop = loop.body


def _outermost(stmt: Stmt) -> Iterator[Loop]:
    match stmt:
        case Loop():
            yield stmt
        case Seq(statements):
            for inner in statements:
                yield from _outermost(inner)
        case Alloc(_, body):
            yield from _outermost(body)
        case _:
            pass


def _points(stmt: Stmt) -> int:
    """How often blocks run."""
    match stmt:
        case Loop(body=body):
            return iterations(stmt) * _points(body)
        case Seq(statements):
            return sum(map(_points, statements))
        case Alloc(_, body):
            return _points(body)
        case _:
            return 1
