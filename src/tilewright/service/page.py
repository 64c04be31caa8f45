"""The page for a browser: the owner's jobs, workers, a fleet's devices and records, refreshed while it is open.

It shows, and changes nothing. What clients and devices sent is escaped; the policy of content allows no script but the
one here, and no other origin.
"""

import base64
import hashlib
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from typing import Final

from tilewright import __version__
from tilewright.base.sizes import format_size
from tilewright.service.jobs import Job
from tilewright.service.requests import Chosen
from tilewright.service.surroundings import Device, Devices, Recorded, Surroundings

_SCRIPT: Final = """
const live = document.getElementById("live");
const refresh = async () => {
  try {
    const answer = await fetch("/table", {cache: "no-store"});
    if (answer.ok) {
      const text = await answer.text();
      if (text !== live.dataset.shown) { live.innerHTML = text; live.dataset.shown = text; }
    }
    document.body.classList.toggle("stale", !answer.ok);
  } catch { document.body.classList.add("stale"); }
  setTimeout(refresh, document.hidden ? 5000 : 1000);
};
setTimeout(refresh, 1000);
"""
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .35rem .7rem; vertical-align: top }
tr + tr { border-top: 1px solid #ddd } .stale #live { opacity: .4 }
#old { display: none; color: #a4161a } .stale #old { display: block }
td { overflow-wrap: anywhere } td.error { min-width: 12rem; max-width: 28rem } progress { width: 8rem }
.done { color: #17692b } .failed { color: #a4161a } .running { color: #0b5394 } code { font-size: .9em }
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY: Final = (
    f"default-src 'none'; img-src data:; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page(owner: str, jobs: Sequence[Job], surroundings: Surroundings) -> str:
    """The whole page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tilewright: jobs</title>'
        '<link rel="icon" href="data:,">'
        f'<noscript><meta http-equiv="refresh" content="5"></noscript><style>{_STYLE}</style></head>'
        f'<body><h1>Jobs of {escape(owner)}</h1><p id="old" role="status">The service does not answer.</p>'
        f'<main id="live">{live(jobs, surroundings)}</main>'
        f'<p>Tilewright {escape(__version__)}, <a href="/openapi.json">API</a></p>'
        f"<script>{_SCRIPT}</script></body></html>"
    )


def live(jobs: Sequence[Job], surroundings: Surroundings) -> str:
    """The part that is refreshed."""
    parts = [_table(("job", "model", "target", "submitted", "state", "result"), map(_row, jobs), "There are no jobs.")]
    parts.append(f"<p id=workers>Workers of this service: {surroundings.workers()}</p>")
    if surroundings.devices is not None:
        parts.append(_fleet(surroundings.devices()))
    if surroundings.records is not None:
        parts.append(_records(surroundings.records()))
    return "".join(parts)


def _table(titles: Sequence[str], rows: Iterable[str], none: str) -> str:
    shown = "".join(rows)
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f"<table><tr>{head}</tr>{shown}</table>" if shown else f"<p>{none}</p>"


@lru_cache(maxsize=1024)
def _row(job: Job) -> str:
    """A row of the table. Pages ask for it every second, and most jobs have ended."""
    options = Chosen.read(job.options)
    submitted = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(job.created))
    cells = (
        f"<code>{escape(job.id[:12])}</code>",
        escape(job.name) or f"<code>{escape(job.model[:12])}</code>",
        f"{_target(options.target)}, {escape(options.precision)}",
        submitted,
        f'<span class="{job.state.value}">{job.state.value}</span> {_progress(job)}',
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}<td class=error>{_result(job)}</td></tr>"


def _target(text: str) -> str:
    """Architecture and processor; the rest is shown under the pointer."""
    short = ",".join(text.split(",")[:2])
    return f'<span title="{escape(text)}">{escape(short)}</span>'


def _progress(job: Job) -> str:
    if job.ended is not None or job.step is None:
        return ""
    return f"{escape(job.step)}: {job.done} of {job.total} <progress value={job.done} max={job.total}></progress>"


def _result(job: Job) -> str:
    if job.artifact is not None:
        return f'<a href="/v1/artifacts/{escape(job.artifact)}"><code>{escape(job.artifact[:12])}.tw</code></a>'
    return "" if job.error is None else f"{escape(job.error_kind or '')}: {escape(job.error)}"


def _fleet(found: Devices) -> str:
    if found.fault is not None:
        return f"<section id=fleet><h2>Fleet</h2><p>{escape(found.fault)}</p></section>"
    titles = ("device", "key", "state", "target", "cores", "memory", "celsius", "done", "lost")
    shown = _table(titles, map(_device, found.devices), "There are no devices.")
    waiting = "".join(f"<li>{escape(text)}</li>" for text in found.waiting)
    return f"<section id=fleet><h2>Fleet</h2>{shown}<ul>{waiting}</ul></section>"


def _device(device: Device) -> str:
    celsius = "" if device.celsius is None else f"{device.celsius:.0f}"
    numbers = (str(device.cores), format_size(device.memory_bytes), celsius, str(device.finished), str(device.lost))
    named = map(escape, (device.name, device.key, device.state))
    cells = (*named, _target(device.target), *map(escape, numbers))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _records(found: Recorded) -> str:
    if found.fault is not None:
        return f"<section id=records><h2>Records</h2><p>{escape(found.fault)}</p></section>"
    rows = (f"<tr><td>{escape(verdict)}</td><td>{count}</td></tr>" for verdict, count in found.counts.items())
    shown = _table(("verdict", "measurements"), rows, "There are no records.")
    return f"<section id=records><h2>Records</h2>{shown}</section>"
