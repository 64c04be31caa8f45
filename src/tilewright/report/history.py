"""The measurements of each kernel in order, and the result of its search."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from tilewright.base import fields
from tilewright.base.errors import CorruptRecord, TilewrightError
from tilewright.cost.work import Work, count
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.measure.records import Records
from tilewright.measure.row import Record, State
from tilewright.measure.verdicts import Outcome
from tilewright.target.target import Target
from tilewright.tune.recorded import named
from tilewright.tune.spaces import space_of
from tilewright.tune.tried import Tried


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement, and the seconds since the first one of its search."""

    seconds: float
    record: Record

    @property
    def outcome(self) -> Outcome:
        """The result of the measurement."""
        return self.record.outcome


@dataclass
class Search:
    """All measurements of one program on one target, with one number of threads.

    ``name``: the kernel's name in the model that was tuned; ``nodes``: the nodes of that model that it computes.
    """

    program: str
    target: str
    threads: int
    measured: list[Trial] = field(default_factory=list[Trial])
    name: str = ""
    nodes: tuple[str, ...] = ()

    @property
    def trials(self) -> list[Trial]:
        """The trials of the search itself: each candidate once, all with the same inputs."""
        return [trial for trial in self.measured if trial.record.state is State.SEARCHED]

    @cached_property
    def parsed(self) -> Program | None:
        """The program; None if its text can't be parsed."""
        try:
            return parse_program(self.program)
        except TilewrightError:
            return None

    @cached_property
    def tried(self) -> Tried | None:
        """The result of the search; None if unknown."""
        records = [trial.record for trial in self.measured]
        return None if self.parsed is None else Tried.of(self.parsed, Target.parse(self.target), records)

    @cached_property
    def work(self) -> Work | None:
        """The operations and bytes of one run; None if unknown."""
        return None if self.parsed is None else count(self.parsed, {})

    @property
    def decisions(self) -> list[tuple[str, str, str]]:
        """Knobs with the decisions of the fastest schedule and of the analytic choice; empty if one lacks the knob.

        Empty if the decisions of the fastest schedule are unknown: it may come from a similar kernel.
        """
        tried = self.tried
        if self.parsed is None or tried is None or tried.best is None:
            return []
        trace, own = tried.best.job.trace, _analytic_decisions(self.parsed, Target.parse(self.target))
        jobs = (trial.record.job for trial in self.measured)
        made = next((job.decisions for job in jobs if job.trace == trace and job.decisions), ())
        found = own if tried.is_own else dict(made)
        return [(name, found.get(name, ""), own.get(name, "")) for name in {**found, **own}] if found else []

    @property
    def shapes(self) -> str:
        """The results and parameters with their shapes, to identify a kernel."""
        return "?" if self.parsed is None else ", ".join(repr(buffer) for buffer in self.parsed.params)

    def best_so_far(self) -> Iterator[tuple[int, float, float]]:
        """Trials, seconds and the best microseconds at each improvement, and at the end."""
        best, trials = float("inf"), self.trials
        for number, trial in enumerate(trials, 1):
            us = trial.outcome.median_us
            if us is not None and us < best:
                best = us
                yield number, trial.seconds, best
        if trials and best < float("inf"):
            yield len(trials), trials[-1].seconds, best


def _analytic_decisions(naive: Program, target: Target) -> dict[str, str]:
    """The decisions of the analytic choice by knob; empty for a program without a space."""
    try:
        space = space_of(named(naive), target)
    except TilewrightError:
        return {}
    analytic = space.analytic()
    return {} if analytic is None else dict(space.decisions(analytic))


def searches(records: Records) -> list[Search]:
    """The searches in a database, in the order of their start.

    Raises ``CorruptRecord`` if the file is damaged.
    """
    found: dict[tuple[str, str, int], Search] = {}
    began: dict[tuple[str, str, int], datetime] = {}
    names = _names(records)
    for created, record in records.dated():
        job = record.job
        if record.state is not State.COMPARED:
            key = (job.program, job.target, job.threads)
            begin = began.setdefault(key, created)
            search = found.setdefault(key, Search(*key))
            search.name, search.nodes = names.get(job.workload, ("", ()))
            search.measured.append(Trial((created - begin).total_seconds(), record))
    return list(found.values())


def _names(records: Records) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The name of each kernel in the last session, and its nodes, by workload."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    try:
        for config in records.configs():
            for workload, told in fields.mapping(config.get("kernels", {})).items():
                kernel = fields.mapping(told)
                found[workload] = fields.text(kernel["name"]), tuple(map(fields.text, fields.items(kernel["nodes"])))
    except (TypeError, KeyError) as error:
        raise CorruptRecord(f"{records.path}: a session names its kernels in another form: {error}") from error
    return found
