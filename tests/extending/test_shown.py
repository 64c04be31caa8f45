"""``docs/extending.md`` shows every file of this folder that adds something, whole."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE.parent.parent / "docs" / "extending.md").read_text()
SHOWN = sorted(
    file
    for file in HERE.glob("*.py")
    if not file.name.startswith("test_") and "docs/extending.md" in file.read_text().partition("\n")[0]
)


@pytest.mark.parametrize("file", SHOWN, ids=lambda file: file.name)
def test_the_documentation_shows_the_file(file: Path) -> None:
    assert file.read_text() in PAGE
