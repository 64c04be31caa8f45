"""What it is worth to lay constants out anew: `python -m benchmarks.stored_constants [TASK ...] [--seconds 20]`.

Each task is searched in sketches alone, with its weights as constants, so that the schedule decides how they are
stored, and as plain inputs. Then both kernels and the analytic choice run in turns, on the same data: printed are
medians of ratios. Weights `w[n, k]` have a row for each output.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import numpy as np

from tilewright import te
from tilewright.tensor.ir import Reduction, Tensor

ROUNDS = 9
WEIGHTS = "W"


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
    """Search and measure; print a row for each task."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stored_constants", description="Constants laid out anew."
    )
    parser.add_argument("tasks", nargs="*", help=f"default all of {', '.join(TASKS)}")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each search, default %(default)s")
    options = parser.parse_args(arguments)
    print("task: plain / stored anew, analytic choice / stored anew (medians of runs in turns); layout", flush=True)
    for task in options.tasks or TASKS:
        plain, analytic, layout = compared(TASKS[task], options.seconds / 60)
        print(f"{task}: {plain:.2f}, {analytic:.2f}; {layout or 'as it was'}", flush=True)


def compared(task: Callable[[], tuple[Tensor, Tensor]], minutes: float) -> tuple[float, float, str]:
    """The times without constants and of the analytic choice, as multiples of that with constants; and the layout."""
    output, weights = task()
    search = partial(te.autoschedule, output, minutes=minutes, space="sketches")
    stored, plain, analytic = search(constants=[weights]), search(), te.autoschedule(output)
    shape = [int(str(extent)) for extent in weights.shape]
    values = {WEIGHTS: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    kernels = [te.build(schedule, threads=1, constants=values) for schedule in (stored, plain, analytic)]
    rounds = [[kernel.time(repeats=3, least_seconds=0.02) for kernel in kernels] for _ in range(ROUNDS)]
    ratios = [median(times[place] / times[0] for times in rounds) for place in (1, 2)]
    return ratios[0], ratios[1], stored.program.layout(WEIGHTS)


if __name__ == "__main__":
    main()
