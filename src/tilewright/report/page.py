"""Makes a self-contained HTML page from sections."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tilewright.base.outputs import AnyPath, output

_STYLE = """
body { font: 14px/1.45 sans-serif; max-width: 1320px; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; } .wide { overflow-x: auto; }
th, td { padding: 2px 10px; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
th.number, td.number { text-align: right; white-space: nowrap; } th { white-space: nowrap; }
summary { cursor: pointer; }
svg { font: 11px sans-serif; margin: 4px; } svg .title { font-size: 13px; }
svg { max-width: calc(100% - 8px); height: auto; } svg.graph rect { fill: #f4f4f4; stroke: #888; }
svg.graph .value rect { fill: none; stroke-dasharray: 3 2; } svg .edge { fill: none; stroke: #999; }
svg.graph .replaced rect { fill: #fbd5c7; stroke: #ca5b2b; } svg.graph .made rect { fill: #cdeed5; stroke: #1a7f37; }
span.replaced { background: #fbd5c7; } span.made { background: #cdeed5; } pre { overflow-x: auto; }
.pictures { display: flex; flex-wrap: wrap; align-items: flex-start; overflow-x: auto; }
code { font-size: 12px; overflow-wrap: anywhere; }
:root { color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1b; } th, td { border-color: #444; } svg.graph text:not([fill]) { fill: #ddd; }
  svg.graph rect { fill: #2a2a2a; stroke: #999; }
  svg.graph .replaced rect, span.replaced { fill: #5a2a17; background: #5a2a17; }
  svg.graph .made rect, span.made { fill: #17452a; background: #17452a; }
}
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and its HTML."""

    heading: str
    body: str


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table of text cells. Columns of numbers are right-aligned, all others left-aligned."""
    styles = [' class="number"' if all(map(_is_number, column)) else "" for column in zip(*rows, strict=True)]
    head = _cells("th", headings, styles or [""] * len(headings))
    lines = [_cells("td", row, styles) for row in rows]
    return f'<div class="wide"><table><thead>{head}</thead><tbody>\n' + "\n".join(lines) + "\n</tbody></table></div>"


def _cells(tag: str, row: Sequence[str], styles: Sequence[str]) -> str:
    cells = (f"<{tag}{style}>{escape(cell)}</{tag}>" for cell, style in zip(row, styles, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


def _is_number(cell: str) -> bool:
    """Whether a cell is a number or empty."""
    try:
        float(cell.replace(",", "") or "0")
    except ValueError:
        return False
    return True


def folded(summary: str, body: str) -> str:
    """Collapsed HTML with a summary, a text."""
    return f"<details><summary>{escape(summary)}</summary>\n{body}</details>"


def pictures(svgs: Sequence[str]) -> str:
    """Pictures side by side."""
    return '<div class="pictures">\n' + "\n".join(svgs) + "\n</div>"


def page(title: str, sections: Sequence[Section]) -> str:
    """The HTML text of a page."""
    bodies = "\n".join(f"<section><h2>{escape(one.heading)}</h2>\n{one.body}</section>" for one in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{bodies}\n</body></html>\n"
    )


def write_page(path: Path, title: str, sections: Sequence[Section], inputs: Iterable[AnyPath] = ()) -> None:
    """Write a page atomically; ``path`` must not be one of ``inputs``. Raises ``BadInput`` if it can't be written."""
    with output(path, inputs) as file:
        file.write(page(title, sections).encode())
