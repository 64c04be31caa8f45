"""The page of a database of records, as a browser shows it. Needs Chromium: ``make nightly`` installs it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.report.test_report import ok, search
from tilewright.report.page import write_page
from tilewright.report.tuning import tuning_sections

CHROMIUM = shutil.which("chromium")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_opens_without_errors(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    found = search(ok(8.0, 1.0), ok(4.0, 2.0), ok(2.0, 3.0))
    write_page(path, "Tuning", tuning_sections([found, search(ok(3.0))]))
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path}/user",
    ]
    shown = subprocess.run(
        [str(CHROMIUM), *flags, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert "CONSOLE" not in shown.stderr
    assert len(re.findall("<svg", shown.stdout)) == 1 + 3 + 2
    assert "<h2>kernel 2</h2>" in shown.stdout
    picture = tmp_path / "page.png"
    subprocess.run([str(CHROMIUM), *flags, f"--screenshot={picture}", path.as_uri()], timeout=120, check=True)
    assert picture.stat().st_size > 10_000
