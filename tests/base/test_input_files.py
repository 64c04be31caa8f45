"""What is no regular file is refused at once; nothing waits for a pipe, and nothing reads a device."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.base.input_files import open_regular, read_at, read_regular, read_regular_text


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def listening(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def link_to_device(path: Path) -> Path:
    path.symlink_to("/dev/zero")
    return path


IRREGULAR: dict[str, Callable[[Path], Path]] = {
    "pipe": pipe,
    "socket": listening,
    "folder": folder,
    "device": lambda _: Path("/dev/zero"),
    "link to a device": link_to_device,
}


@pytest.mark.parametrize("kind", IRREGULAR)
def test_what_is_no_regular_file_is_refused(kind: str, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no regular file"):
        open_regular(IRREGULAR[kind](tmp_path / "x"))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_is_exchanged_before_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    real = os.stat

    def exchange(given: Path, **options: object) -> os.stat_result:
        facts = real(given)
        path.unlink()
        os.mkfifo(path)
        return facts

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", exchange)
        with pytest.raises(OSError, match="it is a pipe, no regular file"):
            open_regular(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(OSError, match="no file can have such a name"):
        open_regular(name)


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes("äb".encode())
    assert read_regular(path, 3) == "äb".encode()
    assert read_regular_text(path, 3) == "äb"
    with pytest.raises(OSError, match="it has 3 bytes, more than 2"):
        read_regular(path, 2)
    path.write_bytes(b"\xff")
    with pytest.raises(OSError, match="no text in UTF-8"):
        read_regular_text(path, 3)


def test_a_sparse_file_is_not_read_beyond_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="more than 10"):
        read_regular(path, 10)


def test_reading_at_a_place(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    target = bytearray(4)
    with open_regular(path) as file:
        assert read_at(file.fileno(), 3, memoryview(target)) == 4
        assert target == b"3456"
        assert read_at(file.fileno(), 8, memoryview(target)) == 2
