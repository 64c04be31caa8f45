"""``tilewright report``: the contents of a tuning database as one self-contained HTML page."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tilewright.base.errors import BadInput
from tilewright.base.settings import Settings
from tilewright.cli.options import file_path
from tilewright.cli.output import emit
from tilewright.cli.status import Status

if TYPE_CHECKING:
    from tilewright.insight.peak import Peak
    from tilewright.report.history import Search


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which records, and where to write."""
    parser.add_argument(
        "records", type=file_path, nargs="?", metavar="FILE.db", help="tuning records (default: TILEWRIGHT_RECORDS)"
    )
    parser.add_argument(
        "-o", "--output", type=file_path, default=Path("tuning.html"), metavar="FILE.html", help="default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Read the records, write the page, print its path."""
    from tilewright.measure.records import Records
    from tilewright.report.history import searches
    from tilewright.report.page import write_page
    from tilewright.report.tuning import tuning_sections

    path: Path | None = options.records or Settings.from_environment().records
    records = None if path is None or not os.path.lexists(path) else Records.open_to_read(path)
    if path is None or records is None:
        raise BadInput(f"there are no records in {path}: tilewright tune makes them")
    with records:
        found = searches(records)
    sections = tuning_sections(found, _peaks(found))
    write_page(options.output, f"Tuning: {path.name}", sections, inputs=[path])
    trials = sum(len(search.trials) for search in found)
    if options.json:
        emit({"records": str(path), "output": str(options.output), "kernels": len(found), "trials": trials})
    else:
        console.print(f"{options.output}: {len(found)} kernels, {trials} trials", soft_wrap=True)
    return Status.DONE


def _peaks(found: "Sequence[Search]") -> "dict[int, Peak]":
    """The roofs of this machine for each number of threads in its records; takes half a second for each."""
    from tilewright.insight.peak import measure_peak
    from tilewright.measure.job import target_fingerprint
    from tilewright.target.target import Target

    host = Target.host()
    own = target_fingerprint(str(host))
    threads = {search.threads for search in found if target_fingerprint(search.target) == own}
    return {count: measure_peak(host, count) for count in sorted(threads) if count <= host.cores}
