"""Random schedules keep the meaning: the interpreter before, the interpreter after, and native code agree.

300 chains of primitives over the programs of ``workloads``, and 1,700 in the slow tests; each shard has its own seeds,
so its counts are always the same, and each primitive is accepted often enough in every shard. All chains are compiled
and run on two threads, a fourth of them with bounds checks. Floats that are exact in any order must have equal bits.
"""

from collections import Counter
from random import Random

import numpy as np
import pytest

from tests.backend.cpu.random_schedule import INTRINSICS, PROPOSALS, Chain, random_chain
from tests.backend.cpu.workloads import WORKLOADS, Array, Workload
from tilewright.base.store import Store
from tilewright.compilation import build_program
from tilewright.loops.interpreter import Order, interpret
from tilewright.loops.parser import parse_program
from tilewright.loops.verify import verify
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Primitive
from tilewright.target.target import Target

SHARDS = [0, *(pytest.param(shard, marks=pytest.mark.slow) for shard in range(1, 20))]
CHAINS = 100
"""In each shard."""
LEAST_MEAN = 5.0
"""Accepted steps of a chain."""
LEAST_EACH = 3
"""Times that each primitive is accepted in each shard: 9 or more in all, 60 with the slow ones."""

RARE = (Primitive.TENSORIZE, Primitive.COMPUTE_INLINE, Primitive.REVERSE_COMPUTE_INLINE, Primitive.REVERSE_COMPUTE_AT)
WISHES = (*PROPOSALS, *RARE)
SUITED = {
    Primitive.TENSORIZE: {"tiled_matmul", "matmul_prime", "chained_matmuls", "dense", "dot_i8", "strided_depthwise"},
    Primitive.REVERSE_COMPUTE_INLINE: {"elementwise", "mixed_dtypes", "gather", "dense", "any_row", "layer_norm"},
}
"""Programs that wishes for rare primitives are tried on."""

NEEDS_ANOTHER_TARGET = {
    Primitive.BIND,
    Primitive.STORAGE_ALIGN,
    Primitive.DOUBLE_BUFFER,
    Primitive.LOWER_VIRTUAL_THREAD,
    Primitive.PLACE_BARRIERS,
}
NEEDS_ZEROS = {Primitive.SKIP_ZEROS, Primitive.SKIP_PADDING}
"""No program here multiplies by known zeros; those of tests/sketch/test_written_out.py and
tests/schedule/test_skip_padding.py do."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Main and support functions are the same for many programs."""
    return Store(tmp_path_factory.mktemp("objects"), 64 << 20)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.host()


@pytest.mark.parametrize("shard", SHARDS)
def test_random_schedules_keep_the_meaning(shard: int, cache: Store, target: Target) -> None:
    accepted: Counter[Primitive] = Counter()
    for number in range(shard * CHAINS, (shard + 1) * CHAINS):
        workload, chain = _chain(number)
        accepted.update(chain.accepted)
        try:
            _check(number, workload, chain, cache, target)
        except Exception as error:
            error.add_note(f"chain {number}, {workload.name}:\n{chain.schedule.trace}\n{chain.schedule}")
            raise
    rare = {p.value: accepted[p] for p in PROPOSALS if accepted[p] < LEAST_EACH}
    assert not rare, f"seldom accepted: {rare}"
    assert accepted.total() >= LEAST_MEAN * CHAINS


def test_all_primitives_are_proposed() -> None:
    assert {*PROPOSALS} | NEEDS_ANOTHER_TARGET | NEEDS_ZEROS == {*Primitive}


def _chain(number: int) -> tuple[Workload, Chain]:
    random = Random(number)
    wish = WISHES[number % len(WISHES)]
    workload = random.choice([w for w in WORKLOADS if wish not in SUITED or w.name in SUITED[wish]])
    schedule = Schedule(workload.program, INTRINSICS, seed=number)
    return workload, random_chain(random, schedule, wish, steps=random.randint(5, 9))


def _check(number: int, workload: Workload, chain: Chain, cache: Store, target: Target) -> None:
    program = chain.schedule.program
    verify(program)
    assert parse_program(str(program), program.intrinsics) == program
    assert replay(chain.schedule.trace, workload.program, intrinsics=INTRINSICS).program == program
    order = (Order.ASCENDING, Order.REVERSED, Order.SHUFFLED)[number % 3]
    _compare(interpret(program, workload.feeds, order=order), workload, "interpreter")
    executable = build_program(program, target, threads=2, checked=number % 4 == 0, cache=cache)
    names = [result.name for result in program.results]
    _compare(dict(zip(names, executable.run(workload.feeds), strict=True)), workload, "native code")


def _compare(found: dict[str, Array], workload: Workload, source: str) -> None:
    for name, expected in workload.expected.items():
        assert found[name].dtype == expected.dtype, source
        if workload.tolerance == 0:
            np.testing.assert_array_equal(found[name], expected, source)
        else:
            scale = np.abs(expected).max(initial=0)
            np.testing.assert_allclose(found[name], expected, 0, workload.tolerance * scale, err_msg=source)
