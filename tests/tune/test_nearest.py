"""The schedule of the most similar kernel is a candidate."""

from pathlib import Path

from tests.measure.jobs import HOST as TARGET
from tests.measure.jobs import product
from tests.tune.test_kernel_tuner import MadeUp
from tilewright.loops.program import Program
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import Setup
from tilewright.tune.model_tuner import Computed, ModelTuner
from tilewright.tune.nearest import nearest_schedule

HOST = Target.parse(TARGET)


def kept(records: Records, session: int, program: Program, factor: int, microseconds: float) -> None:
    s = Schedule(program)
    s.vectorize(s.split("j", (None, factor))[1])
    job = Job(str(program), s.trace.to_json(), TARGET)
    assert records.add(session, job, Outcome(Verdict.OK, times_us=(microseconds,)), State.CONFIRMED)


def test_it_is_the_best_of_the_nearest_size(tmp_path: Path) -> None:
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        wanted = product("mm", 20)
        assert nearest_schedule(records, wanted, HOST, 1) is None
        kept(records, session, product("far", 64), 16, 1.0)
        kept(records, session, product("near", 24), 8, 5.0)
        kept(records, session, product("near", 24), 4, 3.0)
        kept(records, session, wanted, 2, 1.0)
        found = nearest_schedule(records, wanted, HOST, 1)
        assert found is not None
        expected = Schedule(wanted)
        expected.vectorize(expected.split("j", (None, 4))[1])
        assert str(found.program) == str(expected.program)
        assert nearest_schedule(records, wanted, HOST, 2) is None

        measurer = MadeUp()
        tuner = ModelTuner([[Computed(wanted, 1)]], HOST, measurer, Setup(batch=4), records)
        tuner.kernels[0].tuner.round()
        traces = [candidate.job.trace for candidate in tuner.kernels[0].tuner.confirm()]
        assert found.trace.to_json() in traces
