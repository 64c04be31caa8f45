"""Builds what is released, and uses it as a user does: ``make release``; ``docs/release.md`` says what is checked.

Each environment is a new one, with no variables of this one, and its programs run in an empty folder: nothing of the
source tree is found by chance.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
RUNTIME = ROOT / "packaging" / "runtime"
MOST_RUNTIME_BYTES = 1_000_000
"""Of what running an artifact takes beside NumPy and ml-dtypes, installed."""
VERSIONS = ("python3.11", "python3.12", "python3.13", "python3.14")
"""Names of interpreters for which the wheel is installed and used, if they are on PATH."""
ARM64 = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
"""Tags of wheels that a Linux of 64-bit ARM with glibc 2.28 takes."""
KEPT = ("HOME", "LANG", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""Variables that programs get, beside those of pip and of proxies."""

COMPILE = """
import numpy as np, onnx, tilewright
from onnx import TensorProto, helper
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "m.onnx")
given = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
assert np.array_equal(tilewright.compile("m.onnx")(given), np.maximum(given, 0))
"""
RUN = """
import numpy as np, tilewright
given = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
assert np.array_equal(tilewright.load("m.tw", trust=True)(given), np.maximum(given, 0))
for name in ("compile", "te"):
    try:
        getattr(tilewright, name)
    except ImportError as error:
        assert "pip install tilewright" in str(error), error
    else:
        raise AssertionError(f"{name} is here, too")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", help=f"an interpreter to use, instead of all of {VERSIONS}")
    options = parser.parse_args()
    wheel, sdist, runtime = build()
    check_contents(wheel, sdist)
    check_arm64(wheel, runtime)
    for python in options.python or interpreters():
        begin = time.monotonic()
        version = run([python, "-c", "import platform; print(platform.python_version())"], ROOT).strip()
        with tempfile.TemporaryDirectory(prefix="tilewright-release-") as name:
            use(python, wheel, runtime, Path(name))
        print(f"{version}: compiles and runs in clean environments ({time.monotonic() - begin:.0f} s)")
    return 0


def interpreters() -> list[str]:
    """This interpreter, and that of each other name in ``VERSIONS``; absent ones are skipped with a printed line."""
    found = [sys.executable]
    for name in VERSIONS:
        if name == f"python{sys.version_info.major}.{sys.version_info.minor}":
            continue
        other = interpreter(name)
        if other is None:
            print(f"{name}: not found, skipped")
        else:
            found.append(other)
    return found


def interpreter(name: str) -> str | None:
    """The path of an interpreter on PATH. None also if it does not start: pyenv has names of versions not selected."""
    path = shutil.which(name)
    if path is None:
        return None
    command = [path, "-c", "import sys; print(sys.executable)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def build() -> tuple[Path, Path, Path]:
    """The wheel, made from the sdist alone, the sdist, and the wheel of the runtime; twine checks all."""
    for old in DIST.glob("tilewright[-_]*"):
        old.unlink()
    run([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)], ROOT)
    run([sys.executable, "-m", "build", "--wheel", "--outdir", str(DIST), str(RUNTIME)], ROOT)
    (wheel,), (sdist,), (runtime,) = (
        DIST.glob(f"tilewright{end}") for end in ("-*.whl", "-*.tar.gz", "_runtime-*.whl")
    )
    run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist), str(runtime)], ROOT)
    return wheel, sdist, runtime


def check_contents(wheel: Path, sdist: Path) -> None:
    """The wheel has all files of ``src`` and the license, and nothing else; the sdist has what builds and tests it."""
    source = ROOT / "src"
    tracked = run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "src"], ROOT).splitlines()
    wanted = {str((ROOT / name).relative_to(source)) for name in tracked if (ROOT / name).is_file()}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in archive.namelist()), "no license"
    assert found == wanted, f"in the wheel or in src only: {sorted(found ^ wanted)[:9]}"
    with tarfile.open(sdist) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    missing = {"pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "Makefile", "tests/release.py"} - there
    assert not missing, f"not in the sdist: {sorted(missing)}"
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes; {sdist.name}: {sdist.stat().st_size:,} bytes")


def check_arm64(*wheels: Path) -> None:
    """They are for any machine, and for all that they depend on there are wheels for 64-bit ARM; none is downloaded."""
    platforms = [word for tag in ARM64 for word in ("--platform", tag)]
    with tempfile.TemporaryDirectory(prefix="tilewright-arm64-") as name:
        options = ["--dry-run", "--ignore-installed", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
        for wheel in wheels:
            assert wheel.name.endswith("-py3-none-any.whl"), wheel.name
            for version in VERSIONS:
                wanted = ["--python-version", version.removeprefix("python"), *platforms, "--target", name]
                command = [sys.executable, "-m", "pip", "install", *options, *wanted, "--report", "-", str(wheel)]
                urls = [item["download_info"]["url"] for item in json.loads(run(command, ROOT))["install"]]
                native = [url.rpartition("/")[2] for url in urls if not url.endswith("-none-any.whl")]
                assert native, f"{wheel.name} depends on nothing native?"
                assert all("aarch64" in file for file in native), native
    print(f"arm64: wheels for all dependencies, for {', '.join(VERSIONS)}")


def use(python: str, wheel: Path, runtime: Path, folder: Path) -> None:
    """Compile with all of it; run the artifact where only the runtime, NumPy and ml-dtypes are."""
    work = folder / "work"
    work.mkdir()
    full = environment(python, folder / "full", [str(wheel)])
    run([str(full), "-m", "pip", "check"], work)
    command = str(full.with_name("tilewright"))
    version = run([command, "--version"], work).split()[1]
    assert f"-{version}-" in wheel.name, version
    run([str(full), "-c", COMPILE], work)
    run([command, "compile", "m.onnx", "-o", "m.tw"], work)
    run([command, "run", "m.onnx", "--json"], work)
    lean = environment(python, folder / "lean", [str(runtime)])
    run([str(lean), "-m", "pip", "check"], work)
    run([str(lean), "-c", RUN], work)
    own = Path(run([str(lean), "-c", "import tilewright; print(tilewright.__path__[0])"], work).strip())
    size = sum(file.stat().st_size for file in own.rglob("*") if file.is_file() and file.suffix != ".pyc")
    assert size <= MOST_RUNTIME_BYTES, f"{size} bytes to run an artifact"
    print(f"to run an artifact: {size:,} bytes beside NumPy and ml-dtypes")


def environment(python: str, place: Path, *installed: list[str]) -> Path:
    """The interpreter of a new environment."""
    run([python, "-m", "venv", str(place)], place.parent)
    own = place / "bin" / "python"
    for names in installed:
        run([str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *names], place.parent)
    return own


def run(command: list[str], folder: Path) -> str:
    """What it prints; ends this process if it fails."""
    kept = {n: v for n, v in os.environ.items() if n in KEPT or n.startswith("PIP_") or n.lower().endswith("_proxy")}
    variables = {**kept, "PATH": os.defpath, "TILEWRIGHT_RECORDS": "off", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)[:200]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
