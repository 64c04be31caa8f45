"""What emulated devices and boards without Python do for a client, each in one process here."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("capstone")
pytest.importorskip("unicorn")

import tilewright
from tests.backend.shipping.networks import lenet, sample
from tilewright.backend.shipping.board import agent_program
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, BadInput, FleetError, MeasureError, Unsupported
from tilewright.base.store import Store
from tilewright.fleet import ways
from tilewright.fleet.agent_models import Board
from tilewright.fleet.arrays import array_of, hashed
from tilewright.fleet.inventory import Inventory
from tilewright.fleet.model_child import Doing, Kind
from tilewright.fleet.simulated_models import simulated
from tilewright.measure.agent import Agent
from tilewright.model import CompiledModel
from tilewright.networks.device import saved
from tilewright.target.target import Target

A72 = Target.parse("aarch64,cortex-a72")
PLAN = {"rounds": 2, "slot": 0.001, "rest": 0.0, "budget": None}
X = sample((1, 1, 28, 28))


class Asked:
    """Asks what does things for a device, with files in a folder."""

    def __init__(self, folder: Path, model: CompiledModel, do: Doing) -> None:
        self._store, self._out, self._do = folder / "store", folder / "out", do
        for made in (self._store, self._out):
            made.mkdir()
        self._artifact = self._kept(saved(model))

    def ask(self, kind: Kind, feeds: Mapping[str, Array], **more: object) -> dict[str, object]:
        described = [hashed(name, array) for name, array in feeds.items()]
        for _, _, content in described:
            self._kept(content)
        places = {"store": str(self._store), "folder": str(self._out), "artifacts": [self._artifact]}
        return self._do({**places, "kind": kind.value, "feeds": [d for d, _, _ in described], "seconds": 60.0, **more})

    def outputs(self, answer: Mapping[str, object]) -> list[Array]:
        described = answer["outputs"]
        assert isinstance(described, list)
        return [array_of(one, (self._out / f"output_{place}").read_bytes())[1] for place, one in enumerate(described)]

    def _kept(self, content: bytes) -> str:
        key = sha256(content).hexdigest()
        Store(self._store, 1 << 30).put(key, content)
        return key


@pytest.fixture(scope="module")
def right() -> list[Array]:
    return list(tilewright.compile(lenet(), threads=1)(X))


def test_an_emulated_device(tmp_path: Path, right: list[Array]) -> None:
    there = Asked(tmp_path, tilewright.compile(lenet(), target=str(A72)), simulated)
    answer = there.ask(Kind.RUN, {"x": X})
    for given, wanted in zip(there.outputs(answer), right, strict=True):
        np.testing.assert_allclose(given, wanted, atol=1e-5)
    machine = answer["machine"]
    assert isinstance(machine, dict)
    seconds = machine["cycles"] / 1e9
    assert there.ask(Kind.TURNS, {"x": X}, plan=PLAN)["turns"] == [[[seconds]]]
    samples = there.ask(Kind.SAMPLES, {"x": X}, sample_seconds=1.0)
    (parts,) = samples["parts"] if isinstance(samples["parts"], list) else ()
    assert samples["totals"] == [seconds]
    assert min(parts) > 0
    assert 0.5 * seconds < sum(parts) < seconds
    for feeds in ({}, {"x": X, "y": X}, {"x": X[0]}):
        with pytest.raises(BadFeed):
            there.ask(Kind.RUN, feeds)


def test_a_board_without_python(tmp_path: Path, right: list[Array]) -> None:
    """Here it is this machine."""
    agent = tmp_path / "agent"
    agent.write_bytes(agent_program(Target.host()))
    agent.chmod(0o755)
    model = tilewright.compile(lenet(), threads=1)
    there = Asked(tmp_path, model, Board(Agent((str(agent),))).do)
    for given, wanted in zip(there.outputs(there.ask(Kind.RUN, {"x": X})), right, strict=True):
        np.testing.assert_array_equal(given, wanted)
    ((one, another),) = there.ask(Kind.TURNS, {"x": X}, plan=PLAN)["turns"]  # pyright: ignore
    assert 1e-7 < one[0] < 1.0
    assert 1e-7 < another[0] < 1.0
    with pytest.raises(Unsupported, match="whole run"):
        there.ask(Kind.SAMPLES, {"x": X}, sample_seconds=1.0)
    for command, error, said in (("exit 1", FleetError, "is lost"), ("exit 139", MeasureError, "SIGSEGV")):
        (tmp_path / command).mkdir()
        broken = Asked(tmp_path / command, model, Board(Agent(("sh", "-c", command))).do)
        with pytest.raises(error, match=said):
            broken.ask(Kind.RUN, {"x": X})


def test_they_say_what_they_are() -> None:
    emulated = Inventory.emulated("e", None, A72)
    board = Inventory.behind_agent("b", None, A72)
    assert (emulated.key, emulated.simulated, emulated.cores) == ("simulated-cortex-a72", "cortex-a72 1", 1)
    assert (board.key, board.simulated, board.cores, board.memory_bytes) == ("cortex-a72", "", 1, 0)
    for inventory in (emulated, board):
        assert Inventory.read(inventory.message()) == inventory
    older = {name: value for name, value in board.message().items() if name != "simulated"}
    assert Inventory.read(older) == board
    assert ways.limits_for(emulated).run_seconds > ways.limits_for(board).run_seconds
    # Times depend on the kind of board and on the governor of its clock; cycles do not.
    assert (emulated.facts, board.facts, replace(board, governor="ondemand").facts) == (
        "",
        "cortex-a72",
        "cortex-a72, ondemand",
    )
    with pytest.raises(Unsupported, match="can't be simulated"):
        Inventory.emulated("e", None, Target.parse("riscv64"))
    with pytest.raises(BadInput, match="can't name a device"):
        Inventory.behind_agent("/", None, A72)
