"""The tuner on the accelerator's cycle simulator: what it finds is right and not slower; records say what measured."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright import te
from tilewright.backend.vta import VTA, Config, Timing
from tilewright.backend.vta.convolution import loop_program
from tilewright.backend.vta.layers import Convolution
from tilewright.backend.vta.schedules import space_of
from tilewright.base.errors import BadInput, BadProgram
from tilewright.base.search import Search, Spaces
from tilewright.measure.job import Form, Job
from tilewright.measure.verdicts import Verdict
from tilewright.target.target import Target
from tilewright.tune.accelerator import accelerator_space, kept_schedule, tune_accelerator
from tilewright.tune.cycle_bench import CycleBench

LAYER = Convolution(4, 4, 1, 2, 2)


def test_tuning_finds_no_slower_schedule_and_records_its_cycles(tmp_path: Path) -> None:
    naive, path = loop_program(LAYER, VTA), tmp_path / "records.db"
    found = tune_accelerator(naive, trials=3, search=Search.RANDOM, records=path)
    assert found.analytic_cycles is not None
    assert found.cycles <= found.analytic_cycles
    kernel = te.accelerate(found.schedule)
    assert kernel.cycles.total == found.cycles
    with sqlite3.connect(path) as database:
        sessions = [json.loads(row[0]) for row in database.execute("SELECT config_json FROM session")]
    assert sessions[0]["device"]["simulator"] == "cycles"
    assert sessions[0]["device"]["config"]["name"] == "vta"
    again = tune_accelerator(naive, trials=3, search=Search.RANDOM, records=path)
    assert (again.cycles, again.tried) == (found.cycles, found.tried)
    with pytest.raises(BadInput, match="has measurements of another device"):
        tune_accelerator(naive, timing=Timing(latency=64), trials=1, records=path)


def test_wrong_results_are_no_times() -> None:
    """The schedule of another shift is checked against the program's own results."""
    naive, other = (loop_program(replace(LAYER, shift=shift), VTA) for shift in (3, 4))
    space = space_of(other, VTA, Timing(), Target.host())
    first = space.analytic()
    assert first is not None
    program = space.schedule(first).program
    forms = tuple(map(Form.of, program.intrinsics))
    job = Job(str(naive), "[]", str(Target.host()), scheduled=str(program), intrinsics=forms)
    right = replace(job, program=str(other))
    outcomes = [outcome for _, outcome in CycleBench(VTA, Timing()).measure_all([job, right])]
    assert [outcome.verdict for outcome in outcomes] == [Verdict.WRONG, Verdict.OK]
    assert outcomes[1].machine["cycles"] == outcomes[1].times_us[0] * VTA.clock_mhz


def test_a_program_without_a_fitting_tile_is_refused() -> None:
    tiny = Config("tiny", wgt_bytes=1 << 9)
    with pytest.raises(BadProgram, match=r"no tile of .* fits tiny"):
        tune_accelerator(loop_program(LAYER, tiny), tiny, trials=1)


def test_sketches_are_searched_kept_and_replayed(tmp_path: Path) -> None:
    naive, path = loop_program(LAYER, VTA), tmp_path / "records.db"
    found = tune_accelerator(naive, space="sketches", trials=3, search=Search.RANDOM, records=path)
    assert found.tried >= 3
    assert found.analytic_cycles is not None
    assert found.cycles <= found.analytic_cycles
    kept = kept_schedule(naive, VTA, Timing(), path)
    assert kept is not None
    assert te.accelerate(kept).cycles.total == found.cycles
    assert kept_schedule(loop_program(replace(LAYER, shift=3), VTA), VTA, Timing(), path) is None
    with pytest.raises(BadInput, match="has measurements of another device"):
        kept_schedule(naive, VTA, Timing(latency=64), path)


def test_both_spaces_begin_with_the_better_choice() -> None:
    naive = loop_program(LAYER, VTA)
    both = accelerator_space(naive, VTA, Timing(), Spaces.ALL)
    estimates = [
        float(space.estimates(first[None])[0])
        for space in (accelerator_space(naive, VTA, Timing(), one) for one in (Spaces.TEMPLATES, Spaces.SKETCHES))
        if (first := space.analytic()) is not None and space.estimates(first[None]) is not None
    ]
    first = both.analytic()
    assert first is not None
    found = both.estimates(np.array([first]))
    assert found is not None
    assert found[0] == min(estimates)
