"""Charts as SVG, drawn by Matplotlib: lines, steps and dots between two axes.

Matplotlib is optional: ``pip install 'tilewright[report]'``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape
from io import StringIO
from math import isfinite

from tilewright.base.errors import BadInput

WIDTH, HEIGHT = 520, 328
"""Of a picture, in pixels of 1/96 inch."""


class Scale(Enum):
    """How numbers are placed along an axis."""

    LINEAR = "linear"
    LOGARITHMIC = "log"


class Mark(Enum):
    """How points are drawn."""

    DOTS = "dots"
    STEPS = "steps"
    """Each value holds until the next one."""
    LINE = "line"


@dataclass(frozen=True, slots=True)
class Axis:
    """What is along an axis, with its unit."""

    label: str
    scale: Scale = Scale.LINEAR


@dataclass(frozen=True, slots=True)
class Series:
    """Points, in order."""

    name: str
    points: Sequence[tuple[float, float]]
    color: str
    mark: Mark = Mark.DOTS
    band: Sequence[tuple[float, float, float]] = ()
    """Behind a line or steps: where it is along the axis, and the lower and the upper end of what is shaded."""


def chart(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """An SVG picture. Points that are not finite, or can't be on a logarithmic axis, are left out.

    Raises ``BadInput`` if Matplotlib is not installed.
    """
    shown = [(one, [point for point in one.points if _fits(point, x, y)]) for one in series]
    shown = [(one, points) for one, points in shown if points]
    if not shown:
        return f'<p class="empty">{escape(title)}: nothing to show</p>'
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput("charts are drawn by Matplotlib: pip install 'tilewright[report]'") from error
    file = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tilewright", "font.size": 9.0}):
        figure = Figure(figsize=(WIDTH / 96, HEIGHT / 96), layout="constrained")
        axes = figure.add_subplot()
        axes.set(title=title, xlabel=x.label, ylabel=y.label, xscale=x.scale.value, yscale=y.scale.value)
        axes.grid(visible=True, alpha=0.3)
        for one, points in shown:
            across, up = zip(*points, strict=True)
            if one.mark is Mark.DOTS:
                axes.scatter(across, up, s=12, c=one.color, alpha=0.6, label=one.name)
            else:
                axes.plot(across, up, one.color, drawstyle=_STYLES[one.mark], label=one.name)
                if one.band:
                    at, low, high = zip(*one.band, strict=True)
                    axes.fill_between(at, low, high, color=one.color, alpha=0.15, step=_STEPS[one.mark], linewidth=0)
        if y.scale is Scale.LINEAR and all(value >= 0 for _, points in shown for _, value in points):
            axes.set_ylim(bottom=0.0)  # what looks twice as large is
        if len(shown) > 1:
            axes.legend()
        figure.savefig(file, format="svg", metadata={"Date": None, "Title": title})
    text = file.getvalue()
    return text[text.index("<svg") :]


_STYLES = {Mark.STEPS: "steps-post", Mark.LINE: "default"}
_STEPS = {Mark.STEPS: "post", Mark.LINE: None}


def _fits(point: tuple[float, float], x: Axis, y: Axis) -> bool:
    pairs = zip(point, (x, y), strict=True)
    return all(isfinite(value) and (value > 0 or axis.scale is Scale.LINEAR) for value, axis in pairs)
