"""The table of floors in docs/architecture.md says what is: the tree, and the layers that import-linter holds it to."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "tilewright"


def table() -> list[frozenset[str]]:
    """What stands side by side, from the top, as the table has it."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (?:\d|beside) \| ([^|]+) \|", text, re.MULTILINE)
    return [frozenset(re.findall(r"`([^`]+)`", beside)) for row in rows for beside in row.split(" > ")]


def tree() -> frozenset[str]:
    """The folders and files of the package, as the table spells them; beginnings of programs are on no floor."""
    folders = {f"{path.parent.name}/" for path in SOURCES.glob("*/__init__.py")}
    return frozenset(folders | {path.name for path in SOURCES.glob("*.py") if not path.name.startswith("__")})


def layers() -> list[frozenset[str]]:
    """The linter's, less what need not exist and does not."""
    known = {re.sub(r"/|\.py$", "", name): name for name in tree()}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = [contract["layers"] for contract in contracts if contract["id"] == "floors"]
    named = [frozenset(known[name] for name in re.findall(r"\w+", layer) if name in known) for layer in found]
    return [layer for layer in named if layer]


def test_every_folder_and_file_is_in_the_table_once() -> None:
    named = [name for beside in table() for name in beside]
    assert len(named) == len(set(named))
    assert set(named) == tree()


def test_the_table_has_the_order_of_the_linter() -> None:
    assert table() == layers()


def test_floors_are_numbered_from_the_top() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    floors = [int(number) for number in re.findall(r"^\| (\d) \| `", text, re.MULTILINE)]
    assert floors == list(range(9, -1, -1))
