"""Random schedules for a device run on the reference back end: equal to NumPy, without a finding. So do CPUs'.

100 of them, and 400 more in the slow tests.
"""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from tests.backend.cpu.random_schedule import INTRINSICS, PROPOSALS, random_chain
from tests.backend.cpu.workloads import WORKLOADS as CPU_WORKLOADS
from tests.backend.reference.random_schedule import MATMUL, WORKLOADS, scheduled, tiled, uses
from tilewright.backend.reference import run_reference
from tilewright.base.arrays import Array
from tilewright.loops.dissolve import dissolve
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import NOTHING, Barrier
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.loops.visit import transform_stmts, walk
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule

SHARDS = [0, *(pytest.param(shard, marks=pytest.mark.slow) for shard in range(1, 10))]
EACH = 50
LEAST = {
    "cache_read": 25,
    "compute_at": 15,
    "double_buffer": 4,
    "storage_align": 4,
    "lower_virtual_thread": 3,
    "vthread": 4,
    "shared": 25,
    "local": 5,
    "threadIdx.x": 20,
    "blockIdx.y": 15,
}
"""Schedules of each shard that have them, at least."""


@pytest.mark.parametrize("shard", SHARDS)
def test_random_schedules_equal_numpy_without_races(shard: int) -> None:
    random, seen, done = Random(shard), Counter[str](), 0
    while done < EACH:
        drawn = random.choice(WORKLOADS)
        is_tiled = done % 5 == 0
        workload = MATMUL if is_tiled else drawn
        s = tiled(random) if is_tiled else scheduled(random, workload)
        if s is None:
            continue
        done += 1
        seen.update({step.primitive.value for step in s.trace.steps} | uses(s.program))
        try:
            _check(s, workload.expected(**(feeds := _feeds(workload.program, done))), feeds)
        except Exception as error:
            error.add_note(f"{s.trace}\n{s}")
            raise
        if done % 7 == 0:  # as code generators see it
            run_reference(replace(s.program, body=dissolve(s.program.body)), feeds)[1].check()
        if is_tiled:
            assert replay(s.trace, workload.program).program == s.program
            assert run_reference(_without_barriers(s.program), feeds)[1].races
    assert not {name: seen[name] for name, least in LEAST.items() if seen[name] < least}


@pytest.mark.parametrize("number", range(40))
def test_schedules_for_cpus_run_too(number: int) -> None:
    """Intrinsics, run-time extents, several results, padding, recurrences: equal to the interpreter, bit by bit."""
    random = Random(number)
    workload = random.choice(CPU_WORKLOADS)
    s = Schedule(workload.program, INTRINSICS, seed=number)
    program = random_chain(random, s, [*PROPOSALS][number % len(PROPOSALS)], steps=7).schedule.program
    outputs, report = run_reference(program, workload.feeds)
    report.check()
    for name, expected in interpret(program, workload.feeds).items():
        np.testing.assert_array_equal(outputs[name], expected)


def _feeds(program: Program, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {p.name: rng.integers(-5, 6, [int(str(e)) for e in p.shape]).astype(np.int32) for p in program.inputs}


def _check(s: Schedule, expected: Array, feeds: dict[str, Array]) -> None:
    verify(s.program)
    assert parse_program(str(s.program)) == s.program
    outputs, report = run_reference(s.program, feeds)
    report.check()
    np.testing.assert_array_equal(outputs[s.program.results[0].name], expected)


def _without_barriers(program: Program) -> Program:
    assert any(isinstance(node, Barrier) for node in walk(program.body))
    body = transform_stmts(program.body, lambda stmt: NOTHING if isinstance(stmt, Barrier) else None)
    return replace(program, body=body)
