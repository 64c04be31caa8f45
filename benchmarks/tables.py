"""Results as Markdown tables: median time of every peer, ratio to the baseline, errors; geometric means of ratios."""

import statistics
from collections.abc import Iterable, Sequence

from .results import Compilation, Results, Row

BASELINE = "onnxruntime"
OURS = "tilewright"
RATED = (OURS, "tilewright_bf16")
"""Those whose times are compared with the fastest other."""
LABELS = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch_eager": "PyTorch",
    "torch_compile": "torch.compile",
    "torch_max_autotune": "torch.compile, max-autotune",
    "tvm_metaschedule": "TVM, MetaSchedule",
    "tilewright": "Tilewright",
    "tilewright_searched": "Tilewright, searched",
    "tilewright_by_class": "Tilewright, by class",
    "tilewright_sketches": "Tilewright, tuned in sketches",
    "tilewright_templates": "Tilewright, tuned in templates",
    "tilewright_all": "Tilewright, tuned in all spaces",
    "tilewright_strict": "Tilewright, strict",
    "onnxruntime_exact": "ONNX Runtime, exact",
    "openvino_bf16": "OpenVINO, bfloat16",
    "tilewright_bf16": "Tilewright, bfloat16",
}


def report(results: Results) -> str:
    """All tables of these results; cases and peers in the order in which they were measured."""
    return "\n\n".join([heading(results), *latencies(results), *details(results)])


def heading(results: Results) -> str:
    """The machine, the versions, and when it was measured."""
    return f"{results.host}. {results.versions}." + (f" Measured {results.measured}." if results.measured else "")


def _names(results: Results) -> tuple[list[str], list[str], list[int]]:
    """Cases, peers and numbers of threads."""
    cases = list(dict.fromkeys(row.case for row in results.rows))
    peers = list(dict.fromkeys(row.peer for row in results.rows))
    return cases, peers, sorted({row.threads for row in results.rows})


def latencies(results: Results) -> list[str]:
    """The tables of times, one for each number of threads."""
    cases, peers, threads = _names(results)
    parts: list[str] = []
    baseline = BASELINE if BASELINE in peers else peers[0]
    ours = [peer for peer in peers if peer in RATED] or [peer for peer in peers if peer.startswith(OURS)][:1]
    for count in threads:
        unit = "thread" if count == 1 else "threads"
        parts += [f"{count} {unit}, median milliseconds (ratio to {LABELS[baseline]}, below 1 is faster):"]
        own = {row.peer for row in results.rows if row.threads == count}
        parts += [latency_table(results, count, cases, [peer for peer in peers if peer in own], baseline, ours)]
    return parts


def details(results: Results) -> list[str]:
    """The tables of shares of the peak, errors and compile times, and what failed."""
    cases, peers, threads = _names(results)
    parts: list[str] = []
    for count in threads[:1]:
        parts += ["Share of the floating-point peak, by the operations of the operators' definitions, 1 is all of it:"]
        parts += [share_table(results, count, cases, peers)]
        parts += ["Error against float64, relative in the norm and largest difference over largest value:"]
        parts += [accuracy_table(results, count, cases, peers)]
    if results.compilations:
        parts += [
            "Compiling with Tilewright; its artifact, loaded and run once, beyond importing NumPy:",
            compilation_table(results.compilations),
        ]
    failed = failures(results)
    return [*parts, "What failed:", failed] if failed else parts


def latency_table(
    results: Results,
    threads: int,
    cases: Sequence[str],
    peers: Sequence[str],
    baseline: str = BASELINE,
    ours: Sequence[str] = (OURS,),
) -> str:
    """Per case: milliseconds of every peer, how many times the baseline's, and how many times each of ours the fastest
    other peer takes; last, the means over all cases."""
    header = ["", *(LABELS[peer] for peer in peers), *(f"fastest other / {LABELS[own]}" for own in ours)]
    leads = {case: [_lead(results, case, threads, peers, own) for own in ours] for case in cases}
    body = [
        [case, *(_latency(results, case, threads, peer, baseline) for peer in peers), *map(_times, leads[case])]
        for case in cases
    ]
    means = ["geometric mean of ratios", *(_mean(results, cases, threads, peer, baseline) for peer in peers)]
    columns = zip(*leads.values(), strict=True)
    return markdown([header, *body, [*means, *(_summary([lead for lead in own if lead]) for own in columns)]])


def _lead(results: Results, case: str, threads: int, peers: Sequence[str], ours: str) -> float | None:
    """How many times longer than ours the fastest peer that is not Tilewright takes; None where one side is missing."""
    rows = {peer: results.row(case, threads, peer) for peer in peers}
    times = {peer: row.median for peer, row in rows.items() if row and not row.failure}
    others = [time for peer, time in times.items() if not peer.startswith(OURS)]
    return min(others) / times[ours] if others and ours in times else None


def _times(lead: float | None) -> str:
    return f"{lead:.2f}" if lead else ""


def _summary(leads: Sequence[float]) -> str:
    """The mean, and in how many cases nobody is faster."""
    return f"{geometric_mean(leads):.2f}, at least 1 in {sum(x >= 1 for x in leads)} of {len(leads)}" if leads else ""


def _latency(results: Results, case: str, threads: int, peer: str, baseline: str) -> str:
    row, ratio = results.row(case, threads, peer), results.ratio(case, threads, peer, baseline)
    if row is None:
        return ""
    if row.failure:
        return "fails"
    return f"{milliseconds(row.median)}" + (f" ({ratio.median:.2f})" if ratio else "")


def _mean(results: Results, cases: Iterable[str], threads: int, peer: str, baseline: str) -> str:
    """The mean, and over how many cases when some failed."""
    found = [results.ratio(case, threads, peer, baseline) for case in cases]
    ratios = [ratio.median for ratio in found if ratio]
    if not ratios:
        return ""
    partly = f" of {len(ratios)}" if len(ratios) < len(found) else ""
    return f"{geometric_mean(ratios):.2f}{partly}"


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean that does not depend on which peer is the baseline."""
    return statistics.geometric_mean(ratios)


def share_table(results: Results, threads: int, cases: Sequence[str], peers: Sequence[str]) -> str:
    """Per case: how much of the machine's peak every peer gets."""
    header = ["", *(LABELS[peer] for peer in peers)]
    return markdown(
        [header, *([case, *(_share(results.row(case, threads, peer)) for peer in peers)] for case in cases)]
    )


def _share(row: Row | None) -> str:
    return f"{row.share:.2f}" if row and not row.failure else ""


def accuracy_table(results: Results, threads: int, cases: Sequence[str], peers: Sequence[str]) -> str:
    """Per case: the error of every peer in the norm, and of the largest element."""
    header = ["", *(LABELS[peer] for peer in peers)]
    return markdown(
        [header, *([case, *(_error(results.row(case, threads, peer)) for peer in peers)] for case in cases)]
    )


def _error(row: Row | None) -> str:
    return f"{row.error.norm:.1e}, {row.error.element:.1e}" if row and row.error else ""


def compilation_table(compilations: Sequence[Compilation]) -> str:
    """Per case: what Tilewright takes to compile, and its artifact to load and run once."""
    header = ["", "cold, s (CPU s)", "warm, s (CPU s)", "artifact, s (CPU s)", "artifact, MB"]
    return markdown([header, *([c.case, *_compilation(c)] for c in compilations)])


def _compilation(c: Compilation) -> list[str]:
    if c.failure:
        return ["fails", "", "", ""]
    pairs = ((c.cold, c.cold_cpu), (c.warm, c.warm_cpu), (c.artifact, c.artifact_cpu))
    return [*(f"{seconds:.2f} ({cpu:.2f})" for seconds, cpu in pairs), f"{c.artifact_bytes / 1e6:.1f}"]


def failures(results: Results) -> str:
    """A line for each peer and case that failed, with the reason, said once for all numbers of threads."""
    runs = [(row.case, row.peer, row.failure) for row in results.rows]
    compilations = [(c.case, "tilewright", c.failure) for c in results.compilations]
    reasons = dict.fromkeys((*runs, *compilations))
    return "\n".join(f"- {case}, {LABELS[peer]}: {shortened(reason)}" for case, peer, reason in reasons if reason)


def shortened(reason: str, length: int = 200) -> str:
    """The beginning of a long text."""
    return reason if len(reason) <= length else reason[: length - 3] + "..."


def milliseconds(seconds: float) -> str:
    """Three significant digits."""
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:#.3g}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its header, the first column is words, the others are numbers."""
    header, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([header, "|---|" + "---:|" * (len(rows[0]) - 1), *body])


def splice(document: str, name: str, text: str) -> str:
    """Put `text` between the markers of `name`. Raises ValueError when the document has no such markers."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the document has no markers {begin} and {end}, in this order")
    return f"{before}{begin}\n{text}\n{end}{after}"
