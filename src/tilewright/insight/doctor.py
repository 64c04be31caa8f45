"""Examines this machine and this installation: facts, measured peaks, and warnings with remedies.

Facts are read from the files of the Linux kernel; missing ones are None. Every warning has a remedy.
"""

import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tilewright.base import host
from tilewright.base.events import Recorder, ignore
from tilewright.base.plugins import offered
from tilewright.base.settings import PREFIX, Settings
from tilewright.base.sizes import format_size
from tilewright.base.store import Store
from tilewright.insight.console import plain_console
from tilewright.insight.figures import Finding, kept, measure_figures
from tilewright.insight.peak import Peak, measure_peak
from tilewright.insight.probes import fma_probe
from tilewright.insight.versions import versions
from tilewright.runtime.sizing import sizing
from tilewright.target.measured import read_figures, write_figures
from tilewright.target.target import Target

_NOISE_RUNS = 101
_NOISE_LIMIT = 0.05
_FREE_FRACTION = 0.95


@dataclass(frozen=True, slots=True)
class Processor:
    """The processor as the compiler sees it. ``caches``: bytes of data caches, by level."""

    name: str
    target: str
    features: tuple[str, ...]
    vector_bits: int
    caches: dict[str, int]
    governor: str | None
    """The frequency governor, if Linux reports it."""
    megahertz: float | None
    """The present frequency."""


@dataclass(frozen=True, slots=True)
class Threads:
    """The default number of threads, and its reason. ``processors``: affinity mask; ``quota``: of the control group."""

    used: int
    reason: str
    processors: tuple[int, ...]
    cores: int
    quota: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """Roofs on one core and on all threads; ``noise``: relative distance of the quartiles of one loop's times."""

    one_core: Peak
    all_threads: Peak
    noise: float
    clock_nanoseconds: float
    """The resolution of Python's clock."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of ``target.machine`` that replace built-in ones, by name, from ``file`` (None: switched off).

    ``found``: the figures measured now, None if not requested. ``problem``: why the file is not used.
    """

    file: str | None
    used: Mapping[str, float]
    found: tuple[Finding, ...] | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder of compiled kernels. ``problem``: why it is not used."""

    folder: str | None
    entries: int
    bytes: int
    limit_bytes: int
    mode: str | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Caution:
    """A condition that slows down models or disturbs measurements, with a remedy."""

    subject: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All results. ``measured`` is None if measuring was not requested."""

    processor: Processor
    threads: Threads
    measured: Measured | None
    figures: Figures
    versions: Mapping[str, str]
    settings: Mapping[str, str]
    cache: Cache
    """The cache of kernels."""
    models: Cache
    added: tuple[str, ...]
    """Plug-ins of other packages (entry points)."""
    warnings: tuple[Caution, ...]

    def to_json(self) -> dict[str, object]:
        """All fields, as JSON values."""
        return asdict(self)

    def show(self, console: Console | None = None) -> None:
        """Print a table of facts, then warnings."""
        out = console or plain_console()
        table = Table(show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in _facts(self):
            table.add_row(name, Text(value))
        out.print(table)
        if self.figures.found is not None:
            out.print(_figure_table(self.figures, self.figures.found))
        for warning in self.warnings:
            text = f"warning: {warning.subject}: {warning.reason}; {warning.remedy}"
            out.print(text, highlight=False, markup=False, soft_wrap=True)
        if not self.warnings:
            out.print("nothing to complain about", highlight=False)


def examine(
    settings: Settings,
    measure: bool = True,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
    keep_figures: bool = False,
) -> Diagnosis:
    """Examine this machine; with ``measure``, also run the probes (two seconds). ``root`` has ``proc`` and ``sys``.

    ``keep_figures``: also measure the figures of the cost model (some ten seconds), and store the reliable ones. Raises
    ``BadInput`` if they can't be stored where ``settings`` say.
    """
    threads = _threads(environ, root)
    figures = _figures(settings, threads.used, keep_figures)
    target = Target.host(settings, Recorder())
    processor, cache, models = _processor(target, root), _cache(settings), _cache(settings.for_models())
    measured = _measured(target, threads.used) if measure else None
    warnings = tuple(_warnings(processor, threads, measured, figures, cache, environ))
    known = {name: value for name, value in environ.items() if name.startswith((PREFIX, "OMP_"))}
    return Diagnosis(processor, threads, measured, figures, versions(), known, cache, models, offered(), warnings)


def _processor(target: Target, root: Path) -> Processor:
    megahertz = re.search(r"^cpu MHz\s*:\s*([0-9.]+)$", _read(root / "proc/cpuinfo") or "", re.MULTILINE)
    caches = {"l1": target.l1_bytes, "l2": target.l2_bytes, "l3": target.l3_bytes}
    first = min(os.sched_getaffinity(0))
    governor = _read(root / f"sys/devices/system/cpu/cpu{first}/cpufreq/scaling_governor")
    return Processor(
        host.detect(root).name,
        str(target),
        target.features,
        target.vector_bits,
        caches,
        governor,
        float(megahertz[1]) if megahertz else None,
    )


def _threads(environ: Mapping[str, str], root: Path) -> Threads:
    found = sizing(environ, root)
    return Threads(found.threads, found.reason, tuple(sorted(os.sched_getaffinity(0))), found.cores, found.quota)


def _measured(target: Target, threads: int) -> Measured:
    one = measure_peak(target, 1)
    several = one if threads == 1 else measure_peak(target, threads)
    probe = fma_probe(target)
    rates = sorted(probe() for _ in range(_NOISE_RUNS))
    noise = (rates[3 * _NOISE_RUNS // 4] - rates[_NOISE_RUNS // 4]) / rates[_NOISE_RUNS // 2]
    return Measured(one, several, noise, _clock_step() * 1e9)


def _figures(settings: Settings, threads: int, keep: bool) -> Figures:
    """The figures in use; with ``keep``, reliable new measurements first replace stored ones."""
    path, name, recorder = settings.machine, str(host.detect()), Recorder()
    found = measure_figures(Target.host(replace(settings, machine=None)), threads) if keep else None
    if found is not None and path is not None:
        write_figures(path, name, read_figures(path, name, ignore) | kept(found))
    used = read_figures(path, name, recorder)
    problem = next(iter(recorder.warnings()), None)
    return Figures(None if path is None else str(path), used, found, problem)


def _clock_step() -> float:
    """The smallest positive difference of two successive readings of the clock, in seconds."""
    readings = [time.perf_counter() for _ in range(1000)]
    return min(b - a for a, b in pairwise(readings) if b > a)


def _cache(settings: Settings) -> Cache:
    folder, limit = settings.cache_dir, settings.cache_bytes
    if folder is None or not limit:
        return Cache(None if folder is None else str(folder), 0, 0, limit, None, "switched off by the settings")
    recorder = Recorder()
    store = Store.open(settings, recorder)
    usage = None if store is None else store.usage()
    try:
        mode = f"{stat.S_IMODE(folder.stat().st_mode):04o}"
    except OSError:
        mode = None
    problem = next(iter(recorder.warnings()), None)
    return Cache(str(folder), usage.entries if usage else 0, usage.bytes if usage else 0, limit, mode, problem)


# Warnings ------------------------------------------------------------------------------------------------------------


def _warnings(
    processor: Processor,
    threads: Threads,
    measured: Measured | None,
    figures: Figures,
    cache: Cache,
    environ: Mapping[str, str],
) -> Iterator[Caution]:
    if processor.governor not in (None, "performance"):
        remedy = "cpupower frequency-set -g performance, if this machine is yours"
        yield Caution("frequency", f"the governor is {processor.governor}: clocks follow the load", remedy)
    if threads.used > threads.cores:
        remedy = "unset it, or set it to the number of cores"
        yield Caution("threads", f"{threads.used} threads ({threads.reason}) on {threads.cores} cores", remedy)
    if threads.quota is not None and threads.used > threads.quota:
        reason = f"{threads.used} threads share a quota of {threads.quota:g} processors"
        yield Caution("threads", reason, "raise the quota, or use fewer threads")
    if measured is not None and measured.noise > _NOISE_LIMIT:
        reason = f"equal work varies by {measured.noise:.0%}: something else runs, or clocks change"
        yield Caution("noise", reason, "stop other programs before measuring")
    if figures.problem is not None:
        reason, _, remedy = figures.problem.rpartition("; ")
        yield Caution("figures", reason, remedy)
    if cache.problem is not None:
        remedy = "kernels are compiled anew each time; see TILEWRIGHT_CACHE_DIR and TILEWRIGHT_CACHE_BYTES"
        yield Caution("cache", cache.problem, remedy)
    elif cache.bytes > _FREE_FRACTION * cache.limit_bytes:
        reason = f"{format_size(cache.bytes)} of {format_size(cache.limit_bytes)} bytes are used"
        yield Caution("cache", reason, "raise TILEWRIGHT_CACHE_BYTES, if models are compiled again and again")
    if environ.get(f"{PREFIX}BOUNDS_CHECK", "0") not in ("", "0"):
        yield Caution("bounds checks", "every access is checked, which is slow", f"unset {PREFIX}BOUNDS_CHECK")


# Text ----------------------------------------------------------------------------------------------------------------


def _facts(found: Diagnosis) -> Iterator[tuple[str, str]]:
    processor, threads, cache = found.processor, found.threads, found.cache
    yield "processor", processor.name
    yield "target", processor.target
    yield "features", " ".join(processor.features)
    yield "vectors", f"{processor.vector_bits} bits"
    yield "data caches", ", ".join(f"{level} {format_size(size)}" for level, size in processor.caches.items())
    yield "frequency", ", ".join(_frequency(processor)) or "not known"
    yield "processors", f"{_ranges(threads.processors)} ({threads.cores} cores)"
    yield "quota", "none" if threads.quota is None else f"{threads.quota:g} processors"
    yield "threads", f"{threads.used}: {threads.reason}"
    if found.measured is not None:
        yield from _roofs(found.measured)
    yield "figures", _used(found.figures)
    yield "versions", ", ".join(f"{name} {number}" for name, number in found.versions.items())
    yield "settings", ", ".join(f"{name}={value}" for name, value in found.settings.items()) or "none"
    yield "kernels", _usage(cache)
    yield "models", _usage(found.models)
    yield "added", "; ".join(found.added) or "nothing"


def _usage(cache: Cache) -> str:
    usage = f"{cache.entries} entries, {format_size(cache.bytes)} of {format_size(cache.limit_bytes)} bytes"
    return f"{cache.folder or 'none'}: {cache.problem or f'{usage}, mode {cache.mode}'}"


def _used(figures: Figures) -> str:
    if not figures.used:
        return "built in"
    values = ", ".join(f"{name} {value:g}" for name, value in figures.used.items())
    return f"{values} (measured: {figures.file}); others are built in"


def _figure_table(figures: Figures, found: tuple[Finding, ...]) -> Table:
    table = Table("figure", "measured", "quartiles apart", "built in", "what is used", title="figures of this machine")
    for one in found:
        use = "the one that is built in" if one.name not in figures.used else "the one that was kept before"
        if one.problem is None:
            use = "not kept: switched off by the settings" if figures.file is None else "what was measured"
        source = use if one.problem is None else f"{use}: {one.problem}"
        table.add_row(one.name, f"{one.value:g}", f"{one.spread:.0%}", f"{one.built_in:g}", source)
    return table


def _frequency(processor: Processor) -> Iterator[str]:
    if processor.megahertz is not None:
        yield f"{processor.megahertz:.0f} MHz now"
    if processor.governor is not None:
        yield f"governor {processor.governor}"


def _roofs(measured: Measured) -> Iterator[tuple[str, str]]:
    for name, peak in (("one core", measured.one_core), ("all threads", measured.all_threads)):
        reads = ", ".join(
            f"{b.gbytes_per_second:.0f} from {b.roof} ({format_size(b.working_set)} bytes)" for b in peak.bandwidths
        )
        yield name, f"{peak.gflops:.0f} GFLOP/s (float32 multiply-adds); GB/s: {reads}"
    yield "noise", f"{measured.noise:.1%} between quartiles; clock {measured.clock_nanoseconds:.0f} ns"


def _ranges(numbers: tuple[int, ...]) -> str:
    """``0-3,8`` for 0, 1, 2, 3, 8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
