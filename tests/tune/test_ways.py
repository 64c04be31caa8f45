"""Ways to compute convolutions: all are measured, and compile uses what was."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.passes.networks import HOST, LANES
from tests.tune.test_tasks import network
from tilewright.base.events import ignore
from tilewright.compilation import Options, Services
from tilewright.driver import compile_graph
from tilewright.graph import evaluate_graph
from tilewright.loops.identity import identity
from tilewright.loops.program import Program
from tilewright.measure.job import Job
from tilewright.measure.pool import Pool
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.passes.alternatives import facts_of
from tilewright.passes.blocks import Blocks
from tilewright.passes.choose import Copy, Problem, choose
from tilewright.tune.measurer import Measurer
from tilewright.tune.recorded import recorded
from tilewright.tune.tasks import copying, nodes_with_routes
from tilewright.tune.ways import WORTH_MEASURING, WayTuner, times_of

OPTIONS = Options(HOST, threads=1)


class Bench:
    """Some kernels are fast."""

    def __init__(self, fast: frozenset[str]) -> None:
        """``fast``: identities of programs."""
        self._fast = fast

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        for job in jobs:
            yield job, Outcome(Verdict.OK, times_us=(1.0 if job.workload in self._fast else 1000.0,))


def kernels_of(way: str) -> frozenset[str]:
    graph = choose(network(), HOST).graph
    found = [route for _, routes in nodes_with_routes(graph, facts_of(graph, HOST)) for route in routes]
    return frozenset(identity(kernel) for route in found if route.name == way for kernel in route.kernels)


def tuner() -> WayTuner:
    return WayTuner(choose(network(), HOST), 1, 0)


@pytest.mark.parametrize("way", ["direct, in blocks", "direct, plain", "F(2x2), in blocks", "F(4x4), in blocks"])
def test_compile_uses_the_way_that_was_fastest(way: str, tmp_path: Path) -> None:
    first = network().nodes[0].outputs[0]
    estimates = {
        state.way.name: state.way.cycles for state in Problem.of(network(), facts_of(network(), HOST)).states[first]
    }
    if estimates[way] > WORTH_MEASURING * min(estimates.values()):
        pytest.skip("on this processor, it is not worth measuring")
    path, ways = tmp_path / "r.db", tuner()
    with Records.open(path) as records, records.session({}) as session:
        copies = copying(Copy(network().inputs[0], from_blocks=False), Blocks(HOST)).kernels
        fast = kernels_of(way) | frozenset(map(identity, copies))
        measurer = Measurer(Bench(fast), records, session)
        assert list(ways.measure(measurer, lambda: True)) == list(range(1, len(ways.jobs) + 1))
        with recorded(path, HOST, 1, ignore) as known:
            assert known is not None
            assert not known.has_ways()  # held until it is accepted
        ways.accept(measurer)
        assert len(list(ways.used(records))) == len(ways.jobs)
    with recorded(path, HOST, 1, ignore) as known:
        made = compile_graph(network(), OPTIONS, Services(tuned=known))
    assert made.choices.decisions[first.name][0] == way
    data = np.random.default_rng(0).standard_normal((1, 2 * LANES, 12, 12)).astype(np.float32)
    (found,) = made.executable.run({"x": data})
    (wanted,) = evaluate_graph(network(), {"x": data})
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_a_way_of_which_a_kernel_is_unknown_has_no_time() -> None:
    graph = choose(network(), HOST).graph
    known = kernels_of("direct, plain")

    def microseconds(naive: Program) -> float | None:
        return 2.0 if identity(naive) in known else None

    times = times_of(graph, facts_of(graph, HOST), microseconds)
    assert all(of_node == {"direct, plain": 2.0} for of_node in times.ways.values())
    assert not times.copies


def test_kernels_of_ways_are_measured(tmp_path: Path) -> None:
    """Under the contract: built, checked against their references, timed."""
    ways = tuner()
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session, Pool(1) as pool:
        measurer = Measurer(pool, records, session)
        assert list(ways.measure(measurer, lambda: True))[-1] == len(ways.jobs) > 8
        assert all(record.outcome.verdict is Verdict.OK for record in ways.used(records))


def test_weights_are_cold_if_those_of_the_model_are_and_times_are_those_of_a_device() -> None:
    cold = WayTuner(choose(network(), HOST), 1, 1 << 20)
    timed = [job.timing for job in cold.jobs]
    assert any(timing.cold and timing.between_bytes == 1 << 20 for timing in timed)
    assert all(timing.between_bytes == 0 for timing in timed if not timing.cold)
    there = WayTuner(choose(network(), HOST), 1, 0, device="board").jobs
    assert {job.timing.device for job in there} == {"board"}
    warm = tuner().jobs
    assert {replace(job, timing=warm[0].timing).id for job in cold.jobs} == {job.id for job in warm}
