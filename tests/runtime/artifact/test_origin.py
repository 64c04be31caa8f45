"""The user's key: made once, kept secret, and what is said when it is not there or not secret."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tilewright.base.errors import BadInput
from tilewright.runtime.artifact import origin

TEXT = b"manifest"


def test_who_signed_it_knows_it(tmp_path: Path) -> None:
    signature = origin.sign(TEXT, tmp_path / "keys")
    assert origin.doubt(TEXT, signature, tmp_path / "keys") is None
    assert origin.sign(TEXT, tmp_path / "keys") == signature


def test_others_do_not(tmp_path: Path) -> None:
    signature = origin.sign(TEXT, tmp_path / "ada")
    assert origin.sign(TEXT, tmp_path / "eve") != signature
    doubts = {
        "it is not signed": (TEXT, None, tmp_path / "ada"),
        "it is signed with another key": (TEXT, signature, tmp_path / "eve"),
        "has not saved an artifact yet": (TEXT, signature, tmp_path / "new"),
        "no home; TILEWRIGHT_KEY_DIR is not set": (TEXT, signature, None),
    }
    for why, arguments in doubts.items():
        assert why in (origin.doubt(*arguments) or "")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("change", [lambda s: s[:-1], lambda s: s + b" ", lambda s: b"", lambda s: s.upper()])
def test_altered_signatures_and_manifests(tmp_path: Path, change: object) -> None:
    assert callable(change)
    signature = origin.sign(TEXT, tmp_path / "keys")
    assert origin.doubt(TEXT, change(signature), tmp_path / "keys")
    assert origin.doubt(TEXT + b" ", signature, tmp_path / "keys")


def test_the_key_is_secret(tmp_path: Path) -> None:
    origin.sign(TEXT, tmp_path / "a" / "keys")
    key = tmp_path / "a" / "keys" / origin.KEY_FILE
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.stat().st_size == 32
    assert [entry.name for entry in key.parent.iterdir()] == [origin.KEY_FILE]
    assert key.parent.stat().st_mode & 0o777 == 0o700


def test_many_make_one_key(tmp_path: Path) -> None:
    start = Barrier(8)

    def sign(_: int) -> bytes:
        start.wait()
        return origin.sign(TEXT, tmp_path / "keys")

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(sign, range(8)))) == 1
    assert len(list((tmp_path / "keys").iterdir())) == 1


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    signature = origin.sign(TEXT, folder)
    (folder / origin.KEY_FILE).chmod(0o640)
    with pytest.raises(BadInput, match=r"chmod 600 it.*TILEWRIGHT_KEY_DIR"):
        origin.sign(TEXT, folder)
    assert "chmod 600" in (origin.doubt(TEXT, signature, folder) or "")


def test_a_damaged_key(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    signature = origin.sign(TEXT, folder)
    (folder / origin.KEY_FILE).write_bytes(b"short")
    with pytest.raises(BadInput, match="has not 32 bytes"):
        origin.sign(TEXT, folder)
    assert "has not 32 bytes" in (origin.doubt(TEXT, signature, folder) or "")


def test_a_key_that_is_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    origin.sign(TEXT, tmp_path / "other")
    folder.mkdir(mode=0o700)
    (folder / origin.KEY_FILE).symlink_to(tmp_path / "other" / origin.KEY_FILE)
    with pytest.raises(BadInput, match="can't be kept in"):
        origin.sign(TEXT, folder)


def test_a_key_that_is_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / origin.KEY_FILE, 0o600)
    with pytest.raises(BadInput, match="no file of this user's"):
        origin.sign(TEXT, folder)


def test_no_place_for_a_key(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="set TILEWRIGHT_KEY_DIR"):
        origin.sign(TEXT, None)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(BadInput, match="other users can write to it"):
        origin.sign(TEXT, open_to_all)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadInput, match=r"can't be kept in .*file"):
        origin.sign(TEXT, tmp_path / "file" / "keys")
