"""Results as pictures: one SVG per number of threads, a line per case, a dot per peer on an axis of ratios."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log2

from .results import Results
from .tables import BASELINE, LABELS

COLORS = {
    "onnxruntime": "#7f7f7f",
    "openvino": "#0068b5",
    "torch_eager": "#f4a582",
    "torch_compile": "#ca5b2b",
    "torch_max_autotune": "#7b3f1d",
    "tilewright": "#1a7f37",
    "tilewright_strict": "#7bc47f",
}
LEFT, RIGHT, TOP, LINE, WIDTH = 130, 24, 64, 22, 760
FONT = 'font-family="sans-serif" font-size="12"'
WIDEST = 5  # powers of two on either side; what is farther sits at the edge


def dot_plot(results: Results, threads: int, title: str) -> str:
    """An SVG: how many times the baseline's time every peer takes, left of the line in the middle is faster."""
    measured = [row for row in results.rows if row.threads == threads]
    cases = list(dict.fromkeys(row.case for row in measured))
    peers = list(dict.fromkeys(row.peer for row in measured))
    ratios = {(case, peer): _log_ratio(results, case, threads, peer) for case in cases for peer in peers}
    axis = _Axis.around([value for value in ratios.values() if value is not None])
    height = TOP + LINE * len(cases) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" {FONT}>',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="22" font-size="15">{escape(title)}</text>',
        *_legend(peers),
        *axis.lines(TOP, TOP + LINE * len(cases)),
    ]
    for index, case in enumerate(cases):
        middle = TOP + LINE * index + LINE / 2
        parts.append(f'<text x="{LEFT - 10}" y="{middle + 4:g}" text-anchor="end">{escape(case)}</text>')
        parts += [_dot(axis, value, middle, peer) for peer in peers if (value := ratios[case, peer]) is not None]
    return "\n".join([*parts, "</svg>", ""])


def _log_ratio(results: Results, case: str, threads: int, peer: str) -> float | None:
    ratio = results.ratio(case, threads, peer, BASELINE)
    return log2(ratio.median) if ratio else None


@dataclass(frozen=True, slots=True)
class _Axis:
    """Powers of two, from the exponent `low` to `high`."""

    low: int
    high: int

    @staticmethod
    def around(values: Sequence[float]) -> "_Axis":
        """Wide enough for these values, and for a ratio of 2 on either side."""
        return _Axis(max(-WIDEST, floor(min([*values, -1.0]))), min(WIDEST, ceil(max([*values, 1.0]))))

    def place(self, value: float) -> float:
        """Where a value stands."""
        inside = min(max(value, self.low), self.high)
        return LEFT + (WIDTH - LEFT - RIGHT) * (inside - self.low) / (self.high - self.low)

    def lines(self, top: float, bottom: float) -> Iterator[str]:
        """A line and a label at each power of two; the baseline's is darker."""
        for power in range(self.low, self.high + 1):
            x, color = self.place(power), "#444" if power == 0 else "#ddd"
            label = f"{2**power}" if power >= 0 else f"1/{2**-power}"
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="{color}"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>'


def _legend(peers: Sequence[str]) -> Iterator[str]:
    step = (WIDTH - 24) / max(1, len(peers))
    for index, peer in enumerate(peers):
        x = 18 + step * index
        yield f'<circle cx="{x:.1f}" cy="42" r="5" fill="{COLORS[peer]}"/>'
        yield f'<text x="{x + 10:.1f}" y="46">{escape(LABELS[peer])}</text>'


def _dot(axis: _Axis, value: float, y: float, peer: str) -> str:
    return f'<circle cx="{axis.place(value):.1f}" cy="{y:g}" r="5" fill="{COLORS[peer]}" fill-opacity="0.85"/>'
