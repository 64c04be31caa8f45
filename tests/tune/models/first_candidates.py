"""Random candidates of a program that none of the networks has, with times: a transposed product.

`python -m tests.tune.models.first_candidates` measures them anew, in a minute. Most are far from the best: the times of
a busy machine do.
"""

import json
import lzma
from pathlib import Path

import numpy as np

from tilewright import te
from tilewright.base.search import Spaces
from tilewright.loops.program import Program
from tilewright.measure.job import Job, Timing
from tilewright.measure.pool import Pool
from tilewright.schedule.replay import replay
from tilewright.schedule.trace import Trace
from tilewright.space.space import Floats
from tilewright.symbolic.expr import Var
from tilewright.target.target import Target
from tilewright.tensor.ir import Reduction
from tilewright.tune.spaces import candidates_of

FILE = Path(__file__).with_suffix(".json.xz")
TARGET = "x86_64,znver4,cores=2"
COUNT = 64


def product() -> Program:
    """192 x 256 elements, each a sum of 320 products; both operands are read along their rows."""
    a, b = te.placeholder((192, 320), name="A"), te.placeholder((256, 320), name="B")
    k = te.reduce_axis((0, 320), "k")

    def element(i: Var, j: Var) -> Reduction:
        return te.sum(a[i, k] * b[j, k], axis=k)

    return te.create_schedule(te.compute((192, 256), element, name="C")).program


def load() -> tuple[list[Program], Floats]:
    """The scheduled programs, and microseconds of each."""
    found = json.loads(lzma.decompress(FILE.read_bytes()))
    programs = [replay(Trace.from_json(trace), product()).program for _, trace in found]
    return programs, np.array([us for us, _ in found], np.float64)


def main() -> None:
    """Measure, and write the file."""
    space = candidates_of(product(), Target.parse(TARGET), Spaces.SKETCHES)
    assert space is not None
    traces = [space.schedule(one).trace.to_json() for one in space.sample(COUNT, np.random.default_rng(0))]
    timing = Timing(repeats=5, least_seconds=0.0005)
    jobs = [Job(str(product()), trace, str(Target.host()), timing=timing) for trace in dict.fromkeys(traces)]
    with Pool(builders=1) as pool:
        measured = [(min(done.times_us), job.trace) for job, done in pool.measure_all(jobs) if done.times_us]
    FILE.write_bytes(lzma.compress(json.dumps(measured).encode()))


if __name__ == "__main__":
    main()
