"""The page of a database of records: what was searched, how fast it came, and what it gained."""

from collections import Counter
from collections.abc import Sequence

from tilewright.measure.verdicts import Verdict
from tilewright.report.charts import Axis, Scale, Series, chart
from tilewright.report.history import Search
from tilewright.report.page import Section, pictures, table

_BEST, _TRIED = "#1a7f37", "#999999"
_FIRST = "#ca5b2b"


def tuning_sections(searches: Sequence[Search]) -> list[Section]:
    """First all kernels, then each by itself, those with the largest gain first."""
    order = sorted(searches, key=lambda search: (search.first_us or 0.0) - (search.best_us or 0.0), reverse=True)
    numbers = {id(search): f"kernel {number}" for number, search in enumerate(order, 1)}
    overview = Section("All kernels", _overview(order) + pictures([_roofline(order)]))
    return [overview, *(Section(f"{numbers[id(search)]}", _details(search)) for search in order)]


def _overview(searches: Sequence[Search]) -> str:
    headings = ("kernel", "threads", "tried", "failed", "first, us", "best, us", "gain", "GFLOP/s")
    return table(headings, [_row(number, search) for number, search in enumerate(searches, 1)])


def _row(number: int, search: Search) -> tuple[str, ...]:
    failed = sum(trial.outcome.verdict is not Verdict.OK for trial in search.trials)
    counts = (f"kernel {number}", str(search.threads), str(len(search.trials)), str(failed))
    first, best = search.first_us, search.best_us
    if first is None or best is None:
        return (*counts, "", "", "", "")
    rate = _gigaflops(search, best)
    return (*counts, f"{first:.1f}", f"{best:.1f}", f"{first / best:.2f}", "" if rate is None else f"{rate:.1f}")


def _gigaflops(search: Search, microseconds: float) -> float | None:
    return None if search.work is None else search.work.operations / microseconds * 1e-3


def _roofline(searches: Sequence[Search]) -> str:
    """Operations a second against operations for each byte: of first choices, and of the best ones."""
    first: list[tuple[float, float]] = []
    best: list[tuple[float, float]] = []
    for search in searches:
        work = search.work
        if work is not None and work.bytes and search.first_us is not None and search.best_us is not None:
            intensity = work.operations / work.bytes
            first.append((intensity, work.operations / search.first_us * 1e-3))
            best.append((intensity, work.operations / search.best_us * 1e-3))
    x, y = Axis("operations for each byte", Scale.LOGARITHMIC), Axis("GFLOP/s", Scale.LOGARITHMIC)
    series = [Series("first", first, _FIRST, is_line=False), Series("best", best, _BEST, is_line=False)]
    return chart("Where kernels are under the roof", x, y, series)


def _details(search: Search) -> str:
    verdicts = Counter(trial.outcome.verdict.value for trial in search.trials)
    told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    tried = [
        (float(number), us)
        for number, trial in enumerate(search.trials, 1)
        if (us := trial.outcome.median_us) is not None
    ]
    way = list(search.best_so_far())
    microseconds = Axis("microseconds", Scale.LOGARITHMIC)
    by_trials = [
        Series("tried", tried, _TRIED, is_line=False),
        Series("best", [(float(number), us) for number, _, us in way], _BEST),
    ]
    by_seconds = [Series("best", [(seconds, us) for _, seconds, us in way], _BEST)]
    curves = [
        chart("Best so far, by trials", Axis("trials"), microseconds, by_trials),
        chart("Best so far, by time", Axis("seconds"), microseconds, by_seconds),
        chart("Predicted against measured", Axis("place by prediction"), microseconds, [_ranked(search)]),
    ]
    return f"<p><code>{_escaped(search.shapes)}</code></p><p>{told}; {_escaped(search.target)}</p>{pictures(curves)}"


def _ranked(search: Search) -> Series:
    """Times in the order in which they were predicted before they were measured, what was thought fastest first."""
    outcomes = [trial.outcome for trial in search.trials]
    known = [(o.predicted, o.median_us) for o in outcomes if o.predicted is not None and o.median_us is not None]
    ordered = sorted(known, key=lambda pair: -pair[0])
    return Series("tried", [(float(place), us) for place, (_, us) in enumerate(ordered, 1)], _TRIED, is_line=False)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
