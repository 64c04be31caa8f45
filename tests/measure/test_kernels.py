"""Scheduled programs of many kinds keep the contract: no element is missing, nothing beside arrays is touched."""

import pytest

from tests.backend.cpu.workloads import WORKLOADS, Workload
from tests.measure.jobs import HOST, QUICK
from tilewright.cost.analytic import schedule
from tilewright.measure.job import Job
from tilewright.measure.runner import Runner
from tilewright.measure.verdicts import Verdict
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

PARTS = 2


def chosen(workload: Workload) -> Job:
    """The workload with the schedule that the analytic model chooses."""
    made = schedule(Schedule(workload.program), Target.host())
    return Job(str(workload.program), made.trace.to_json(), HOST, threads=2, timing=QUICK)


@pytest.mark.parametrize("part", range(PARTS))
def test_what_the_analytic_model_chooses(part: int) -> None:
    workloads = {workload.name: chosen(workload) for workload in WORKLOADS[part::PARTS]}
    with Runner(spares=0) as runner:
        outcomes = {name: runner.measure(job) for name, job in workloads.items()}
    assert {name: str(outcome) for name, outcome in outcomes.items() if outcome.verdict is not Verdict.OK} == {}
