"""How models arrive: what a client does half, how the disk is, and that others are served meanwhile."""

import json
import os
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleets import until
from tests.service.support import Here, model, service
from tilewright.fleet.certificates import make_certificates
from tilewright.service.limits import Limits
from tilewright.service.server import bound
from tilewright.service.tokens import generate

_HEAD = "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\nContent-Length: 3000000\r\n\r\n"


def test_others_are_served_while_a_model_is_flushed_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, released = threading.Event(), threading.Event()

    def slow(_descriptor: int) -> None:
        reached.set()
        assert released.wait(60)

    with Here(tmp_path) as here, here.client as client:
        monkeypatch.setattr("tilewright.service.objects.os.fsync", slow)
        answers = list[int]()
        sender = threading.Thread(target=lambda: answers.append(client.post("/v1/jobs", content=model()).status_code))
        sender.start()
        assert reached.wait(60)
        assert client.get("/v1/health").status_code == 200
        assert not answers
        released.set()
        sender.join()
        assert answers == [202]


def test_a_disk_that_gets_full_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is not announced, and what is free is looked at as it arrives."""
    free = iter([1 << 40, 1 << 40, 1 << 10])

    class Usage:
        def __init__(self, _folder: Path) -> None:
            self.free = next(free)

    def pieces() -> Iterator[bytes]:
        for _ in range(3):
            yield bytes(1 << 20)

    with Here(tmp_path, limits=Limits(free_bytes=1 << 20)) as here:
        monkeypatch.setattr("tilewright.service.store.shutil.disk_usage", Usage)
        answer = here.client.post("/v1/jobs", content=pieces())
        assert (answer.status_code, answer.json()["error"]["kind"]) == (507, "StoreFull")
        assert not list((tmp_path / "store" / "work").iterdir())


def test_over_tls_and_a_client_that_leaves(tmp_path: Path) -> None:
    """Plain HTTP has no answer; half a model is removed, and is no job."""
    (member,) = make_certificates(tmp_path / "keys", ["service"], 1)
    trusting = ssl.create_default_context(cafile=member / "authority.pem")
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    trusting.check_hostname = False  # the certificates of a fleet have names of members
    token, line = generate("alice")
    (tmp_path / "tokens").write_text(line)
    (tmp_path / "tokens").chmod(0o600)
    files = ("--certificate", str(member / "certificate.pem"), "--key", str(member / "key.pem"))
    with service(tmp_path / "s", *files, "--tokens", str(tmp_path / "tokens"), "--workers", "0") as there:
        assert there.url.startswith("https://127.0.0.1:")
        port = int(there.url.rpartition(":")[2])
        with pytest.raises(OSError, match=r"reset|closed|Remote"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/health", timeout=10)
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            urllib.request.urlopen(f"{there.url}/v1/health", timeout=10)
        with trusting.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10)) as end:
            end.sendall(_HEAD.format(token).encode() + bytes(1_500_000))  # small ones are kept in memory
            until(lambda: bool(arriving(tmp_path)))
        until(lambda: not arriving(tmp_path))
        request = urllib.request.Request(f"{there.url}/v1/jobs", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=10, context=trusting) as answer:
            assert json.loads(answer.read()) == {"jobs": []}


def test_small_answers_do_not_wait_for_acknowledgements() -> None:
    with bound("127.0.0.1", 0) as end, socket.create_connection(end.getsockname()), end.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def arriving(folder: Path) -> list[str]:
    return os.listdir(folder / "s" / "work")
