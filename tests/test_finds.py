"""What fresh draws found: written, drawn again, and gone when it is mended."""

import subprocess
import sys
from pathlib import Path

from tests.finds import FOLDER, ROOT, Find

FAULT = """
from hypothesis import given, strategies as st

@given(st.integers(0, 10**6))
def test_all_are_small(number):
    assert number < 1000
"""


def test_what_was_found_is_mended() -> None:
    finds = [Find.read(path) for path in sorted(FOLDER.glob("*.json"))]
    failing = ["\n".join([find.test, *find.report]) for find in finds if find.fails()]
    assert not failing, "\n\n".join(failing)


def test_a_failing_draw_is_written_and_drawn_again(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n")
    (tmp_path / "test_it.py").write_text(FAULT)
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.finds"]
    command = [sys.executable, "-m", "pytest", "-q", *options, f"--rootdir={tmp_path}", "--hypothesis-seed=7"]
    command += [f"--finds={tmp_path / 'finds'}", "-c", "/dev/null", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    (path,) = (tmp_path / "finds").glob("*.json")
    find = Find.read(path)
    assert (find.test, find.seed) == ("test_it.py::test_all_are_small", 7)
    assert any("test_all_are_small(" in line for line in find.report)
    assert find.fails(tmp_path, ())
    (tmp_path / "test_it.py").write_text(FAULT.replace("< 1000", "<= 10**6"))
    assert not find.fails(tmp_path, ())
