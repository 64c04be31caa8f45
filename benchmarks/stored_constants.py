"""What it is worth to store constants as a schedule reads them: `python -m benchmarks.stored_constants [TASK ...]`.

For each task, random tiles of the sketch that tiles and does no more are timed with each place where the weights may
be packed: not at all, as a whole in each call, for each tile, for each outer step of the reduction, or before all
calls. The fastest of each place then run in turns: printed are medians of ratios. Weights `w[n, k]` have a row for
each output.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

import numpy as np

from tilewright import te
from tilewright.sketch import sketch_spaces
from tilewright.sketch.packing import NOT, STEPS, STORED, TILE, WHOLE
from tilewright.space.space import Space
from tilewright.target.target import Target
from tilewright.te.kernel import Kernel
from tilewright.tensor.ir import Reduction, Tensor

ROUNDS = 9
WEIGHTS = "W"
DECISION = f"Y.pack.{WEIGHTS}"
PLACES = {NOT: "as it is", WHOLE: "whole", TILE: "each tile", STEPS: "each step", STORED: "stored"}


def dense(rows: int, inner: int, columns: int, *, is_row_for_output: bool) -> tuple[Tensor, Tensor]:
    """A product of a matrix with weights, and the weights."""
    x = te.placeholder((rows, inner), name="X")
    w = te.placeholder((columns, inner) if is_row_for_output else (inner, columns), name=WEIGHTS)
    k = te.reduce_axis((0, inner), "k")

    def element(i: te.Expr, j: te.Expr) -> Reduction:
        return te.sum(x[i, k] * (w[j, k] if is_row_for_output else w[k, j]), axis=k)

    return te.compute((rows, columns), element, name="Y"), w


def convolution(size: int, inner: int, outer: int, kernel: int) -> tuple[Tensor, Tensor]:
    """A convolution of an image that has its border already, channels last, and its filters as ONNX has them."""
    x = te.placeholder((size + kernel - 1, size + kernel - 1, inner), name="X")
    w = te.placeholder((outer, inner, kernel, kernel), name=WEIGHTS)
    c, r, q = (te.reduce_axis((0, extent), name) for extent, name in ((inner, "c"), (kernel, "r"), (kernel, "q")))

    def element(h: te.Expr, v: te.Expr, o: te.Expr) -> Reduction:
        return te.sum(x[h + r, v + q, c] * w[o, c, r, q], axis=(c, r, q))

    return te.compute((size, size, outer), element, name="Y"), w


TASKS: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "dense 4x512x512 w[n, k]": partial(dense, 4, 512, 512, is_row_for_output=True),
    "dense 64x512x512 w[n, k]": partial(dense, 64, 512, 512, is_row_for_output=True),
    "dense 64x512x512 w[k, n]": partial(dense, 64, 512, 512, is_row_for_output=False),
    "dense 16x768x3072 w[k, n]": partial(dense, 16, 768, 3072, is_row_for_output=False),
    "conv 3x3 14x14 128->128": partial(convolution, 14, 128, 128, 3),
    "conv 1x1 14x14 256->256": partial(convolution, 14, 256, 256, 1),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; print a row for each task."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stored_constants", description="Constants laid out anew."
    )
    parser.add_argument("tasks", nargs="*", help=f"default all of {', '.join(TASKS)}")
    parser.add_argument("--candidates", type=int, default=16, help="tiles of each task, default %(default)s")
    options = parser.parse_args(arguments)
    print(f"task: {', '.join(PLACES.values())} (times, as multiples of that of weights that are stored anew)")
    for task in options.tasks or TASKS:
        ratios = compared(*TASKS[task](), options.candidates)
        print(f"{task}: {', '.join(f'{PLACES[place]} {ratio:.2f}' for place, ratio in ratios.items())}", flush=True)


def compared(output: Tensor, weights: Tensor, candidates: int) -> dict[int, float]:
    """The time of the fastest candidate of each place, as a multiple of that of the fastest with stored weights."""
    shape = [int(str(extent)) for extent in weights.shape]
    values = {WEIGHTS: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    schedules = drawn(output, weights, candidates)
    kernels = [(place, te.build(schedule, threads=1, constants=values)) for place, schedule in schedules]
    rough = [kernel.time(repeats=2, least_seconds=0.005) for _, kernel in kernels]
    fastest: dict[int, Kernel] = {}
    for number in np.argsort(rough)[::-1]:
        fastest[kernels[number][0]] = kernels[number][1]
    rounds = [{place: kernel.time(repeats=3) for place, kernel in fastest.items()} for _ in range(ROUNDS)]
    return {place: median(times[place] / times[STORED] for times in rounds) for place in sorted(fastest)}


def drawn(output: Tensor, weights: Tensor, count: int) -> Iterator[tuple[int, te.TeSchedule]]:
    """Random tiles, with each place where the weights may be packed: as a whole, if they are plain inputs."""
    whole = te.create_schedule(output, constants=[weights])
    anew, plain = (last_space(te.create_schedule(output, constants=given)) for given in ([weights], []))
    for digits in anew.sample(count, np.random.default_rng(0)):
        decisions = anew.describe(digits)
        for place in PLACES:
            space = plain if place == WHOLE else anew
            if any(knob.name == DECISION and place in knob.values for knob in space.knobs):
                chosen = space.digits({**decisions, DECISION: place})
                yield place, whole.scheduled(space.schedule(chosen))


def last_space(schedule: te.TeSchedule) -> Space:
    """Of the sketch that tiles and does no more."""
    *_, (_, space) = sketch_spaces(schedule.program, Target.host(), threads=1)
    return space


if __name__ == "__main__":
    main()
