"""The store: what goes in comes out or is missed, whatever happens to the disk, to processes and to the files."""

import hashlib
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.base.errors import InternalError
from tilewright.base.events import CacheLookup, Recorder
from tilewright.base.settings import Settings
from tilewright.base.store import Store

HEADER = 40  # magic and checksum
ROOMY = 1 << 30
EACH_ON_A_FRESH_KEY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def key_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def file_of(store: Store, key: str) -> Path:
    return store.directory / key[:2] / key


def opened(folder: Path, limit: int = ROOMY, listener: Recorder | None = None) -> Store:
    store = Store.open(Settings(cache_dir=folder, cache_bytes=limit), listener or Recorder())
    assert store is not None
    return store


@EACH_ON_A_FRESH_KEY
@given(data=st.binary(max_size=3000))
def test_what_is_put_is_got(tmp_path: Path, data: bytes) -> None:
    recorder = Recorder()
    store = opened(tmp_path / "cache", listener=recorder)
    key = hashlib.sha256(data).hexdigest()
    store.put(key, data)
    assert store.get(key) == data
    assert recorder.events == [CacheLookup(key, hit=True)]


def test_a_key_that_was_never_put_is_a_miss(tmp_path: Path) -> None:
    recorder = Recorder()
    store = opened(tmp_path / "cache", listener=recorder)
    assert store.get(key_of("x")) is None
    assert recorder.events == [CacheLookup(key_of("x"), hit=False)]


@pytest.mark.parametrize("key", ["", "ab", "../" * 21 + "x", "G" * 64, "a" * 63, "A" * 64, "a" * 64 + "\n"])
def test_a_key_is_a_hash(tmp_path: Path, key: str) -> None:
    store = opened(tmp_path / "cache")
    with pytest.raises(InternalError):
        store.get(key)
    with pytest.raises(InternalError):
        store.put(key, b"")


@EACH_ON_A_FRESH_KEY
@given(data=st.binary(max_size=200), cut=st.integers(0, 1 << 16))
def test_a_truncated_entry_is_a_miss_and_goes(tmp_path: Path, data: bytes, cut: int) -> None:
    recorder = Recorder()
    store = opened(tmp_path / "cache", listener=recorder)
    key = hashlib.sha256(data).hexdigest()
    store.put(key, data)
    file = file_of(store, key)
    with file.open("r+b") as opened_file:
        opened_file.truncate(cut % file.stat().st_size)
    assert store.get(key) is None
    assert not file.exists()
    assert recorder.warnings() == [f"the cache entry {key[:12]} was damaged and has been removed"]


@EACH_ON_A_FRESH_KEY
@given(data=st.binary(max_size=200), at=st.integers(0, 1 << 16), flip=st.integers(1, 255))
def test_a_changed_byte_is_a_miss(tmp_path: Path, data: bytes, at: int, flip: int) -> None:
    store = opened(tmp_path / "cache")
    key = hashlib.sha256(data).hexdigest()
    store.put(key, data)
    file = file_of(store, key)
    content = bytearray(file.read_bytes())
    content[at % len(content)] ^= flip
    file.write_bytes(content)
    assert store.get(key) is None
    assert not file.exists()
    store.put(key, data)
    assert store.get(key) == data


def test_an_entry_under_another_name_is_a_miss(tmp_path: Path) -> None:
    store = opened(tmp_path / "cache")
    right, wrong = key_of("right"), key_of("wrong")
    store.put(right, b"data")
    file_of(store, wrong).parent.mkdir(exist_ok=True)
    file_of(store, right).rename(file_of(store, wrong))
    assert store.get(wrong) is None


def test_a_link_or_folder_in_place_of_an_entry_is_a_miss_with_a_warning(tmp_path: Path) -> None:
    recorder = Recorder()
    store = opened(tmp_path / "cache", listener=recorder)
    store.put(key_of("x"), b"data")
    file = file_of(store, key_of("x"))
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert store.get(key_of("x")) is None
    file.unlink()
    file.mkdir()
    assert store.get(key_of("x")) is None
    assert len(recorder.warnings()) == 2
    store.put(key_of("x"), b"data")  # can't; must not raise
    assert len(recorder.warnings()) == 3


# Who may own the folder


def test_folder_and_files_are_the_users_alone(tmp_path: Path) -> None:
    store = opened(tmp_path / "a/b/cache")
    store.put(key_of("x"), b"data")
    for path in (store.directory, file_of(store, key_of("x")).parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(store, key_of("x")).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    recorder = Recorder()
    assert Store.open(Settings(cache_dir=folder), recorder) is None
    assert "other users can write to it" in recorder.warnings()[0]


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path / "cache")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    recorder = Recorder()
    assert Store.open(Settings(cache_dir=tmp_path / "cache"), recorder) is None
    assert "belongs to another user" in recorder.warnings()[0]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file/cache"):
        recorder = Recorder()
        assert Store.open(Settings(cache_dir=folder), recorder) is None
        assert len(recorder.warnings()) == 1


def test_no_cache_where_settings_want_none(tmp_path: Path) -> None:
    recorder = Recorder()
    assert Store.open(Settings(cache_dir=None), recorder) is None
    assert Store.open(Settings(cache_dir=tmp_path / "cache", cache_bytes=0), recorder) is None
    assert recorder.events == []
    assert not (tmp_path / "cache").exists()


# The bound


def test_the_least_recently_used_entries_go(tmp_path: Path) -> None:
    size = 1000 - HEADER
    store = opened(tmp_path / "cache", limit=10_000)
    keys = [key_of(str(i)) for i in range(10)]
    for age, key in enumerate(keys):
        store.put(key, bytes(size))
        os.utime(file_of(store, key), (age, age))
    assert store.usage().bytes == 10_000
    assert store.get(keys[0]) is not None  # used now
    store.put(key_of("new"), bytes(size))
    left = [key for key in (*keys, key_of("new")) if file_of(store, key).exists()]
    assert left == [keys[0], *keys[3:], key_of("new")]


@EACH_ON_A_FRESH_KEY
@given(sizes=st.lists(st.integers(0, 6000), min_size=1, max_size=40), limit=st.integers(100, 20_000))
def test_the_folder_is_never_much_over_its_bound(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int
) -> None:
    store = opened(tmp_path_factory.mktemp("store") / "cache", limit)
    for i, size in enumerate(sizes):
        store.put(key_of(str(i)), bytes(size))
        assert store.usage().bytes <= limit * (1 + 1 / 16)
        assert (store.get(key_of(str(i))) is not None) == (size + HEADER <= limit)


def test_stores_of_one_folder_look_at_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    list_folder = os.scandir

    def noted(folder: str | Path) -> object:
        looked.append(str(folder))
        return list_folder(folder)

    monkeypatch.setattr(os, "scandir", noted)
    size = 1000 - HEADER
    for i in range(63):
        opened(tmp_path / "cache", limit=1_000_000).put(key_of(str(i)), bytes(size))
    assert looked.count(str(tmp_path / "cache")) == 1
    opened(tmp_path / "cache", limit=1_000_000).put(key_of("63"), bytes(size))
    assert looked.count(str(tmp_path / "cache")) == 2, "a sixteenth of the bound was written since"
    opened(tmp_path / "cache", limit=10_000).put(key_of("64"), bytes(size))
    assert looked.count(str(tmp_path / "cache")) == 3, "the bound is another one"
    assert opened(tmp_path / "cache").usage().bytes <= 10_000


def test_clear_and_usage(tmp_path: Path) -> None:
    store = opened(tmp_path / "cache")
    for i in range(3):
        store.put(key_of(str(i)), bytes(984))
    assert str(store.usage()) == "3 entries, 3K bytes"
    store.clear()
    assert store.usage().entries == 0


def test_parts_that_a_dead_process_left_go_and_young_ones_stay(tmp_path: Path) -> None:
    store = opened(tmp_path / "cache", limit=1000)
    store.put(key_of("x"), b"data")
    folder = file_of(store, key_of("x")).parent
    old, young = folder / f"{key_of('x')}.1.part", folder / f"{key_of('x')}.2.part"
    for part in (old, young):
        part.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    assert store.usage().entries == 1
    assert (old.exists(), young.exists()) == (False, True)


# Trouble, and company


def run_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


FULL_DISK = """
import resource, sys
from pathlib import Path
from tilewright.base.events import Recorder
from tilewright.base.settings import Settings
from tilewright.base.store import Store
recorder = Recorder()
store = Store.open(Settings(cache_dir=Path(sys.argv[1])), recorder)
store.put("a" * 64, b"fits")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # from here on, longer files fail as on a full disk
for _ in range(3):
    store.put("b" * 64, bytes(5000))
assert store.get("a" * 64) == b"fits" and store.get("b" * 64) is None
left = [path.name for path in Path(sys.argv[1]).rglob("*") if path.is_file()]
assert left == ["a" * 64], left
assert len(recorder.warnings()) == 1 and "can't write to the cache" in recorder.warnings()[0], recorder.warnings()
"""


def test_a_full_disk_is_told_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = run_python(FULL_DISK, str(tmp_path / "cache"))
    assert (process.communicate(timeout=60)[0], process.returncode) == ("", 0)


HAMMER = """
import hashlib, random, sys
from pathlib import Path
from tilewright.base.events import Recorder
from tilewright.base.settings import Settings
from tilewright.base.store import Store
folder, seed, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
recorder, choose = Recorder(), random.Random(seed)
store = Store.open(Settings(cache_dir=folder, cache_bytes=40_000), recorder)
hits = 0
for _ in range(rounds):
    name = str(choose.randrange(30))
    key, data = hashlib.sha256(name.encode()).hexdigest(), name.encode() * 1500
    found = store.get(key)
    assert found is None or found == data, name
    hits += found is not None
    if found is None or choose.random() < 0.3:
        store.put(key, data)
assert recorder.warnings() == [], recorder.warnings()
assert hits, "no entry was ever found"
"""


def test_processes_share_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    processes = [run_python(HAMMER, str(folder), str(seed), "400") for seed in range(4)]
    for process in processes:
        assert (process.communicate(timeout=120)[0], process.returncode) == ("", 0)
    usage = opened(folder, limit=40_000).usage()
    assert 0 < usage.bytes <= 40_000 * (1 + 4 / 16)
    assert not [path for path in folder.rglob("*.part")]


@pytest.mark.parametrize("more", [0.0, 0.05, 0.1, 0.15])
def test_writers_that_are_killed_leave_no_damaged_entry(tmp_path: Path, more: float) -> None:
    """So many seconds after the first entry is there."""
    folder = tmp_path / "cache"
    process = run_python(HAMMER, str(folder), "0", "1000000")
    deadline = time.monotonic() + 60
    while not _entries(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(more)
    process.kill()
    process.communicate(timeout=30)
    recorder, entries = Recorder(), _entries(folder)
    store = opened(folder, listener=recorder)
    assert entries
    assert all(store.get(key) is not None for key in entries)
    assert recorder.warnings() == []


def _entries(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("??/*") if path.suffix != ".part"]


# Files that check themselves


def test_a_file_that_is_kept_is_what_was_written(tmp_path: Path) -> None:
    store = opened(tmp_path / "cache")
    key = key_of("file")
    assert store.path(key) is None
    assert store.keep(key, 6, [b"abc", memoryview(b"def")])
    path = store.path(key)
    assert path is not None
    assert path.read_bytes() == b"abcdef"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    recorder = Recorder()
    opened(tmp_path / "cache", listener=recorder).remove(key, "it is old")
    assert store.path(key) is None
    assert recorder.warnings() == [f"the cache entry {key[:12]} was removed: it is old"]


def test_parts_that_fail_leave_nothing(tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"abc"
        raise KeyboardInterrupt

    store = opened(tmp_path / "cache")
    with pytest.raises(KeyboardInterrupt):
        store.keep(key_of("file"), 6, parts())
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_files_share_the_bound_and_the_oldest_goes(tmp_path: Path) -> None:
    store = opened(tmp_path / "cache", limit=1000)
    keys = [key_of(str(number)) for number in range(3)]
    for age, key in zip((300, 200), keys, strict=False):
        assert store.keep(key, 400, [bytes(400)])
        os.utime(file_of(store, key), (time.time() - age,) * 2)
    assert store.path(keys[0])  # used just now
    assert store.keep(keys[2], 400, [bytes(400)])
    assert [store.path(key) is not None for key in keys] == [True, False, True]


def test_a_file_larger_than_half_of_the_bound_is_not_kept(tmp_path: Path) -> None:
    recorder = Recorder()
    store = opened(tmp_path / "cache", limit=1000, listener=recorder)
    assert store.keep(key_of("half"), 500, [bytes(500)])
    assert not store.keep(key_of("more"), 501, [bytes(501)])
    assert "takes more than half of the cache" in recorder.warnings()[0]
