"""The page for a browser: the owner's jobs, refreshed while it is open. It shows, and changes nothing.

What clients sent is escaped; the policy of content allows no script but the one here, and no other origin.
"""

import base64
import hashlib
import time
from collections.abc import Sequence
from html import escape
from typing import Final

from tilewright import __version__
from tilewright.service.jobs import Job
from tilewright.service.requests import Chosen

_SCRIPT: Final = """
const refresh = async () => {
  try {
    const answer = await fetch("/table", {cache: "no-store"});
    if (answer.ok) document.getElementById("jobs").innerHTML = await answer.text();
    document.body.classList.toggle("stale", !answer.ok);
  } catch { document.body.classList.add("stale"); }
  setTimeout(refresh, document.hidden ? 5000 : 1000);
};
setTimeout(refresh, 1000);
"""
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .35rem .7rem; vertical-align: top }
tr + tr { border-top: 1px solid #ddd } .stale #jobs { opacity: .4 }
td.error { max-width: 28rem; overflow-wrap: anywhere }
.done { color: #17692b } .failed { color: #a4161a } .running { color: #0b5394 } code { font-size: .9em }
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY: Final = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page(owner: str, jobs: Sequence[Job]) -> str:
    """The whole page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tilewright: jobs</title>'
        f'<noscript><meta http-equiv="refresh" content="5"></noscript><style>{_STYLE}</style></head>'
        f"<body><h1>Jobs of {escape(owner)}</h1>"
        f'<div id="jobs">{table(jobs)}</div><p>Tilewright {escape(__version__)}, <a href="/openapi.json">API</a></p>'
        f"<script>{_SCRIPT}</script></body></html>"
    )


def table(jobs: Sequence[Job]) -> str:
    """The part that is refreshed."""
    if not jobs:
        return "<p>There are no jobs.</p>"
    head = "".join(f"<th>{title}</th>" for title in ("job", "model", "target", "submitted", "state", "result"))
    return f"<table><tr>{head}</tr>{''.join(map(_row, jobs))}</table>"


def _row(job: Job) -> str:
    options = Chosen.read(job.options)
    submitted = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(job.created))
    cells = (
        f"<code>{escape(job.id[:12])}</code>",
        escape(job.name) or f"<code>{escape(job.model[:12])}</code>",
        f"{escape(options.target)}, {escape(options.precision)}",
        submitted,
        f'<span class="{job.state.value}">{job.state.value}</span> {_progress(job)}',
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}<td class=error>{_result(job)}</td></tr>"


def _progress(job: Job) -> str:
    return "" if job.ended is not None or job.step is None else f"{escape(job.step)}: {job.done} of {job.total}"


def _result(job: Job) -> str:
    if job.artifact is not None:
        return f'<a href="/v1/artifacts/{escape(job.artifact)}"><code>{escape(job.artifact[:12])}.tw</code></a>'
    return "" if job.error is None else f"{escape(job.error_kind or '')}: {escape(job.error)}"
