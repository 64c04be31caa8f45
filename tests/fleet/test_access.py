"""Who may reach a fleet: addresses, certificates, and what is refused before anything is read."""

import socket
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fleet.fleets import Local, free_port, started, until
from tilewright.base import fields
from tilewright.base.errors import BadInput, FleetAuthError, FleetError
from tilewright.cli import main
from tilewright.fleet.access import Access, Address
from tilewright.fleet.certificates import KEY, expires, make_certificates
from tilewright.fleet.fleet import Fleet


def access(text: str, tls: Path | None = None, *, insecure: bool = False) -> Access:
    return Access(Address.parse(text), tls, insecure)


@pytest.mark.parametrize(
    "text", ["", "host", "http://h:1", "tcp://h:99999", "tls://h:1/x", "tls://a b:1", "tls://-oX;rm"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadInput, match="no address of a fleet"):
        Address.parse(text)


def test_addresses() -> None:
    for text in ("tcp://127.0.0.1:1", "tls://[::1]:8790", "tls://fleet.example:8790"):
        assert str(Address.parse(text)) == text
    assert Address.parse("tls://h").port == 8790


def test_a_plain_address_is_this_machine(tmp_path: Path) -> None:
    access("tcp://127.0.0.1:1").security()
    access("tcp://[::1]:1").security()
    access("tcp://192.0.2.1:1", insecure=True).security()
    for text in ("tcp://192.0.2.1:1", "tcp://0.0.0.0:1"):
        with pytest.raises(FleetAuthError, match="not encrypted: anybody who reaches it"):
            access(text).security()
    with pytest.raises(BadInput, match="write tls://"):
        access("tcp://127.0.0.1:1", tmp_path).security()


def test_an_encrypted_address_takes_a_certificate(tmp_path: Path) -> None:
    with pytest.raises(FleetAuthError, match="needs a certificate"):
        access("tls://127.0.0.1:1").security()
    with pytest.raises(FleetAuthError, match=r"has no authority.pem, certificate.pem, key.pem"):
        access("tls://127.0.0.1:1", tmp_path).security()


def test_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys"
    assert main(["fleet", "certs", str(keys), "red", "--days", "10"]) == 0
    assert str(keys / "red") in capsys.readouterr().out
    (green,) = make_certificates(keys, ["green"], 20)  # of the same authority
    assert (green / KEY).stat().st_mode & 0o777 == 0o600
    assert (expires(green) - datetime.now(UTC)).days in (19, 20)
    for names, fault in [(["red"], "there already"), (["../x"], "can't name"), (["authority-key.pem"], "another name")]:
        with pytest.raises(BadInput, match=fault):
            make_certificates(keys, names, 1)
    keys.chmod(0o777)
    with pytest.raises(BadInput, match="other users can write"):
        make_certificates(keys, ["blue"], 1)


def test_options_of_a_fleet_want_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path / "m.onnx"), "--fleet", "tcp://127.0.0.1:1"]) == 2
    assert "--fleet says how to reach a device: give --device KEY" in capsys.readouterr().err


@pytest.mark.slow
def test_who_has_no_certificate_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    own, rogue = tmp_path / "own", tmp_path / "rogue"
    make_certificates(own, ["scheduler", "red", "ann"], 1)
    make_certificates(rogue, ["mallory"], 1)
    fleet = Local(tmp_path, started(), f"tls://127.0.0.1:{free_port()}")
    try:
        fleet.serve("--tls", str(own / "scheduler"))
        until(fleet.listens)
        fleet.join("red", "--tls", str(own / "red"))
        member = Access(Address.parse(fleet.address), own / "ann")
        plain = replace(member, address=replace(member.address, is_encrypted=False), tls=None)
        begin = time.monotonic()
        with pytest.raises((FleetAuthError, FleetError)):
            Fleet.connect(plain)
        assert time.monotonic() - begin < 15
        with pytest.raises(FleetAuthError, match="do not trust each other"):
            Fleet.connect(replace(member, tls=rogue / "mallory"))
        for content in (b"\x00" * 1000, bytes(range(256)) * 4, b"GET / HTTP/1.1\r\n\r\n", b"\x80\x04cos\nsystem\n"):
            _refused(member.address, content)
        _slowly(member.address)
        with Fleet.connect(member) as client:
            until(lambda: len(client.devices()) == 1)
            with client.request("red"):
                (red,) = fields.items(client.status()["devices"])
                assert fields.mapping(red)["user"] == "ann"  # as the certificate says
        fleet.join("mallory", "--tls", str(rogue / "mallory"))
        until(lambda: "can't be joined" in fleet.log("mallory"))
    finally:
        fleet.zygote.communicate()


def _refused(address: Address, content: bytes) -> None:
    """What is sent is answered at most by an alert of TLS, and the connection is closed within 5 seconds."""
    with socket.create_connection((address.host, address.port), timeout=5) as tried:
        tried.sendall(content)
        answer = b""
        try:
            while data := tried.recv(1000):
                answer += data
        except ConnectionError:
            pass
        assert answer == b"" or (answer[0] == 21 and len(answer) < 100)


def _slowly(address: Address) -> None:
    """Connections that say nothing keep nobody else out."""
    kept = [socket.create_connection((address.host, address.port)) for _ in range(50)]
    for connection in kept:
        connection.close()
