"""The page of a database of records: searches, their progress, gains and results."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from tilewright.base.errors import TilewrightError
from tilewright.insight.peak import Peak
from tilewright.measure.verdicts import Verdict
from tilewright.report.charts import Axis, Mark, Scale, Series, chart
from tilewright.report.history import Search
from tilewright.report.page import Section, folded, pictures, table
from tilewright.report.sketches import sketch_charts, sketch_section
from tilewright.schedule.replay import replay
from tilewright.schedule.trace import Trace

_BEST, _TRIED, _OWN, _ROOF = "#1a7f37", "#999999", "#ca5b2b", "#0068b5"


def tuning_sections(searches: Sequence[Search], peaks: Mapping[int, Peak] | None = None) -> list[Section]:
    """An overview, then a section for each kernel, by decreasing gain of time.

    ``peaks``: the roofs of the machine by number of threads, if the searches were run on this machine.
    """
    order = sorted(searches, key=_saved, reverse=True)
    roofs = [_roofline(order, threads, (peaks or {}).get(threads)) for threads in sorted({s.threads for s in order})]
    overview = Section("All kernels", _overview(order) + pictures(roofs))
    return [overview, *(Section(_name(number, search), _details(search)) for number, search in enumerate(order, 1))]


def _saved(search: Search) -> float:
    tried = search.tried
    return 0.0 if tried is None or tried.gain is None else (tried.own_us or 0.0) - (tried.best_us or 0.0)


def _name(number: int, search: Search) -> str:
    return search.name or f"kernel {number}"


def _overview(searches: Sequence[Search]) -> str:
    headings = ("kernel", "threads", "tried", "failed", "analytic choice, us", "best, us", "gain", "GFLOP/s", "state")
    return table(headings, [_row(number, search) for number, search in enumerate(searches, 1)])


def _row(number: int, search: Search) -> tuple[str, ...]:
    failed = sum(trial.outcome.verdict is not Verdict.OK for trial in search.trials)
    counts = (_name(number, search), str(search.threads), str(len(search.trials)), str(failed))
    tried = search.tried
    if tried is None:
        return (*counts, "", "", "", "", "")
    rate = None if tried.best_us is None else _gigaflops(search, tried.best_us)
    times = (_fixed(tried.own_us, 1), _fixed(tried.best_us, 1), _fixed(tried.gain, 2), _fixed(rate, 1))
    return (*counts, *times, tried.became.value)


def _fixed(number: float | None, digits: int) -> str:
    return "" if number is None else f"{number:.{digits}f}"


def _gigaflops(search: Search, microseconds: float) -> float | None:
    return None if search.work is None else search.work.operations / microseconds * 1e-3


def _roofline(searches: Sequence[Search], threads: int, peak: Peak | None) -> str:
    """A roofline chart: operations per second over operations per byte (Williams et al., "Roofline", 2009)."""
    own: list[tuple[float, float]] = []
    best: list[tuple[float, float]] = []
    for search in searches:
        work, tried = search.work, search.tried
        if search.threads == threads and work is not None and work.bytes and tried is not None:
            intensity = work.operations / work.bytes
            for points, us in ((own, tried.own_us), (best, tried.best_us)):
                if us is not None:
                    points.append((intensity, work.operations / us * 1e-3))
    series = [Series("analytic choice", own, _OWN), Series("best", best, _BEST)]
    if peak is not None and (own or best):
        series.append(
            Series("roof: arithmetic and memory", _roof([x for x, _ in (*own, *best)], peak), _ROOF, Mark.LINE)
        )
    x = Axis("operations for each byte of operands and results", Scale.LOGARITHMIC)
    return chart(f"Roofline, threads: {threads}", x, Axis("GFLOP/s", Scale.LOGARITHMIC), series)


def _roof(intensities: Sequence[float], peak: Peak) -> list[tuple[float, float]]:
    """The points of the roof: slope, ridge and flat part."""
    memory = peak.bandwidths[-1].gbytes_per_second
    ridge = peak.gflops / memory
    low, high = min((*intensities, ridge / 2)), max((*intensities, ridge * 2))
    return [(low, low * memory), (ridge, peak.gflops), (high, peak.gflops)]


def _details(search: Search) -> str:
    verdicts = Counter(trial.outcome.verdict.value for trial in search.trials)
    told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    nodes = f"<p>nodes: {escape(', '.join(search.nodes))}</p>" if search.nodes else ""
    about = f"<p><code>{escape(search.shapes)}</code></p><p>{told}; {escape(search.target)}</p>{nodes}"
    decisions = search.decisions
    compared = table(("knob", "fastest", "analytic choice"), decisions) if decisions else ""
    charts = pictures([*_curves(search), *sketch_charts(search)])
    return about + sketch_section(search) + charts + compared + _best_schedule(search)


def _curves(search: Search) -> list[str]:
    own = None if search.tried is None else search.tried.own_us
    values = "microseconds" if own is None else "times as fast as the analytic choice"

    def value(us: float) -> float:
        return us if own is None else own / us

    outcomes = enumerate(search.trials, 1)
    tried = [(float(n), value(us)) for n, trial in outcomes if (us := trial.outcome.median_us) is not None]
    way = list(search.best_so_far())
    by_trials = [
        Series("tried", tried, _TRIED),
        Series("best", [(float(number), value(us)) for number, _, us in way], _BEST, Mark.STEPS),
    ]
    by_seconds = [Series("best", [(seconds, value(us)) for _, seconds, us in way], _BEST, Mark.STEPS)]
    if own is not None and way:
        for series, last in ((by_trials, float(way[-1][0])), (by_seconds, way[-1][1])):
            series.append(Series("analytic choice", [(0.0, 1.0), (max(last, 1.0), 1.0)], _OWN, Mark.LINE))
    return [
        chart("Best so far, by trials", Axis("trials"), Axis(values), by_trials),
        chart("Best so far, by time", Axis("seconds"), Axis(values), by_seconds),
        chart("Predicted against measured", Axis("place by prediction"), Axis("microseconds"), [_ranked(search)]),
    ]


def _ranked(search: Search) -> Series:
    """Measured times in the order of the predicted times, fastest prediction first."""
    outcomes = [trial.outcome for trial in search.trials]
    known = [(o.predicted, o.median_us) for o in outcomes if o.predicted is not None and o.median_us is not None]
    ordered = sorted(known, key=lambda pair: -pair[0])
    return Series("tried", [(float(place), us) for place, (_, us) in enumerate(ordered, 1)], _TRIED)


def _best_schedule(search: Search) -> str:
    """The steps of the fastest schedule, and the resulting loops."""
    best = None if search.tried is None else search.tried.best
    if best is None or search.parsed is None:
        return ""
    try:
        trace = Trace.from_json(best.job.trace)
        loops = str(replay(trace, search.parsed).program)
    except TilewrightError as error:
        return f"<p>{escape(str(error))}</p>"
    return folded("steps of the fastest schedule", f"<pre>{escape(str(trace))}</pre>") + folded(
        "its loops", f"<pre>{escape(loops)}</pre>"
    )
