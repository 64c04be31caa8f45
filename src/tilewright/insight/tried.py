"""Findings from a database of records for the kernels of a model: number and best of measurements, and their use."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tilewright.base.errors import CorruptRecord
from tilewright.compilation import Compiled
from tilewright.insight.explain import UNTUNED, Explanation, Finding
from tilewright.measure.job import target_fingerprint
from tilewright.measure.records import Records
from tilewright.measure.row import Record, State
from tilewright.passes.scheduled import ScheduledKernel
from tilewright.target.target import Target
from tilewright.tune.tried import Became, Tried

RECORDS = "records"
"""The kind of these findings."""


def with_records(explanation: Explanation, compiled: Compiled, path: Path) -> Explanation:
    """``explanation`` with a finding for each kernel that has records in ``path``.

    A damaged file is a finding, too. Raises ``BadInput`` if there is no such file.
    """
    try:
        records = Records.open_to_read(path)
        if records is None:
            return explanation
        with records:
            found = tuple(_findings(compiled, records))
    except CorruptRecord as error:
        found = (Finding(RECORDS, str(path), f"not used: {error}", "tilewright tune makes another file"),)
        return replace(explanation, findings=(*explanation.findings, *found))
    others = [finding for finding in explanation.findings if not found or finding.kind != UNTUNED]
    return replace(explanation, findings=(*others, *found))


def _findings(compiled: Compiled, records: Records) -> Iterator[Finding]:
    target, threads = compiled.options.target, compiled.executable.threads
    for kernel in compiled.kernels:
        tried = [] if kernel.naive.dims else [r for r in records.of(kernel.naive) if r.state is not State.COMPARED]
        if tried:
            here = [record for record in tried if _is_for(record, target, threads)]
            reason, step = _became(here, kernel, target) if here else _elsewhere(tried, target, threads)
            yield Finding(RECORDS, kernel.program.name, reason, step)


def _is_for(record: Record, target: Target, threads: int) -> bool:
    same_target = target_fingerprint(record.job.target) == target_fingerprint(str(target))
    return same_target and record.job.threads == threads


def _elsewhere(tried: Sequence[Record], target: Target, threads: int) -> tuple[str, str]:
    """The finding for records of other targets or threads only, which this compilation can't use."""
    of_target = {r.job.threads for r in tried if _is_for(r, target, r.job.threads)}
    if of_target:
        counts = ", ".join(map(str, sorted(of_target)))
        return f"records exist for threads={counts}, none for threads={threads}", f"tilewright tune --threads {threads}"
    targets = ", ".join(sorted({r.job.target for r in tried}))
    return f"records exist for other targets ({targets}), none for {target}", "tilewright tune on such a machine"


_NEXT = {
    Became.CONFIRMED: ("compile uses it", "tilewright tune searches on"),
    Became.WITHDRAWN: (
        "measured again, it or the whole model was not clearly faster, or the search was interrupted then",
        "tilewright tune searches on",
    ),
    Became.OPEN: ("the search was interrupted", "the same tilewright tune command goes on"),
}


def _became(here: Sequence[Record], kernel: ScheduledKernel, target: Target) -> tuple[str, str]:
    """The finding for records that this compilation can use."""
    tried = Tried.of(kernel.naive, target, here)
    best = "none was right" if tried.best is None else "the analytic choice was not measured"
    if tried.gain is not None:
        simulated = "" if tried.best is None else tried.best.job.timing.simulated
        where = f" in simulated cycles of {simulated}" if simulated else ""
        best = f"the best is {tried.gain:.2f} times as fast as the analytic choice{where}"
    why, step = _NEXT[tried.became]
    return f"{tried.schedules} schedules measured, {best}; {tried.became.value}: {why}", step
