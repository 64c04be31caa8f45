"""Pages as a browser shows them. Needs Chromium: ``make nightly`` installs it."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.test_report import ok, search
from tests.report.test_superopt import layers_of_products, optimized
from tilewright.report.page import Section, write_page
from tilewright.report.superopt import superopt_sections
from tilewright.report.tuning import tuning_sections

CHROMIUM = shutil.which("chromium")


TUNED = (search(ok(8.0, 1.0), ok(4.0, 2.0), ok(2.0, 3.0)), search(ok(3.0)))
PAGES = {
    "tuning": (lambda: tuning_sections(TUNED), 1 + 3 + 2, "kernel 2"),
    "superopt": (lambda: superopt_sections(optimized(layers_of_products(3))), 2, "Graphs"),
}


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(("sections", "svgs", "heading"), PAGES.values(), ids=PAGES)
def test_a_page_opens_without_errors(
    tmp_path: Path, sections: Callable[[], list[Section]], svgs: int, heading: str
) -> None:
    path = tmp_path / "page.html"
    write_page(path, "Page", sections())
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
    assert len(re.findall("<svg", shown.stdout)) == svgs
    assert f"<h2>{heading}</h2>" in shown.stdout
    picture = tmp_path / "page.png"
    subprocess.run([str(CHROMIUM), *flags, f"--screenshot={picture}", path.as_uri()], timeout=120, check=True)
    assert picture.stat().st_size > 10_000
