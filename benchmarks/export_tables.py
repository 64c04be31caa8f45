"""What came of exported networks, as Markdown."""

from collections import Counter
from collections.abc import Mapping
from textwrap import shorten

from .export_ways import Case, Sizes, Way
from .exports import Finding, Verdict
from .tables import markdown

TITLES = {
    Way.DYNAMO: "exporter",
    Way.SCRIPT: "older exporter",
    Way.MODULE: "module",
    Way.PROGRAM: "exported program",
    Way.COMPILED: "torch.compile",
}
_SHORT = {Verdict.RIGHT: "yes", Verdict.PER_SIZE: "per size", Verdict.NO_MODEL: "-"}
"""Others are shown as they are."""


def report(found: Mapping[Case, Finding]) -> str:
    """The counts of each way, a table with a row for each network, and a line for each case that is not right."""
    columns = [(way, sizes) for way in Way for sizes in Sizes if any((c.way, c.sizes) == (way, sizes) for c in found)]
    return "\n\n".join([_counts(found, columns), _table(found, columns), _notes(found)])


Columns = list[tuple[Way, Sizes]]


def _counts(found: Mapping[Case, Finding], columns: Columns) -> str:
    header = ["", *(verdict.value for verdict in Verdict)]
    body: list[list[str]] = []
    for way, sizes in columns:
        counts = Counter(f.verdict for c, f in found.items() if (c.way, c.sizes) == (way, sizes))
        body.append([f"{TITLES[way]}, {sizes.value}", *(str(counts[verdict.value]) for verdict in Verdict)])
    return markdown([header, *body])


def _table(found: Mapping[Case, Finding], columns: Columns) -> str:
    header = ["", *(f"{TITLES[way]}, {sizes.value}" for way, sizes in columns)]
    names = sorted({case.name for case in found})
    return markdown(
        [header, *([name, *(_cell(found.get(Case(name, *column))) for column in columns)] for name in names)]
    )


def _cell(finding: Finding | None) -> str:
    if finding is None:
        return ""
    verdict = Verdict(finding.verdict)
    return _SHORT.get(verdict, verdict.value)


def _notes(found: Mapping[Case, Finding]) -> str:
    others = sorted(
        ((case, finding) for case, finding in found.items() if finding.verdict != Verdict.RIGHT.value),
        key=lambda pair: (pair[0].name, pair[0].way.value, pair[0].sizes.value),
    )
    return "\n".join(f"- {c.name}, {TITLES[c.way]}, {c.sizes.value}: {f.verdict}: {_reason(f.note)}" for c, f in others)


def _reason(note: str) -> str:
    """A note without the line that a node comes from, and not ending within a word if it is long."""
    text, _, _ = note.partition("; the node comes from ")
    return shorten(text, 240, placeholder=" ...")
