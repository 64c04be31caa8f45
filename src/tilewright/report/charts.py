"""Pictures as SVG: lines and dots between two axes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape
from math import ceil, floor, isfinite, log10

WIDTH, HEIGHT = 420, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 28, 40
_TICKS = 5


class Scale(Enum):
    """How numbers are placed along an axis."""

    LINEAR = "linear"
    LOGARITHMIC = "logarithmic"


@dataclass(frozen=True, slots=True)
class Axis:
    """What is along an axis, with its unit."""

    label: str
    scale: Scale = Scale.LINEAR


@dataclass(frozen=True, slots=True)
class Series:
    """Points, in order. ``is_line``: they are joined, by steps; else they are dots."""

    name: str
    points: Sequence[tuple[float, float]]
    color: str
    is_line: bool = True


def chart(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """An SVG picture. Points that are not finite, or can't be on a logarithmic axis, are left out."""
    shown = [(one, [point for point in one.points if _fits(point, x, y)]) for one in series]
    points = [point for _, of_one in shown for point in of_one]
    if not points:
        return f'<p class="empty">{escape(title)}: nothing to show</p>'
    across = _Placing.of([point[0] for point in points], x, _LEFT, WIDTH - _RIGHT)
    up = _Placing.of([point[1] for point in points], y, HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<text x="{_LEFT}" y="16" class="title">{escape(title)}</text>',
        *_grid(across, up, x, y),
    ]
    for one, of_one in shown:
        places = [(across.place(a), up.place(b)) for a, b in of_one]
        parts += [_line(places, one)] if one.is_line else [_dot(place, one) for place in places]
    return "\n".join([*parts, *_legend(series), "</svg>"])


def _fits(point: tuple[float, float], x: Axis, y: Axis) -> bool:
    pairs = zip(point, (x, y), strict=True)
    return all(isfinite(value) and (value > 0 or axis.scale is Scale.LINEAR) for value, axis in pairs)


@dataclass(frozen=True, slots=True)
class _Placing:
    """From numbers to places in the picture."""

    low: float
    high: float
    begin: float
    end: float
    scale: Scale

    @staticmethod
    def of(values: Sequence[float], axis: Axis, begin: float, end: float) -> "_Placing":
        if axis.scale is Scale.LOGARITHMIC:
            low, high = floor(log10(min(values))), ceil(log10(max(values)))
            return _Placing(low, max(high, low + 1), begin, end, axis.scale)
        high = max(values)
        return _Placing(0.0, high if high > 0 else 1.0, begin, end, axis.scale)

    def place(self, value: float) -> float:
        """Where ``value`` is."""
        number = log10(value) if self.scale is Scale.LOGARITHMIC else value
        return self.begin + (number - self.low) / (self.high - self.low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Round numbers along the axis."""
        if self.scale is Scale.LOGARITHMIC:
            return [10.0**exponent for exponent in range(int(self.low), int(self.high) + 1)]
        step = 10.0 ** floor(log10(self.high / _TICKS))
        step *= next(factor for factor in (1, 2, 5, 10) if self.high / (step * factor) <= _TICKS)
        return [step * number for number in range(int(self.high / step) + 1)]


def _grid(across: _Placing, up: _Placing, x: Axis, y: Axis) -> list[str]:
    top, bottom = _TOP, HEIGHT - _BOTTOM
    parts: list[str] = []
    for tick in across.ticks():
        at = across.place(tick)
        parts.append(f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{bottom}" class="grid"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 14}" text-anchor="middle">{tick:g}</text>')
    for tick in up.ticks():
        at = up.place(tick)
        parts.append(f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{WIDTH - _RIGHT}" y2="{at:.1f}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick:g}</text>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x.label)}</text>')
    turned = f'transform="rotate(-90 12 {(top + bottom) / 2:.0f})"'
    parts.append(f'<text x="12" y="{(top + bottom) / 2:.0f}" text-anchor="middle" {turned}>{escape(y.label)}</text>')
    return parts


def _line(places: Sequence[tuple[float, float]], series: Series) -> str:
    """Steps: a value holds until the next one."""
    if not places:
        return ""
    path = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    path += "".join(f"H{across:.1f}V{up:.1f}" for across, up in places[1:])
    return f'<path d="{path}" fill="none" stroke="{series.color}" stroke-width="2"/>'


def _dot(place: tuple[float, float], series: Series) -> str:
    return f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="2.5" fill="{series.color}" fill-opacity="0.6"/>'


def _legend(series: Sequence[Series]) -> list[str]:
    if len(series) < 2:
        return []
    return [
        f'<text x="{WIDTH - _RIGHT}" y="{_TOP + 14 + 14 * number}" text-anchor="end" fill="{one.color}">'
        f"{escape(one.name)}</text>"
        for number, one in enumerate(series)
    ]
