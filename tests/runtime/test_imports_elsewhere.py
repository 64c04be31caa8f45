"""On other systems the runtime is imported, and the compiler refused with what to do; modules of Linux are hidden here.

Python's own modules are those of Linux: what is missing elsewhere in ``os`` and ``signal`` is taken away first.
"""

import subprocess
import sys
from pathlib import Path

import pytest

_HIDING = """
import ctypes, importlib, mmap, os, pkgutil, signal, subprocess, sys, tempfile, threading, weakref
import ml_dtypes, numpy
import rich.console, rich.table, rich.progress

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {hidden!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
for module, names in ((os, {os!r}), (signal, {signal!r}), (mmap, {mmap!r})):
    for name in names:
        delattr(module, name)
sys.platform = {platform!r}
if sys.platform == "win32":
    def library(name, *rest, **more):
        raise AssertionError(f"a library is asked for during import: {{name}}")
    ctypes.CDLL = library
"""
_FUNCTIONS = ["sched_getaffinity", "register_at_fork", "geteuid", "fchmod", "fchown", "readv", "preadv"]
_FLAGS = ["O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_NOFOLLOW", "O_DIRECTORY"]
_WINDOWS = {
    "platform": "win32",
    "hidden": ["fcntl", "resource", "pwd", "grp", "termios"],
    "os": [*_FUNCTIONS, *_FLAGS],
    "signal": ["SIGKILL", "SIGBUS", "SIGTRAP", "SIGALRM", "pthread_sigmask", "setitimer"],
    "mmap": ["MAP_PRIVATE", "MAP_ANONYMOUS", "PROT_READ", "PROT_WRITE", "PROT_EXEC"],
}
_MACOS = {"platform": "darwin", "hidden": [], "os": ["sched_getaffinity"], "signal": [], "mmap": []}
SYSTEMS = pytest.mark.parametrize("hidden", [_WINDOWS, _MACOS], ids=["windows", "macos"])


def run(hidden: dict[str, object], program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", _HIDING.format(**hidden) + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@SYSTEMS
def test_the_runtime_is_imported(hidden: dict[str, object]) -> None:
    program = """
import tilewright, tilewright.runtime
for part in ("tilewright.runtime", "tilewright.base"):
    for module in pkgutil.walk_packages(importlib.import_module(part).__path__, f"{part}."):
        importlib.import_module(module.name)
assert not any(name.startswith("tilewright.") and name.split(".")[1] not in ("base", "runtime") for name in sys.modules)
print(tilewright.load.__name__, tilewright.RunnableModel.__name__, tilewright.Settings.__name__)
"""
    assert run(hidden, program).split() == ["load", "RunnableModel", "Settings"]


@SYSTEMS
def test_the_compiler_is_refused(hidden: dict[str, object]) -> None:
    program = """
import tilewright
for name in ("compile", "quantize", "tune_kernel", "Target", "te"):
    try:
        getattr(tilewright, name)
    except tilewright.Unsupported as error:
        print(error)
from tilewright.cli import main
print(main(["tune", "x.onnx"]), file=sys.stderr)
"""
    told = run(hidden, program).splitlines()
    assert len(told) == 5
    for name, line in zip(("compile", "quantize", "tune_kernel", "Target", "te"), told, strict=True):
        assert line.startswith(f"tilewright.{name} needs the compiler, which is for Linux, and this is")
        assert "save the model, and load it here" in line


def test_files_on_windows(tmp_path: Path) -> None:
    """They are read, byte for byte, and not written; folders are nobody's."""
    program = """
from pathlib import Path
from tilewright.base.files import own_folder, replace_file, sweep
from tilewright.base.input_files import read_regular
from tilewright.base.memory import available, give_back
from tilewright.runtime.artifact.content import own_bytes
from tilewright.runtime.artifact.secret_files import read_secret
from tilewright.runtime.sizing import default_threads
folder = Path(sys.argv[1])
place = folder / "x"
assert read_regular(place, 99) == bytes(own_bytes(place)) == b"a\\r\\nb\\x1a"
assert "on Windows" in own_folder(folder)
sweep(folder)
give_back()
assert available(folder) == 1 << 62
assert 1 <= default_threads({}) <= os.cpu_count()
for refused in (lambda: replace_file(folder / "y", [b""]), lambda: read_secret(place, 9)):
    try:
        refused()
    except OSError as error:
        print(error)
"""
    (tmp_path / "x").write_bytes(b"a\r\nb\x1a")
    (tmp_path / f".tilewright-{'0' * 16}.part").write_bytes(b"")
    told = run(_WINDOWS, program, str(tmp_path)).splitlines()
    assert "Tilewright writes no files on Windows" in told[0]
    assert "can't tell on Windows who could read it" in told[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".tilewright-{'0' * 16}.part", "x"]
