"""Products with weights that come from memory, asked for ahead or not: `python -m benchmarks.streams`.

For each number of rows, the tile that the analytic model chooses, and the same kernel with nothing asked for and with
the weights asked into each cache. The weights are cold in each run. Wants a quiet machine.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from tilewright.frontend.onnx.read.importer import load
from tilewright.kernels import tile_blocks
from tilewright.measure.job import Job
from tilewright.measure.pool import Pool
from tilewright.space.space import Space
from tilewright.target.target import Target
from tilewright.tune import spaces
from tilewright.tune.kernel_tuner import CAREFUL, compared
from tilewright.tune.recorded import named

from .choices import compiled
from .operator_models import Parts, assemble, matmul
from .options import numbers

ROUNDS = 6


def space_of(rows: int, size: int, target: Target) -> Space:
    """The space of a product of `rows` rows with a square matrix of weights."""
    parts = Parts(np.random.default_rng(0))
    model, _ = assemble(parts, matmul(parts, 1, rows, size, size), "product")
    made, _ = compiled(load(model), target)
    return spaces.space_of(made.kernels[-1].naive, target)


def jobs_of(space: Space) -> dict[int, Job]:
    """By the cache that the weights are asked into; 0: they are not asked for."""
    place = [knob.name for knob in space.knobs].index(tile_blocks.PREFETCH)
    weights = max(space.naive.inputs, key=lambda buffer: np.prod([int(str(extent)) for extent in buffer.shape])).name
    timing = replace(CAREFUL, cold=(weights,), between_bytes=2 * space.target.l3_bytes)
    found: dict[int, Job] = {}
    for digit, cache in enumerate(cast("tuple[int, ...]", space.knobs[place].values)):
        digits = space.analytic().copy()
        digits[place] = digit
        trace = space.schedule(digits).trace.to_json()
        found[cache] = Job(str(named(space.naive)), trace, str(space.target), timing=timing)
    return found


def microseconds(jobs: dict[int, Job], pool: Pool) -> dict[int, float]:
    """Of each job, in rounds of other data, each in another order."""
    rounds: list[list[float]] = []
    for seed in range(ROUNDS):
        order = np.random.default_rng(seed).permutation(list(jobs)).tolist()
        wanted = {replace(jobs[cache], seed=seed).id: cache for cache in order}
        outcomes = pool.measure_all([replace(jobs[cache], seed=seed) for cache in order])
        times = {wanted[job.id]: outcome.median_us or np.inf for job, outcome in outcomes}
        rounds.append([times[cache] for cache in jobs])
    return dict(zip(jobs, compared(rounds), strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each number of rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description="Weights that are asked for.")
    parser.add_argument("--rows", type=numbers, default=[1, 2, 4, 6, 8, 16, 32, 64, 128], help="numbers of rows")
    parser.add_argument("--size", type=int, default=2048, help="of the square matrix, default %(default)s")
    parser.add_argument("--target", type=Target.parse, default=Target.host(), help="default: this processor")
    options = parser.parse_args(arguments)
    with Pool(1) as pool:
        for rows in options.rows:
            space = space_of(rows, options.size, options.target)
            chosen = space.describe(space.analytic())
            times = ", ".join(f"{cache}: {time:.0f}" for cache, time in microseconds(jobs_of(space), pool).items())
            tile, cache = chosen[tile_blocks.TILE], chosen[tile_blocks.PREFETCH]
            print(f"{rows:4} rows, tile {tile}, cache {cache}; us by the cache: {times}", flush=True)


if __name__ == "__main__":
    main()
