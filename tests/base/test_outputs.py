"""Outputs: whole or not at all, never an input, only regular files; what a killed process leaves goes with the next."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.base import files
from tilewright.base.errors import BadInput, ResourceLimit
from tilewright.base.outputs import check_output, output

SOURCE = Path(__file__).parent.parent.parent / "src"


def write(path: Path, data: bytes = b"new", inputs: tuple[Path, ...] = ()) -> None:
    with output(path, inputs) as file:
        file.write(data)


def entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_new_and_replaced(tmp_path: Path) -> None:
    write(tmp_path / "a", b"one")
    with (tmp_path / "a").open("rb") as reader:
        write(tmp_path / "a", b"two")
        assert reader.read() == b"one"
    assert (tmp_path / "a").read_bytes() == b"two"
    assert entries(tmp_path) == ["a"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
def test_permissions(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "new")
        (tmp_path / "old").touch()
        (tmp_path / "old").chmod(0o640)
        write(tmp_path / "old")
        with output(tmp_path / "secret", mode=0o600) as file:
            file.write(b"secret")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o666 & ~umask
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600 & ~umask


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_stays(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    os.chown(tmp_path / "a", 1234, 5678)
    write(tmp_path / "a")
    facts = (tmp_path / "a").stat()
    assert (facts.st_uid, facts.st_gid) == (1234, 5678)


def as_it_is(path: Path, _: Path) -> Path:
    return path


def by_hard_link(path: Path, other: Path) -> Path:
    os.link(path, other)
    return other


def by_symbolic_link(path: Path, other: Path) -> Path:
    other.symlink_to(path)
    return other


def by_folder(path: Path, other: Path) -> Path:
    other.symlink_to(path.parent, target_is_directory=True)
    return other / path.name


def by_dots(path: Path, other: Path) -> Path:
    return path.parent / ".." / path.parent.name / path.name


@pytest.mark.parametrize("called", [as_it_is, by_hard_link, by_symbolic_link, by_folder, by_dots])
@pytest.mark.parametrize("turned", [False, True])
def test_an_input_is_never_written(tmp_path: Path, called: Callable[[Path, Path], Path], turned: bool) -> None:
    given = tmp_path / "m.onnx"
    given.write_bytes(b"old")
    wanted = called(given, tmp_path / "other")
    asked, is_input = (given, wanted) if turned else (wanted, given)
    with pytest.raises(BadInput, match=r"it is an input .*give another name|it is a symbolic link"):
        write(asked, inputs=(tmp_path / "missing", is_input))
    assert given.read_bytes() == b"old"
    assert files.sweep(tmp_path) is None
    assert not list(tmp_path.glob(".*"))


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def make_device(kind: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root makes devices")
        try:
            os.mknod(path, kind | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("this container makes no devices")

    return make


KINDS: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": make_device(0o020000),
    "a device ": make_device(0o060000),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_stays(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    KINDS[kind](tmp_path / "there")
    before = (tmp_path / "there").lstat()
    with pytest.raises(BadInput, match=rf"there can't be written: it is {kind.strip()}; give another name"):
        write(tmp_path / "there")
    after = (tmp_path / "there").lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize("target", ["file", "missing", "/dev/null", "loop"])
def test_links_are_not_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "loop").symlink_to(tmp_path / target)
    with pytest.raises(BadInput, match=r"it is a symbolic link; give the file that it points to \(/"):
        write(tmp_path / "loop")
    assert (tmp_path / "loop").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"old"
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("name", ["", ".", "/", "..", "a/..", "a\0b"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(BadInput, match="it is no name of a file"):
        check_output(name)


def test_where_nothing_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"there is no folder .*none; make it first"):
        write(tmp_path / "none" / "a")
    with pytest.raises(BadInput, match="can't be written"):
        write(tmp_path / "file" / "a")
    with pytest.raises(BadInput, match="can't be written: File name too long"):
        write(tmp_path / ("a" * 300))
    write(tmp_path / ("a" * 255))


def test_a_read_only_folder(tmp_path: Path) -> None:
    """As a user for whom permissions count."""
    tmp_path.chmod(0o777)
    folder = tmp_path / "there"
    folder.mkdir(mode=0o555)
    program = f"""
        import os
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        write_big({str(folder / "a")!r}, 10)
    """
    done = python(program)
    assert "BadInput" in done.stderr and "can't be written: Permission denied" in done.stderr, done.stderr
    assert entries(folder) == []


def test_an_error_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(KeyError), output(tmp_path / "a") as file:
        file.write(b"new")
        raise KeyError
    assert (tmp_path / "a").read_bytes() == b"old"
    assert entries(tmp_path) == ["a"]


HEAD = """
import sys, time
from tilewright.base.outputs import output

def write_big(path, megabytes, pause=0):
    with output(path) as file:
        for _ in range(megabytes):
            file.write(bytes(1 << 20))
            file.flush()
        print("written", flush=True)
        time.sleep(pause)
"""


def code(program: str) -> list[str]:
    lines = [line[8:] if line.startswith("        ") else line for line in program.splitlines()]
    return [sys.executable, "-c", HEAD + "\n".join(lines)]


def python(program: str, prepare: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        code(program), capture_output=True, text=True, timeout=60, env=environment, preexec_fn=prepare
    )


def test_a_full_disk(tmp_path: Path) -> None:
    """A limit of the size of files has the same effect, and needs no disk."""
    (tmp_path / "a").write_bytes(b"old")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, 1 << 21))

    done = python(f"write_big({str(tmp_path / 'a')!r}, 5)", limit)
    assert "ResourceLimit" in done.stderr and "free some space" in done.stderr, done.stderr
    assert (tmp_path / "a").read_bytes() == b"old"
    assert entries(tmp_path) == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True).returncode:
        pytest.skip("this container mounts nothing")
    try:
        write(disk / "a", b"old")
        with pytest.raises(ResourceLimit, match=r"a can't be written: No space left .*free some space"):
            write(disk / "a", bytes(3 << 20))
        assert (disk / "a").read_bytes() == b"old"
        assert entries(disk) == ["a"]
    finally:
        subprocess.run(["umount", disk], check=True)


def start_writing(path: Path) -> subprocess.Popen[str]:
    """A process that has written all of a file and waits with the rest."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    program = code(f"write_big({str(path)!r}, 1, 60)")
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


def test_what_a_killed_process_leaves_goes_with_the_next_output(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / ".tilewright-mine.part").touch()  # no name of ours
    (tmp_path / ".tilewright-0123456789abcdef.part").mkdir()  # no file
    with start_writing(tmp_path / "a") as alive, start_writing(tmp_path / "a") as dead:
        assert len(entries(tmp_path)) == 5
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert len(entries(tmp_path)) == 5
        assert (tmp_path / "a").read_bytes() == b"old"
        write(tmp_path / "b")
        assert len(entries(tmp_path)) == 5  # b, and of the two parts the one whose writer lives
        alive.kill()
    write(tmp_path / "b")
    assert entries(tmp_path) == [".tilewright-0123456789abcdef.part", ".tilewright-mine.part", "a", "b"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_parts_of_other_users_stay(tmp_path: Path) -> None:
    theirs = tmp_path / ".tilewright-0123456789abcdef.part"
    theirs.touch()
    os.chown(theirs, 1234, 1234)
    write(tmp_path / "b")
    assert theirs.exists()


def test_threads_that_write_and_sweep(tmp_path: Path) -> None:
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(30):
                write(tmp_path / f"{number % 2}", bytes([number]) * (1000 + turn))
        except (OSError, BadInput) as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert entries(tmp_path) == ["0", "1"]
    for name in "01":
        assert len(set((tmp_path / name).read_bytes())) == 1


def test_nothing_else_of_the_package_writes_files() -> None:
    """Whoever opens a file for writing by itself misses all of this. Allowed: what is no output."""
    allowed = {
        "backend/vta/synthesis/synthesized.py": "into a private folder, for a child",
        "base/files.py": "the one place",
        "base/store.py": "the cache",
        "frontend/onnx/front_end.py": "into a private folder, for a child",
        "cli/command.py": "sends what nobody reads to /dev/null",
        "fleet/device.py": "into a private folder, for a child",
        "fleet/model_child.py": "into a private folder, for its parent",
        "measure/processes.py": "the rank of its own session, in /proc",
        "service/bucket.py": "into a private folder, for a child",
        "service/bundle.py": "into a private folder, for a child",
        "service/confined.py": "facts of its own process, in /proc",
        "service/store.py": "files of its own folder, by their hash",
    }
    writing = re.compile(
        r"\.write_(text|bytes)\(|O_WRONLY|O_CREAT|onnx\.save\(|open\([^)\n]*[\"'][wax]b?[\"']|np\.save\(path"
    )
    package = SOURCE / "tilewright"
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if writing.search(path.read_text(encoding="utf-8"))
    }
    assert found == allowed.keys()
