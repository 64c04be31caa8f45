"""An emulated processor, and a board without Python, as devices of a fleet: the same verbs, marked as what they are."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("capstone")
pytest.importorskip("unicorn")

import tilewright
from tests.backend.shipping.networks import lenet, sample
from tests.cli.schema import report
from tests.fleet.fleets import local, until
from tests.measure.jobs import QUICK, job
from tilewright.backend.shipping.board import agent_program
from tilewright.base import fields
from tilewright.base.errors import BadInput, MeasureError, Unsupported
from tilewright.cli import main
from tilewright.fleet.fleet import Fleet
from tilewright.fleet.remote import RemoteModels
from tilewright.fleet.runner import FleetRunner
from tilewright.measure.records import Records
from tilewright.measure.simulated import simulating
from tilewright.measure.turns import Plan
from tilewright.measure.verdicts import Verdict
from tilewright.networks.device import saved
from tilewright.simulation.cores import device_of
from tilewright.target.target import Target

A72 = "aarch64,cortex-a72"
CORE = device_of(Target.parse(A72))
ROUNDS = 30
"""Of tuning for some seconds: on a busy machine, the first ones may find nothing that is faster."""
BOARD = Path(__file__).with_name("emulated_board.py")


@pytest.mark.slow
def test_devices_that_are_no_machines(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_bytes(agent_program(Target.parse("aarch64")))
    leading = shlex.join((sys.executable, str(BOARD), str(agent)))
    x = sample((1, 1, 28, 28))
    artifact, right = saved(tilewright.compile(lenet(), target=A72)), tilewright.compile(lenet())(x)
    with local(tmp_path) as fleet:
        fleet.join("cycles", "--emulate", A72, "--key", "arm")
        fleet.join("pi", "--agent", leading, "--target", A72, "--key", "arm")
        with fleet.connected() as client:
            until(lambda: len(client.devices()) == 2)
            are_told_apart(client)
            measure(client)
            for name in ("cycles", "pi"):
                with client.request(name) as leased:
                    models = RemoteModels(leased, [artifact], 4)
                    assert models.threads == 1
                    for given, wanted in zip(models.run({"x": x}), right, strict=True):
                        np.testing.assert_allclose(given, wanted, atol=1e-5)
                    (timing,) = models.turns({"x": x}, Plan(rounds=2, slot=0.01, rest=0.0))
                    if name == "pi":
                        assert len(timing.turns) == 2
                        with pytest.raises(Unsupported, match="whole run"):
                            models.samples({"x": x}, 0.1)
                        continue
                    assert timing.median == models.machine["cycles"] / 1e9
                    samples = models.samples({"x": x}, 0.1)
                    assert samples.totals == (timing.median,)
                    assert 0.5 * timing.median < sum(samples.parts[0]) < timing.median


@pytest.mark.slow
@pytest.mark.usefixtures("short_turns")
def test_verbs_take_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And say of an emulated one that cycles are simulated, also in what records tell later."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    agent, model, records = tmp_path / "agent", str(tmp_path / "lenet.onnx"), str(tmp_path / "records.db")
    onnx.save(lenet(), model)
    assert main(["fleet", "agent", "--target", "aarch64", "-o", str(agent), "--json"]) == 0
    assert report("fleet", capsys.readouterr().out)["bytes"] == agent.stat().st_size < 200_000
    leading = shlex.join((sys.executable, str(BOARD), str(agent)))
    with local(tmp_path) as fleet:
        fleet.join("cycles", "--emulate", A72)
        fleet.join("pi", "--agent", leading, "--target", A72)
        with fleet.connected() as client:
            until(lambda: len(client.devices()) == 2)
        for name, core in (("simulated-cortex-a72", CORE), ("pi", "")):
            there = ("--device", name, "--fleet", fleet.address, "--json")
            for verb, *arguments in (["run"], ["bench", "--rounds", "1"], ["profile"]):
                if verb == "profile" and not core:
                    continue
                assert main([verb, model, *arguments, *there]) == 0, fleet.log(name)
                found = report(verb, capsys.readouterr().out)
                device = found["device"]
                assert isinstance(device, dict)
                assert device["simulated"] == core
                assert found.get("agree", True) is True
            explaining = ["explain", model, "--target", A72, "--threads", "1", "--records", records, "--json"]
            for round_ in range(ROUNDS):
                assert main(["tune", model, "--minutes", "0.1", "--records", records, "--quiet", *there]) == 0
                found = report("tune", capsys.readouterr().out)
                assert found["simulated"] == core
                assert round_ or found["measured"]
                assert main(explaining) == 0
                with Records.open(records) as kept:
                    places = {(record.job.timing.simulated, record.job.timing.device) for record in kept.all()}
                assert (core, "" if core else "cortex-a72") in places
                # Of both, what was measured on a board is preferred, where it is right.
                if core == "" or f"in simulated cycles of {CORE}" in capsys.readouterr().out:
                    break
            else:
                pytest.fail("nothing tells of simulated cycles")
        assert main(["fleet", "status", "--fleet", fleet.address]) == 0
        assert "simulated" in capsys.readouterr().out


def are_told_apart(client: Fleet) -> None:
    """In the inventory; a key of both is no key of either."""
    assert (client.simulated("cycles"), client.simulated("pi")) == (CORE, "")
    assert (client.facts("cycles"), client.facts("pi")) == ("", "arm")
    with pytest.raises(BadInput, match="some devices called 'arm' are emulated"):
        client.target("arm")
    members = [fields.mapping(member) for member in fields.items(client.status()["devices"])]
    assert {str(fields.mapping(m["device"])["simulated"]) for m in members} == {CORE, ""}


def measure(client: Fleet) -> None:
    """Both check results; one tells cycles, those of an emulator without a fleet, and the other times."""
    timed = replace(job("p", 24), target=A72)
    cycles = replace(timed, timing=replace(QUICK, simulated=CORE))
    with FleetRunner(client, "cycles") as runner:
        found = runner.measure(cycles)
        with pytest.raises(MeasureError, match="not asked for"):
            runner.measure(timed)
    with simulating(spares=0) as alone:
        assert (found.verdict, found.times_us) == (Verdict.OK, alone.measure(cycles).times_us)
    with FleetRunner(client, "pi") as runner:
        outcome = runner.measure(timed)
        assert outcome.verdict is Verdict.OK, outcome
        assert outcome.times_us != found.times_us
        with pytest.raises(MeasureError, match="here is a board"):
            runner.measure(cycles)
