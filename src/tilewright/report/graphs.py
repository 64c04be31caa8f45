"""Draws graphs as SVG: a box for each operator, edges from top to bottom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape

from tilewright.base.names import readable
from tilewright.graph import Node, Value
from tilewright.report.layers import Layered, layered
from tilewright.report.placement import placed

_HEIGHT, _LETTER, _MARGIN = 36, 6.4, 8
_ACROSS, _DOWN = 16, 30
_BEND = 4
_LONGEST = 26
_SMALLEST = 0.7
"""The minimum scale of a picture in a narrow window, so that its text is readable."""


class Role(Enum):
    """The kind of a box, which is the name of its style."""

    SAME = "same"
    REPLACED = "replaced"
    MADE = "made"
    VALUE = "value"
    """An input, a constant, or a value from elsewhere."""


@dataclass(frozen=True, slots=True)
class Box:
    """``label``: operator or value; ``detail``: type of the result; ``name``: full text, shown as a tooltip."""

    label: str
    detail: str
    name: str
    role: Role


def picture(title: str, nodes: Sequence[Node], roles: Mapping[str, Role], results: Sequence[Value] = ()) -> str:
    """A picture of ``nodes``, in topological order, and their inputs. ``roles``: by the first output; default ``SAME``.

    ``results``: values read outside of the picture, drawn at the bottom.
    """
    boxes: list[Box] = []
    edges: dict[tuple[int, int], None] = {}
    made: dict[str, int] = {}
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.name not in made:
                made[value.name] = len(boxes)
                boxes.append(Box(_short(value.name), _type(value), repr(value), Role.VALUE))
        number = len(boxes)
        boxes.append(Box(node.op.name, _type(node.outputs[0]), str(node), roles.get(node.outputs[0].name, Role.SAME)))
        edges.update(dict.fromkeys((made[value.name], number) for value in node.inputs if value is not None))
        made.update((value.name, number) for value in node.outputs)
    for value in results:
        if value.name in made:
            edges[made[value.name], len(boxes)] = None
            boxes.append(Box(_short(value.name), "", repr(value), Role.VALUE))
    return _drawn(title, boxes, layered(len(boxes), list(edges)))


def _short(name: str) -> str:
    shown = readable(name)
    return shown if len(shown) <= _LONGEST else f"...{shown[3 - _LONGEST :]}"


def _type(value: Value) -> str:
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _drawn(title: str, boxes: Sequence[Box], found: Layered) -> str:
    widths = {vertex: float(_BEND) for layer in found.layers for vertex in layer}
    widths |= {n: max(len(box.label), len(box.detail)) * _LETTER + 2 * _MARGIN for n, box in enumerate(boxes)}
    centres = placed(found, widths, _ACROSS)
    tops = {vertex: _DOWN + level * (_HEIGHT + _DOWN) for level, layer in enumerate(found.layers) for vertex in layer}
    places = {vertex: (centres[vertex] + _ACROSS, top) for vertex, top in tops.items()}
    width = max((centres[vertex] + widths[vertex] / 2 for vertex in centres), default=0.0) + 2 * _ACROSS
    height = _DOWN + len(found.layers) * (_HEIGHT + _DOWN)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
            f'style="min-width: {_SMALLEST * width:.0f}px" class="graph" role="img">',
            f"<title>{escape(title)}</title>",
            f'<text x="{_ACROSS}" y="16" class="title">{escape(title)}</text>',
            *(_edge([places[vertex] for vertex in path]) for path in found.paths),
            *(_box(box, widths[number], places[number]) for number, box in enumerate(boxes)),
            "</svg>",
        ]
    )


def _edge(places: Sequence[tuple[float, float]]) -> str:
    """A polyline from the bottom of the first box to the top of the last, through the bends between."""
    (x, y), bends, (end, top) = places[0], places[1:-1], places[-1]
    through = "".join(f"L{a:.1f} {b}V{b + _HEIGHT}" for a, b in bends)
    return f'<path d="M{x:.1f} {y + _HEIGHT}{through}L{end:.1f} {top}" class="edge"/>'


def _box(box: Box, width: float, place: tuple[float, float]) -> str:
    x, top = place
    lines = [(box.label, 15), (box.detail, 29)] if box.detail else [(box.label, 22)]
    texts = "".join(
        f'<text x="{x:.1f}" y="{top + down}" text-anchor="middle">{escape(line)}</text>' for line, down in lines
    )
    return (
        f'<g class="{box.role.value}"><title>{escape(box.name)}</title>'
        f'<rect x="{x - width / 2:.1f}" y="{top}" width="{width:.1f}" height="{_HEIGHT}" rx="5"/>{texts}</g>'
    )
