"""Plugins: found among entry points, and known by their code."""

import enum
import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.extending.packages import install
from tilewright.base import plugins
from tilewright.base.plugins import identity, installed
from tilewright.target.target import Target

GROUP = "tilewright.tests"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    installed.cache_clear()
    yield tmp_path
    installed.cache_clear()
    for name in ("plug_a", "plug_b"):
        sys.modules.pop(name, None)


def write(folder: Path, module: str, text: str, *names: str) -> None:
    (folder / f"{module}.py").write_text(text)
    for name in names:
        install(folder, GROUP, name, f"{module}:{name.upper()}")


def test_what_is_installed_is_found_by_name(folder: Path) -> None:
    write(folder, "plug_a", "TWO = 2\nONE = 1\n", "two", "one")
    assert list(installed(GROUP, int).items()) == [("one", 1), ("two", 2)]
    assert dict(installed("tilewright.none", int)) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ONE = 1 / 0", "it can't be loaded: upgrade the package, or uninstall it"),
        ("TWO = 2", "it can't be loaded"),
        ("ONE = 'one'", "it is a str, not a int: see docs/extending.md"),
    ],
)
def test_what_is_broken_is_left_out_and_named(
    text: str, why: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, "plug_a", text, "one")
    write(folder, "plug_b", "THREE = 3", "three")
    assert dict(installed(GROUP, int)) == {"three": 3}
    where = f"one = plug_a:ONE of the package plug-a-one 1.0 (entry points {GROUP})"
    assert f"{where} is left out, as {why}" in caplog.text


def test_two_packages_with_one_name(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(folder, "plug_a", "ONE = 1", "one")
    write(folder, "plug_b", "ONE = 2", "one")
    assert dict(installed(GROUP, int)) == {"one": 1}
    assert "plug_b:ONE" in caplog.text
    assert "another package offers one, too" in caplog.text


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Pair:
    left: object
    right: object = None


class Plain:
    def __init__(self, value: object) -> None:
        self.value = value


class Other(Plain):
    pass


class Hidden:
    __slots__ = ("value",)


class Half(Hidden):
    pass


def double(x: int) -> int:
    return 2 * x


DIFFERENT = [
    1,
    True,
    1.0,
    "1",
    b"1",
    None,
    Path("1"),
    Color.RED,
    Color.BLUE,
    Color,
    double,
    write,
    (1, 2),
    [1, 2],
    (1, (2,)),
    {1: 2},
    {2: 1},
    {1, 2},
    Pair(1),
    Pair(2),
    Pair(1, 2),
    Pair(double),
    Plain(1),
    Plain(2),
    Other(1),
    Target.parse("x86_64,znver4"),
    Target.parse("x86_64,znver4,l2=3M"),
    Target.parse("x86_64,znver4,fma_latency=5"),
]


def test_what_differs_has_another_identity() -> None:
    assert len(set(map(identity, DIFFERENT))) == len(DIFFERENT)
    assert identity({1: 2, 3: 4}) == identity({3: 4, 1: 2})
    assert identity(Pair(Plain(1))) == identity(Pair(Plain(1)))


def test_what_nobody_can_say_is_refused() -> None:
    circle = Plain(None)
    circle.value = circle
    inner = functools.partial(double, 1)
    for thing in (lambda: 0, inner, np.zeros(1), Hidden(), Half(), Pair([object()]), iter([1]), circle):
        with pytest.raises(ValueError, match=r"."):
            identity(thing)


def test_a_package_is_all_of_its_files(tmp_path: Path) -> None:
    """In processes of their own, as one process does not believe in sources that change."""
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "plug.py").write_text("def f(): pass\n")
    (tmp_path / "alone.py").write_text("def f(): pass\n")
    source = Path(plugins.__file__).parents[2]

    def told(module: str) -> str:
        code = (
            f"import sys; sys.path[:0] = [{str(source)!r}, {str(tmp_path)!r}]\n"
            f"from tilewright.base.plugins import identity\nimport {module} as m\nprint(identity(m.f))"
        )
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    before, alone = told("pack.plug"), told("alone")
    assert (told("pack.plug"), told("alone")) == (before, alone)
    (package / "table.rules").write_text("# another file of the package\n")
    assert told("pack.plug") != before
    assert told("alone") == alone
    (tmp_path / "alone.py").write_text("def f(): return 1\n")
    assert told("alone") != alone


def test_sources_that_changed_since_they_were_read_are_nobodys(folder: Path) -> None:
    write(folder, "plug_a", "def f():\n    pass\n")
    import plug_a  # type: ignore[import-not-found]  # noqa: PLC0415

    with pytest.raises(ValueError, match="newer than this process"):
        identity(plug_a.f)
    del sys.modules["plug_a"]
