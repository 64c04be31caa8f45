"""Files in a bucket, of a local server that speaks the API of S3: whole or not there, and the bytes that were put."""

import hashlib
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import tilewright
from tests.service.servers import BUCKET, object_server, store_variables
from tests.service.support import Here, X, model
from tilewright.base.errors import BadInput, InternalError
from tilewright.cli import main
from tilewright.service.limits import Unavailable
from tilewright.service.objects import Kind, Stream

if TYPE_CHECKING:
    from tilewright.service.bucket import Bucket

# What these tests need is slow to load: they load it when they run.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("boto3") is None, reason="needs the extra [s3]"),
    pytest.mark.skipif(find_spec("moto") is None, reason="needs the extra [servers]"),
]

PART = 5 << 20
"""The least that the API allows."""


@pytest.fixture(scope="module")
def address() -> Generator[str]:
    with object_server() as found:
        yield found


@pytest.fixture
def bucket(address: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> "Bucket":
    for name, value in store_variables(address).items():
        monkeypatch.setenv(name, value)
    kind = import_module("tilewright.service.bucket").Bucket
    opened = kind.open(f"s3://{BUCKET}/{abs(hash(request.node.name))}")
    return kind(opened.client, opened.name, opened.prefix, PART)


def written(folder: Path, size: int) -> tuple[Path, str]:
    content = np.random.default_rng(size).bytes(size)
    path = folder / "part"
    path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("size", [0, 1000, 2 * PART + 17])
def test_what_is_put_is_there(size: int, bucket: "Bucket", tmp_path: Path) -> None:
    path, sha256 = written(tmp_path, size)
    assert not bucket.has(Kind.MODEL, sha256)
    assert bucket.content(Kind.MODEL, sha256) is None
    assert not bucket.fetch(Kind.MODEL, sha256, tmp_path / "x")
    for _ in range(2):
        bucket.put(Kind.MODEL, sha256, path)
    assert bucket.has(Kind.MODEL, sha256)
    assert not bucket.has(Kind.ARTIFACT, sha256)
    assert bucket.fetch(Kind.MODEL, sha256, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == path.read_bytes()
    stream = bucket.content(Kind.MODEL, sha256)
    assert isinstance(stream, Stream)
    assert (stream.size, b"".join(stream.pieces)) == (size, path.read_bytes())


KILLED = """
import os, sys
from pathlib import Path
from tilewright.service.bucket import Bucket
from tilewright.service.objects import Kind
opened = Bucket.open(sys.argv[1])
sent = []
def sending(**_):
    sent.append(1)
    if len(sent) == 3:
        os.kill(os.getpid(), 9)
opened.client.meta.events.register("before-call.s3.UploadPart", sending)
Bucket(opened.client, opened.name, opened.prefix, int(sys.argv[2])).put(Kind.MODEL, sys.argv[3], Path(sys.argv[4]))
"""


def test_a_writer_that_is_killed_leaves_nothing_that_is_seen(bucket: "Bucket", tmp_path: Path) -> None:
    path, sha256 = written(tmp_path, 5 * PART)
    place = f"s3://{bucket.name}/{bucket.prefix.rstrip('/')}"
    command = [sys.executable, "-c", KILLED, place, str(PART), sha256, str(path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not bucket.has(Kind.MODEL, sha256)
    assert len(unfinished(bucket)) == 1
    bucket.clear(0.0)
    assert len(unfinished(bucket)) == 1  # it may still be sent
    bucket.clear(time.time() + 3600)
    assert not unfinished(bucket)
    bucket.put(Kind.MODEL, sha256, path)
    assert bucket.fetch(Kind.MODEL, sha256, tmp_path / "x")


def unfinished(bucket: "Bucket") -> list[object]:
    pages = bucket.client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket.name, Prefix=bucket.prefix)
    return [upload for page in pages for upload in page.get("Uploads", [])]


def test_other_bytes_than_were_put_are_noticed(bucket: "Bucket", tmp_path: Path) -> None:
    key = f"{bucket.prefix}models/{'a' * 64}"
    bucket.client.put_object(Bucket=bucket.name, Key=key, Body=b"other")
    with pytest.raises(InternalError, match="has other bytes than were put: remove it"):
        bucket.fetch(Kind.MODEL, "a" * 64, tmp_path / "x")


def test_a_job_with_its_files_in_a_bucket(bucket: "Bucket", tmp_path: Path) -> None:
    with Here(tmp_path, objects=bucket) as here:
        job = here.client.post("/v1/jobs?threads=1", content=model(2.0)).json()["id"]
        assert here.worker().step()
        found = here.client.get(f"/v1/jobs/{job}").json()
        answer = here.client.get(f"/v1/artifacts/{found['artifact']}")
        assert answer.headers["content-length"] == str(len(answer.content))
        assert hashlib.sha256(answer.content).hexdigest() == found["artifact"]
        loaded = tilewright.load(answer.content, trust=True)
        np.testing.assert_array_equal(loaded.run(None, {"x": X})[0], X + 2.0)
        assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
        assert here.client.post("/v1/jobs?threads=1", content=model(2.0)).json()["state"] == "done"


def test_a_model_that_was_removed_is_an_error_of_its_job(bucket: "Bucket", tmp_path: Path) -> None:
    with Here(tmp_path, objects=bucket) as here:
        job = here.client.post("/v1/jobs", content=b"m").json()
        import_module("boto3").client("s3").delete_object(
            Bucket=bucket.name, Key=f"{bucket.prefix}models/{job['model']}"
        )
        assert here.worker().step()
        found = here.client.get(f"/v1/jobs/{job['id']}").json()
        assert found["error"] == {
            "kind": "BadInput",
            "text": "the model was removed from the service's store: submit it again",
        }


def test_a_store_that_does_not_answer_costs_no_job(bucket: "Bucket", tmp_path: Path) -> None:
    with Here(tmp_path, objects=bucket) as here:
        job = here.client.post("/v1/jobs?threads=1", content=model(3.0)).json()["id"]
        worker = here.worker()
        with object_server() as other:  # the store moves to an address where nobody answers, and back
            away = import_module("boto3").client("s3", endpoint_url=other)
        here.store = here.store.__class__(here.store.folder, bucket.__class__(away, bucket.name, bucket.prefix))
        with pytest.raises(Unavailable, match="the object store does not answer"):
            here.worker().step()
        found = here.client.get(f"/v1/jobs/{job}").json()
        assert (found["state"], found["attempts"]) == ("waiting", 0)
        assert worker.step()
        assert here.client.get(f"/v1/jobs/{job}").json()["state"] == "done"


def test_stores_that_can_not_be_used(bucket: "Bucket", tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("s3://", "s3://B", "http://x", "s3://bucket/a//b", "s3://bucket/../x?"):
        with pytest.raises(BadInput, match="is no store: write s3://BUCKET"):
            bucket.open(place)
    assert main(["service", "--folder", str(tmp_path / "s"), "--store", "s3://no-such-bucket"]) == 2
    assert "the bucket no-such-bucket can't be used" in capsys.readouterr().err
