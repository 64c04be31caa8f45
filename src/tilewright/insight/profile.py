"""Profiles a model: the time of each kernel, beside its work and the peak of the machine.

Times come from a clock in the native code (``runtime.abi``, ``tw_mark``), so that the profiled code is the code that
normally runs; each run measures all kernels. The time outside of kernels (feeds, outputs, entering native code) is the
remainder.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

from tilewright.compilation import Compiled
from tilewright.cost.work import Work, count
from tilewright.insight.console import plain_console
from tilewright.insight.names import cell
from tilewright.insight.peak import Peak, Roof
from tilewright.insight.places import calls_of, sources
from tilewright.measure.samples import Samples, sampled
from tilewright.passes.scheduled import ScheduledKernel
from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest

_DISTURBED = 1.25
_FULL = 100.5
"""The percentage above which the printed number exceeds 100."""
WIDE = 110
"""Minimum columns of a console for printing the nodes of each kernel."""


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One call of a kernel, or its calls for all parts of a batch: medians over all runs. Unknown fields (artifacts
    have no loops to count) are None."""

    kernel: str
    nodes: tuple[str, ...]
    """The nodes of the user's model that it computes."""
    microseconds: float
    share: float
    """The fraction of the time of all kernels."""
    gflops: float | None = None
    """1e9 operations per second; a multiply-add is two."""
    gbytes_per_second: float | None = None
    """1e9 bytes of arguments per second, each byte counted once."""
    percent_of_peak: float | None = None
    """The minimum time by the lower roof, as a percentage of the measured time."""
    bound: Roof | None = None
    """The lower roof: arithmetic, or the memory or cache that the arguments fit in."""
    calls: int = 1
    trace: str | None = None
    """The steps of its schedule."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Times of one run, in microseconds: medians over ``runs`` runs."""

    runs: int
    threads: int
    microseconds: float
    """The whole run, as seen by a caller of the model. With disturbances by other programs it exceeds the sum of the
    medians of the parts, as a run is disturbed more often than each of its kernels."""
    remainder: float
    """The time outside of kernels: feeds, outputs, entering native code."""
    kernels: tuple[KernelProfile, ...]
    peak: Peak | None

    def by_kernel(self) -> "Profile":
        """One row for all calls of a kernel."""
        rows: dict[str, list[KernelProfile]] = {}
        for row in self.kernels:
            rows.setdefault(row.kernel, []).append(row)
        merged = sorted((_merged(group) for group in rows.values()), key=lambda row: -row.microseconds)
        return replace(self, kernels=tuple(merged))

    def to_json(self) -> dict[str, object]:
        """All fields, as values that JSON has."""
        return asdict(self)

    def show(self, trace: bool = False, console: "Console | None" = None) -> None:
        """Print the table; with ``trace``, also the steps of each kernel's schedule."""
        out = console or plain_console()
        out.print(_table(self, is_wide=out.width >= WIDE))
        if out.width < WIDE:
            out.print(f"(with {WIDE} columns, there is room for the nodes of each kernel)", highlight=False)
        kernels = sum(row.microseconds for row in self.kernels)
        parts = f"{kernels:.1f} us in kernels, {self.remainder:.1f} us around them; {self.microseconds:.1f} us a run"
        out.print(f"{parts} (medians of {self.runs} runs, threads: {self.threads})", highlight=False, soft_wrap=True)
        if self.microseconds > _DISTURBED * (kernels + self.remainder):
            out.print("warning: other programs disturbed the runs", highlight=False)
        if self.peak is not None:
            reads = ", ".join(f"{b.gbytes_per_second:.0f} from {b.roof}" for b in self.peak.bandwidths)
            roofs = f"compute: {self.peak.gflops:.0f} GFLOP/s (float32); GB/s: {reads}"
            out.print(f"measured roofs: {roofs}", highlight=False, soft_wrap=True)
        for reason in _above(self.kernels):
            out.print(reason, highlight=False, markup=False, soft_wrap=True)
        for name, steps in {row.kernel: row.trace for row in self.kernels}.items() if trace else ():
            out.print(f"\n{name}\n{steps or '(no trace)'}", highlight=False, markup=False)


def profile(
    executable: Executable,
    feeds: Mapping[str, object],
    compiled: Compiled | None = None,
    roofs: Callable[[], Peak] | None = None,
    seconds: float = 1.0,
) -> Profile:
    """Profile for about ``seconds`` (at least ``LEAST_RUNS`` runs). Work and nodes are known only with ``compiled``.

    ``roofs`` measures the machine; it is called before and after the runs, and the higher roofs count.
    Raises ``BadFeed`` if the feeds do not fit.
    """
    executable.timed_run(feeds)  # what can't run is refused before the machine is measured
    before = None if roofs is None else roofs()
    samples = sampled(executable, feeds, seconds)
    peak = None if roofs is None or before is None else before.best_of(roofs())
    return profile_of(samples, executable.manifest, feeds, compiled, peak)


def profile_of(
    samples: Samples,
    manifest: Manifest,
    feeds: Mapping[str, object],
    compiled: Compiled | None = None,
    peak: Peak | None = None,
) -> Profile:
    """The profile of a model with this manifest, from times that were measured here or elsewhere."""
    medians = [median(times) for times in zip(*samples.parts, strict=True)]
    in_kernels = sum(medians)
    rows = [
        KernelProfile(name, (), t * 1e6, t / in_kernels if in_kernels else 0.0)
        for name, t in zip(manifest.calls, medians, strict=True)
    ]
    if compiled is not None:
        rows = _described(rows, compiled, extents_of(manifest, feeds), peak)
    totals = samples.totals
    around = median(total - sum(times) for total, times in zip(totals, samples.parts, strict=True))
    return Profile(len(totals), samples.threads, median(totals) * 1e6, around * 1e6, tuple(rows), peak)


def extents_of(manifest: Manifest, feeds: Mapping[str, object]) -> dict[str, int]:
    """The run-time extents in the shapes of ``feeds``, which a run has checked."""
    found: dict[str, int] = {}
    for spec in manifest.inputs:
        shape: Iterable[int] = getattr(feeds[spec.name], "shape", ())
        found.update({name: size for name, size in zip(spec.shape, shape, strict=False) if isinstance(name, str)})
    return found


def _described(
    rows: Sequence[KernelProfile], compiled: Compiled, extents: Mapping[str, int], peak: Peak | None
) -> list[KernelProfile]:
    sizes = {dim.var.name: extents[dim.var.given] for dim in compiled.main.dims if dim.var.given in extents}
    works: dict[str, Work | None] = {k.program.name: count(k.naive, sizes) for k in compiled.kernels}
    described: list[KernelProfile] = []
    for row, call in zip(rows, calls_of(compiled), strict=True):
        known = replace(row, nodes=sources(call.group), trace=str(call.kernel.schedule.trace), calls=call.times)
        work = works[row.kernel]
        described.append(known if work is None else _rated(known, work, call.kernel, peak))
    return described


def _rated(row: KernelProfile, work: Work, kernel: ScheduledKernel, peak: Peak | None) -> KernelProfile:
    seconds = max(row.microseconds * 1e-6 / row.calls, 1e-9)
    rates = replace(row, gflops=work.operations / seconds / 1e9, gbytes_per_second=work.bytes / seconds / 1e9)
    if peak is None:
        return rates
    width = max(p.dtype.itemsize for p in kernel.program.results)
    computing = work.operations / (peak.gflops * 1e9) * max(1.0, width / 4)
    nearest = peak.bandwidth(work.bytes)
    moving = work.bytes / (nearest.gbytes_per_second * 1e9)
    bound = Roof.COMPUTE if computing >= moving else nearest.roof
    return replace(rates, percent_of_peak=100 * max(computing, moving) / seconds, bound=bound)


def _merged(rows: Sequence[KernelProfile]) -> KernelProfile:
    """One row of several calls: times add up, rates are weighted by time."""
    total = sum(row.microseconds for row in rows)

    def average(values: Sequence[float | None]) -> float | None:
        known = [v * row.microseconds for v, row in zip(values, rows, strict=True) if v is not None]
        return sum(known) / total if known and total else None

    return replace(
        rows[0],
        nodes=tuple(node for row in rows for node in row.nodes),
        microseconds=total,
        share=sum(row.share for row in rows),
        gflops=average([row.gflops for row in rows]),
        gbytes_per_second=average([row.gbytes_per_second for row in rows]),
        percent_of_peak=average([row.percent_of_peak for row in rows]),
        calls=sum(row.calls for row in rows),
    )


def _table(profile: Profile, is_wide: bool) -> "Table":
    from rich.table import Table

    table = Table(title="Time by kernel")
    table.add_column("kernel", overflow="fold")
    known = any(row.gflops is not None for row in profile.kernels)
    for heading in ("calls", "us", "share", *(("GFLOP/s", "GB/s", "% of peak", "bound by") if known else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    if known and is_wide:
        table.add_column("nodes", overflow="fold")
    for row in profile.kernels:
        rates = (_text(row.gflops, 1), _text(row.gbytes_per_second, 1), _text(row.percent_of_peak, 0), row.bound or "")
        times = (str(row.calls), f"{row.microseconds:.1f}", f"{row.share:.1%}")
        nodes = (cell(row.nodes),) if is_wide else ()
        table.add_row(row.kernel, *times, *((*rates, *nodes) if known else ()))
    return table


_ABOVE_READS = (
    "a bandwidth is that of reads; part of the data is in a nearer cache, or is written while other data is read"
)
_ABOVE_COMPUTE = "the roof is that of float32 multiply-adds; products of narrower types take fewer instructions"


def _above(kernels: Sequence[KernelProfile]) -> Iterator[str]:
    """Reasons why kernels exceed their roofs."""
    for is_compute, reason in ((True, _ABOVE_COMPUTE), (False, _ABOVE_READS)):
        above = [
            row
            for row in kernels
            if row.percent_of_peak is not None
            and row.percent_of_peak > _FULL
            and (row.bound is Roof.COMPUTE) == is_compute
        ]
        if above:
            names = ", ".join(dict.fromkeys(f"{row.kernel} ({row.bound})" for row in above))
            yield f"above 100 %: {names}: {reason}"


def _text(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
