"""Results as pictures: one SVG per number of threads, a line per case, a dot per peer on an axis of ratios."""

from io import StringIO

from .results import Results
from .tables import BASELINE, LABELS

COLORS = {
    "onnxruntime": "#7f7f7f",
    "openvino": "#0068b5",
    "torch_eager": "#f4a582",
    "torch_compile": "#ca5b2b",
    "torch_max_autotune": "#7b3f1d",
    "tvm_metaschedule": "#6a51a3",
    "tilewright": "#1a7f37",
    "tilewright_searched": "#0b4f1e",
    "tilewright_by_class": "#238b45",
    "tilewright_sketches": "#41ab5d",
    "tilewright_templates": "#006d2c",
    "tilewright_all": "#00441b",
    "tilewright_strict": "#7bc47f",
    "onnxruntime_exact": "#8c8c8c",
    "openvino_bf16": "#6cb5e8",
    "tilewright_bf16": "#a6d854",
}
WIDTH, LINE, FRAME = 7.9, 0.23, 1.1  # inches: of a picture, of a case, around the cases
WIDEST = 5  # powers of two on either side; what is farther sits at the edge


def dot_plot(results: Results, threads: int, title: str) -> str:
    """An SVG: how many times the baseline's time every peer takes, left of the line in the middle is faster."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    measured = [row for row in results.rows if row.threads == threads]
    cases = list(dict.fromkeys(row.case for row in measured))
    file = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tilewright", "text.parse_math": False}):
        figure = Figure(figsize=(WIDTH, FRAME + LINE * len(cases)), layout="constrained")
        axes = figure.add_subplot()
        axes.axvline(1.0, color="#444444", linewidth=1, zorder=1)
        for peer in dict.fromkeys(row.peer for row in measured):
            found = {n: r.median for n, case in enumerate(cases) if (r := results.ratio(case, threads, peer, BASELINE))}
            ratios = [min(max(ratio, 2.0**-WIDEST), 2.0**WIDEST) for ratio in found.values()]
            axes.scatter(ratios, [*found], s=40, c=COLORS[peer], alpha=0.85, label=LABELS[peer], gid=peer, zorder=2)
        axes.set_xscale("log", base=2)
        low, high = axes.get_xlim()
        axes.set_xticks([2.0**power for power in range(-WIDEST, WIDEST + 1)])
        axes.set_xlim(min(0.5, low), max(2.0, high))
        axes.xaxis.set_major_formatter(lambda ratio, _: f"{ratio:g}" if ratio >= 1 else f"1/{1 / ratio:g}")
        axes.set_yticks(range(len(cases)), cases)
        axes.invert_yaxis()
        axes.grid(axis="x", color="#dddddd")
        figure.legend(loc="outside upper center", ncols=4, frameon=False, title=title, title_fontsize=12)
        figure.savefig(file, format="svg", metadata={"Date": None, "Title": title})
    text = file.getvalue()
    return text[text.index("<svg") :]
