"""What must last is on the disk before anybody is told; those who come together share the wait."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.service.support import Here
from tilewright.base.errors import TilewrightError
from tilewright.service.flushes import Flushes
from tilewright.service.limits import Unavailable

CLIENTS = 8


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """When flushes began and ended, of a disk that is slow."""
    found: list[tuple[float, float]] = []

    def fsync(_: int) -> None:
        begin = time.monotonic()
        time.sleep(0.05)
        found.append((begin, time.monotonic()))

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_who_comes_together_waits_for_one_flush_that_begins_later(
    tmp_path: Path, flushed: list[tuple[float, float]]
) -> None:
    (tmp_path / "log").write_bytes(b"x")
    flushes, together = Flushes(tmp_path / "log"), threading.Barrier(CLIENTS)
    flushes.flush()
    flushed.clear()

    def flush(_: int) -> tuple[float, float]:
        together.wait()
        begin = time.monotonic()
        flushes.flush()
        return begin, time.monotonic()

    with ThreadPoolExecutor(CLIENTS) as pool:
        waited = list(pool.map(flush, range(CLIENTS)))
    assert len(flushed) < CLIENTS
    flushes.close()
    for asked, told in waited:
        assert any(asked <= begin and end <= told for begin, end in flushed)


def test_a_log_that_is_made_anew_gets_its_name_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = list[Path]()
    monkeypatch.setattr("tilewright.service.flushes.sync_folder", named.append)
    log, flushes = tmp_path / "log", Flushes(tmp_path / "log")
    flushes.flush()
    assert not named
    for times in (1, 2, 3):
        log.write_bytes(b"x")
        for _ in range(2):
            flushes.flush()
        assert named == [tmp_path] * times
        log.unlink()
        flushes.flush()
    flushes.close()


def test_transactions_that_must_last_are_flushed(tmp_path: Path, flushed: list[tuple[float, float]]) -> None:
    with Here(tmp_path) as here:
        for lasting in (True, False, True):
            flushed.clear()
            with here.database.writing(lasting=lasting):
                pass
            assert bool(flushed) is lasting


def test_a_transaction_that_is_undone_waits_for_nothing(tmp_path: Path, flushed: list[tuple[float, float]]) -> None:
    with Here(tmp_path) as here:
        flushed.clear()
        with pytest.raises(TilewrightError), here.database.writing():
            raise TilewrightError("no")
        assert not flushed


def test_a_disk_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    with Here(tmp_path) as here:
        monkeypatch.setattr(os, "fsync", fails)
        with pytest.raises(Unavailable, match=r"the database's disk does not answer"), here.database.writing():
            pass
