"""The API: who may do what, what is refused before it is read, and what becomes of a job."""

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.service.support import Here, X, model
from tilewright.base.errors import BadInput
from tilewright.cli import main
from tilewright.service import tokens
from tilewright.service.config import Config
from tilewright.service.leases import Claim, Leases, Outcome
from tilewright.service.limits import Limits, Unavailable
from tilewright.service.requests import Chosen, Given, chosen
from tilewright.service.tables import Database
from tilewright.service.tokens import Owner, Tokens, hash_of

FILES = ("models", "artifacts", "work")


def files(here: Here) -> list[Path]:
    return [path for folder in FILES for path in (here.store.folder / folder).iterdir()]


def test_a_model_is_compiled_once_and_computes_the_same(tmp_path: Path) -> None:
    with Here(tmp_path) as here:
        first, second = (here.client.post("/v1/jobs?name=a<b&threads=1", content=model(2.0)) for _ in range(2))
        assert (first.status_code, first.json()["state"]) == (202, "waiting")
        assert here.worker().step()
        assert not here.worker().step()
        jobs = [here.client.get(f"/v1/jobs/{answer.json()['id']}").json() for answer in (first, second)]
        assert [job["state"] for job in jobs] == ["done", "done"]
        assert jobs[0]["artifact"] == jobs[1]["artifact"]
        artifact = here.client.get(f"/v1/artifacts/{jobs[0]['artifact']}").content
        loaded = tilewright.load(artifact, trust=True)
        np.testing.assert_array_equal(loaded.run(None, {"x": X})[0], X + 2.0)
        assert not list((here.store.folder / "work").iterdir())
        events = here.client.get(f"/v1/jobs/{jobs[0]['id']}/events")
        assert events.headers["content-type"].startswith("text/event-stream")
        (said,) = (line for line in events.text.splitlines() if line.startswith("data: "))
        assert json.loads(said.removeprefix("data: ")) == jobs[0]
        for page in ("/", "/table"):
            assert "a&lt;b" in here.client.get(page).text


DONE = "say({'done': {'cached': False}})"
CHILD = """
import json, os, socket, sys, time
given = dict(word.removeprefix('--').split('=', 1) for word in sys.argv[1:])
end = socket.socket(fileno=int(given['socket']))
size = int.from_bytes(end.recv(4, socket.MSG_WAITALL), 'big')
request = json.loads(end.recv(size, socket.MSG_WAITALL))
def say(said): t = json.dumps(said).encode(); end.sendall(len(t).to_bytes(4, 'big') + t)
"""


def child(*lines: str) -> tuple[str, ...]:
    """A child that runs these lines in place of the compiler."""
    return sys.executable, "-c", CHILD + "\n".join(lines)


@pytest.mark.parametrize(
    ("lines", "kind", "text"),
    [
        (["os.kill(os.getpid(), 11)"], "ResourceLimit", "SIGSEGV"),
        (["time.sleep(60)"], "ResourceLimit", "took longer than 0.5 s"),
        (["say({'failed': ['InvalidModel', request['model'] + ' is bad']})"], "InvalidModel", "model.onnx is bad"),
        ([DONE], "InternalError", "wrote no artifact"),
        (
            ["os.symlink('/etc/passwd', request['output'])", DONE],
            "InternalError",
            "no artifact",
        ),
        (
            ["os.link(request['model'], request['output'])", DONE],
            "InternalError",
            "no artifact",
        ),
        (["os.mkfifo(request['output'])", DONE], "InternalError", "no artifact"),
        (["os.mkdir(request['output'])", DONE], "InternalError", "no artifact"),
        (
            ["open(request['output'], 'wb').write(b'x' * 99)", DONE],
            "ResourceLimit",
            "50 bytes",
        ),
    ],
)
def test_whatever_becomes_of_the_child_is_an_error_of_the_job(
    lines: list[str], kind: str, text: str, tmp_path: Path
) -> None:
    with Here(tmp_path, limits=Limits(seconds=0.5, output_bytes=50)) as here:
        job = here.client.post("/v1/jobs", content=b"m").json()["id"]
        begin = time.monotonic()
        assert here.worker(*child(*lines)).step()
        assert time.monotonic() - begin < 30
        found = here.client.get(f"/v1/jobs/{job}").json()
        assert (found["state"], found["error"]["kind"]) == ("failed", kind)
        assert text in found["error"]["text"]
        assert str(tmp_path) not in found["error"]["text"]
        assert [path.parent.name for path in files(here)] == ["models"]


def test_a_running_job_is_cancelled_or_given_back(tmp_path: Path) -> None:
    with Here(tmp_path) as here:
        for method, state in (("cancel", "cancelled"), ("stop", "waiting")):
            job = here.client.post(f"/v1/jobs?name={method}", content=b"m").json()["id"]
            worker = here.worker(*child("say({'advanced': ['fuse', 1, 3, 'k']})", "time.sleep(60)"))
            thread = threading.Thread(target=worker.step)
            thread.start()
            while here.client.get(f"/v1/jobs/{job}").json()["progress"] is None:
                time.sleep(0.02)
            assert here.client.get(f"/v1/jobs/{job}").json()["progress"] == {"step": "fuse k", "done": 1, "total": 3}
            if method == "cancel":
                assert here.client.delete(f"/v1/jobs/{job}").json()["state"] == "cancelled"
            else:
                worker.stopped.set()
            thread.join(30)
            assert not thread.is_alive()
            assert here.client.get(f"/v1/jobs/{job}").json()["state"] == state


def test_a_database_that_is_away_for_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are to be repeated; what is being compiled goes on, and its outcome is written in the end."""
    away = iter([True] * 3)
    finish = Leases.finish

    def gone(*_: object) -> bool:
        raise Unavailable("the database does not answer")

    def late(leases: Leases, claim: Claim, outcome: Outcome) -> bool:
        return gone() if next(away, False) else finish(leases, claim, outcome)

    with Here(tmp_path, limits=Limits(lease_seconds=0.4)) as here:
        job = here.client.post("/v1/jobs", content=b"m").json()["id"]
        monkeypatch.setattr(Leases, "renew", gone)
        monkeypatch.setattr(Leases, "finish", late)
        assert here.worker(*child("time.sleep(0.5)", "open(request['output'], 'wb').write(b'x')", DONE)).step()
        assert here.client.get(f"/v1/jobs/{job}").json()["state"] == "done"
        monkeypatch.setattr(Database, "reading", gone)
        answer = here.client.get(f"/v1/jobs/{job}")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json()["error"] == {"kind": "Unavailable", "text": "the database does not answer"}


def test_too_large_models_are_refused_before_they_are_read(tmp_path: Path) -> None:
    read = list[int]()

    def pieces() -> Iterator[bytes]:
        for number in range(100):
            read.append(number)
            yield b"x" * 1000

    with Here(tmp_path, limits=Limits(body_bytes=2500)) as here:
        answer = here.client.post("/v1/jobs", content=b"x" * 2501)
        assert (answer.status_code, answer.json()["error"]["kind"]) == (413, "TooLarge")
        assert here.client.post("/v1/jobs", content=pieces()).status_code == 413  # of unknown length
        assert not files(here)
        assert here.client.post("/v1/jobs", content=b"x" * 2500).status_code == 202
        full = Here(tmp_path / "full", limits=Limits(free_bytes=1 << 60))
        with full:
            assert full.client.post("/v1/jobs", content=b"x").status_code == 507


REFUSED = {
    "/v1/jobs?target=nope": (400, "unknown architecture 'nope'"),
    "/v1/jobs?target=" + "x" * 5000: (400, "target has 5000 characters"),
    "/v1/jobs?precision=fp8": (400, "precision='fp8': choose one of fp32, bf16, f16"),
    "/v1/jobs?threads=0": (400, "threads=0: give a number from 1"),
    "/v1/jobs?threads=x": (422, "threads: Input should be a valid integer"),
    "/v1/jobs?memory_limit=much": (400, "memory_limit='much': give a size"),
    "/v1/jobs?shape=x": (400, "shape='x': write NAME:VALUE"),
    "/v1/jobs?shape=x:1&shape=x:2": (400, "each name once"),
    "/v1/jobs?shape=x:1,-3": (400, "'-3' is no whole number"),
    "/v1/jobs?bound=n:9999999999999999999": (400, "at most 18 digits"),
}


def test_malformed_requests(tmp_path: Path) -> None:
    with Here(tmp_path) as here:
        for path, (status, text) in REFUSED.items():
            answer = here.client.post(path, content=b"m")
            assert answer.status_code == status, path
            assert text in answer.json()["error"]["text"]
        assert here.client.post("/v1/jobs", content=b"").status_code == 400
        assert here.client.post("/v1/jobs", content=b"m", headers={"Content-Encoding": "gzip"}).status_code == 415
        for path in ("/v1/jobs/nope", f"/v1/artifacts/{'0' * 64}", "/v1/artifacts/..%2fjobs.db", "/nope"):
            assert here.client.get(path).status_code == 404
        assert here.client.get("/v1/artifacts/x").status_code == 400
        assert not files(here)
        for headers in ({"Host": "attacker.example"}, {"Origin": "http://attacker.example"}, {"Host": "["}):
            assert here.client.post("/v1/jobs", content=b"m", headers=headers).status_code == 403
        assert here.client.get("/v1/health").json()["jobs"] == {"waiting": 0, "running": 0}
        assert here.client.get("/openapi.json").json()["paths"].keys() >= {"/v1/jobs", "/v1/artifacts/{sha256}"}


def test_tokens(tmp_path: Path) -> None:
    known = Tokens({hash_of("alice's"): Owner("alice"), hash_of("bob's"): Owner("bob")})
    alice, bob = ({"Authorization": f"Bearer {name}'s"} for name in ("alice", "bob"))
    with Here(tmp_path, known) as here:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic !"},
            {"Authorization": "x" * 9999},
        ):
            for method, path in (("POST", "/v1/jobs"), ("GET", "/v1/jobs"), ("GET", "/"), ("GET", "/v1/limits")):
                assert here.client.request(method, path, content=b"m", headers=headers).status_code == 401
        assert not files(here)
        job = here.client.post("/v1/jobs", content=b"m", headers=alice).json()["id"]
        here.worker(*child("open(request['output'], 'wb').write(b'x')", DONE)).step()
        artifact = here.client.get(f"/v1/jobs/{job}", headers=alice).json()["artifact"]
        for path in (f"/v1/jobs/{job}", f"/v1/jobs/{job}/events", f"/v1/artifacts/{artifact}"):
            assert here.client.get(path, headers=alice).status_code == 200
            assert here.client.get(path, headers=bob).status_code == 404
        assert here.client.delete(f"/v1/jobs/{job}", headers=bob).status_code == 404
        assert here.client.get("/v1/jobs", headers=bob).json() == {"jobs": []}
        assert "Jobs of alice" in here.client.get("/", auth=("", "alice's")).text
        assert here.client.post("/v1/jobs", content=b"m", auth=("", "alice's")).status_code == 401  # to look only


def test_files_of_tokens() -> None:
    token, line = tokens.generate("alice")
    found = tokens.read(f"# a comment\n\n{line} waiting=2 day=30\n", "tokens").owner(token)
    assert found is not None
    assert (found.name, found.quota.waiting, found.quota.day) == ("alice", 2, 30)
    for text, message in (
        ("", "tokens has no tokens"),
        ("alice", "tokens, line 1: write NAME SHA256"),
        (f"\n{line} more=1", "tokens, line 2: 'more=1' is neither"),
        (f"{line}\nbob {line.split()[1]}", "line 2: the token of alice is there twice"),
        (f"A {'0' * 64}", "'A' is no name of a token"),
    ):
        with pytest.raises(BadInput, match=message):
            tokens.read(text, "tokens")


def test_what_is_written_is_read_again() -> None:
    given = Given("aarch64", "bf16", threads=3, memory_limit="1M", shapes=["x:0:1,n", "y:"], bounds=["n:7"])
    options = chosen(given)
    assert Chosen.read(options.text()) == options
    assert options.shapes == {"x:0": [1, "n"], "y": []}
    assert options.submission("m") != chosen(Given("aarch64")).submission("m")
    for store in (None, "s3://bucket"):
        config = Config(1, "sqlite://", "/f", "w", store, Limits(seconds=2.5))
        assert Config.read(config.text()) == config


def test_the_verb_refuses(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.ERROR)
    monkeypatch.setenv("TOKENS", tokens.generate("alice")[1])
    loose = tmp_path / "tokens"
    loose.write_text("x")
    loose.chmod(0o666)
    folder = ["--folder", str(tmp_path / "s")]
    for options, text in (
        ([], "give --folder"),
        ([*folder, "--host", "0.0.0.0"], "0.0.0.0 can be reached by others: give --tokens"),
        ([*folder, "--host", "0.0.0.0", "--tokens", "env:TOKENS"], "on their way: give --certificate and --key"),
        ([*folder, "--certificate", str(loose)], "--certificate and --key belong together"),
        ([*folder, "--certificate", str(loose), "--key", str(loose)], "can't be used"),
        ([*folder, "--fleet-tls", str(tmp_path)], "give --fleet, too"),
        ([*folder, "--fleet", "nowhere"], "is no address of a fleet"),
        ([*folder, "--fleet", "tls://localhost"], "needs a certificate"),
        ([*folder, "--workers-only"], "workers alone need --database and --store"),
        ([*folder, "--tokens", str(loose)], "other users can write to it"),
        ([*folder, "--tokens", "env:NO_SUCH"], "'NO_SUCH' is not set"),
        ([*folder, "--database", "nonsense"], "the database's URL can't be used"),
        (["--new-token", "A B"], "is no name of a token"),
    ):
        assert main(["service", *options]) == 2
        assert text in capsys.readouterr().err
