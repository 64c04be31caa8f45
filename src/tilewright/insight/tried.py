"""What a database of records says about the kernels of a model: what was measured, and what became of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.base.errors import CorruptRecord
from tilewright.compilation import Compiled, ScheduledKernel
from tilewright.cost.analytic import schedule
from tilewright.insight.explain import UNTUNED, Explanation, Finding
from tilewright.measure.job import target_fingerprint
from tilewright.measure.records import Records
from tilewright.measure.row import Record, State
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.tune.recorded import CONFIRMING, SEARCHING, named

RECORDS = "records"
"""The kind of these findings."""


def with_records(explanation: Explanation, compiled: Compiled, path: Path) -> Explanation:
    """``explanation``, and for each kernel that the records in ``path`` know what they say of it.

    Of a damaged file, it says that. Raises ``BadInput`` if there is no such file.
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
    """There are records, but none that this compilation may use."""
    of_target = {r.job.threads for r in tried if _is_for(r, target, r.job.threads)}
    if of_target:
        counts = ", ".join(map(str, sorted(of_target)))
        return f"records exist for threads={counts}, none for threads={threads}", f"tilewright tune --threads {threads}"
    targets = ", ".join(sorted({r.job.target for r in tried}))
    return f"records exist for other targets ({targets}), none for {target}", "tilewright tune on such a machine"


@dataclass(frozen=True, slots=True)
class _Times:
    """The least microseconds of each schedule that was right, measured on the data of ``seed``."""

    best: dict[str, float]

    @staticmethod
    def of(records: Sequence[Record], seed: int) -> "_Times":
        best: dict[str, float] = {}
        for record in records:
            time = record.outcome.median_us
            if time is not None and record.job.seed == seed:
                best[record.job.trace] = min(time, best.get(record.job.trace, time))
        return _Times(best)

    def gain(self, own: str) -> float | None:
        """How many times faster the fastest is than the schedule ``own``; None if that was not measured."""
        return self.best[own] / min(self.best.values()) if own in self.best else None


def _became(here: Sequence[Record], kernel: ScheduledKernel, target: Target) -> tuple[str, str]:
    """What became of the records that this compilation may use."""
    own = schedule(Schedule(named(kernel.naive)), target).trace.to_json()
    careful, quick = _Times.of(here, CONFIRMING), _Times.of(here, SEARCHING)
    gain = careful.gain(own) or quick.gain(own)
    trials = len({record.job.trace for record in here})
    best = "none was right" if not quick.best and not careful.best else "the compiler's choice was not measured"
    if gain is not None:
        best = f"the best took 1/{gain:.2f} of the time of the compiler's choice"
    told = f"{trials} schedules measured, {best}"
    if any(record.state is State.CONFIRMED for record in here):
        return f"{told}; confirmed: compile uses it", "tilewright tune searches on"
    if any(record.state is State.REPEATED for record in here):
        why = "not clearly faster when it was measured again, or the whole model was not faster with it"
        return f"{told}; withdrawn: {why}", "tilewright tune searches on"
    return f"{told}; not confirmed yet: the search was interrupted", "the same tilewright tune command goes on"
