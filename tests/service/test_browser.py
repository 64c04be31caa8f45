"""The page as a browser shows it: live, and with nothing of what clients sent taken for HTML."""

import json
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.fleet.fleets import local
from tests.measure.test_records import JOB
from tests.service.browser import CHROMIUM, browser
from tests.service.support import There, model, service
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.service.tokens import generate

NAME = "<img src=x onerror=alert(1)>"
STATES = "[...document.querySelectorAll('#live td span:not([title])')].map(e => e.textContent).join()"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_the_page_is_live(tmp_path: Path) -> None:
    token, line = generate("alice")
    (tmp_path / "tokens").write_text(line)
    (tmp_path / "tokens").chmod(0o600)
    records = tmp_path / "records.db"
    (tmp_path / "fleet").mkdir()
    with local(tmp_path / "fleet", "red") as fleet:
        options = ("--tokens", str(tmp_path / "tokens"), "--fleet", fleet.address, "--records", str(records))
        with service(tmp_path / "s", *options) as there, browser(tmp_path / "user", token) as page:
            page.open(there.url)
            page.until("document.body && document.body.innerText.includes('There are no jobs.')")
            assert page.evaluate("document.querySelector('h1').textContent") == "Jobs of alice"
            page.evaluate("window.same = true")
            page.until("document.querySelector('#fleet table')?.innerText.includes('red')")
            good, bad = submit(there, token, model(5.0)), submit(there, token, b"no model")
            page.until(f"{STATES} === 'failed,done'")
            assert page.evaluate("document.querySelector('td.error a').href").startswith(f"{there.url}/v1/artifacts/")
            assert page.evaluate("document.images.length") == 0
            assert page.evaluate(f"document.body.innerText.split({json.dumps(NAME)}).length") == 3
            assert "InvalidModel" in str(page.evaluate("document.body.innerText"))
            assert good != bad
            record(records)
            page.until("document.querySelector('#records table')?.innerText.includes('timeout\\t1')")
            assert page.evaluate("window.same")  # it was never loaded again
            assert page.errors == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            (tmp_path / "page.png").write_bytes(page.picture())
            assert page.picture().startswith(b"\x89PNG")
            there.kill()
            page.until("getComputedStyle(document.getElementById('old')).display === 'block'")


def submit(there: There, token: str, body: bytes) -> object:
    url = f"{there.url}/v1/jobs?threads=1&name={urllib.parse.quote(NAME)}"
    request = urllib.request.Request(url, body, {"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["id"]


def record(path: Path) -> None:
    """A measurement that took too long."""
    with Records.open(path) as records, records.session({}) as session:
        records.add(session, JOB, Outcome(Verdict.TIMEOUT, "it took too long"))
