"""A template: a schedule of a matrix product in ten lines, with the numbers left open.

    python -m examples.template

``matmul`` asks its config for what it does not know. Nothing else has to be declared: one run finds out which knobs
there are, and with them how many schedules.
"""

from tilewright import te
from tilewright.loops.ir import LoopKind
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.space.config import Config, extent
from tilewright.space.knobs import Policy
from tilewright.space.orders import All
from tilewright.space.space import Space, size
from tilewright.tune.search.random import RandomSearcher


def matmul(s: Schedule, config: Config) -> None:
    """Tiles of C, in blocks of the reduction; the order inside of a tile, vectors and unrolling are open."""
    y, x, k = s.get_loops("C")
    yo, yi = s.split(y, config.split("tile_y", extent(s, y), parts=2))
    xo, xi = s.split(x, config.split("tile_x", extent(s, x), parts=2, policy=Policy.VERBOSE, max_factor=32))
    ko, ki = s.split(k, config.split("tile_k", extent(s, k), parts=2, filter=lambda sizes: sizes[1] <= 16))
    order = config.reorder("order", (ki, yi), All())
    s.reorder(yo, xo, ko, *order, xi)
    config.annotate("inner", s, (yi, xi), (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED))
    if config.choice("parallel", (0, 1)):
        s.parallel(yo)


def product(rows: int, columns: int, depth: int) -> Program:
    """The naive program of ``C[y, x] = sum over k of A[y, k] * B[k, x]``."""
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda y, x: te.sum(a[y, k] * b[k, x], axis=k), name="C")
    return te.create_schedule(c).program


def main() -> None:
    """The space of the product of two 128 x 128 matrices, and one schedule out of it."""
    space = Space.of(matmul, product(128, 128, 128))
    for knob in space.knobs:
        print(f"{knob.name:10}{len(knob.values):4} values")
    candidate = RandomSearcher(space, seed=1).propose(1)[0]
    print(f"{size(space)} schedules; one of them:")
    for name, value in space.describe(candidate).items():
        print(f"{name:10}{value}")
    print(space.schedule(candidate))


if __name__ == "__main__":
    main()
