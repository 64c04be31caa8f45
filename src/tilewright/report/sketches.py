"""What a search in sketches looked at: the tree of its sketches, and charts of where it was when.

A record says which sketch its candidate is of by the rules that made it, outputs first (decision ``space``).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from statistics import median

from tilewright.report.charts import Axis, Mark, Scale, Series, chart
from tilewright.report.history import Search, Trial

GENERATION = 32
"""Trials whose scores are told together: as many as a round of a long search has."""
COLORS = ("#1a7f37", "#0068b5", "#ca5b2b", "#8d4bb3", "#3aa6a6", "#b33a3a")
"""Of the fastest sketches, in charts; of all others: ``OTHERS``."""
OTHERS = "#999999"
NO_MORE = "nothing more"
"""A sketch to which others add steps."""
MOST_LETTERS = 40
"""Of a sketch in the legend of a chart."""
_STEP = re.compile(r"[^,()]+(?:\([^()]*\))?")


@dataclass(slots=True)
class Branch:
    """Sketches that begin with the same steps. ``best_us``: of the fastest of their ``tried`` candidates; None if none
    was right. ``alone``: the one that has no more steps."""

    step: str = ""
    tried: int = 0
    right: int = 0
    best_us: float | None = None
    alone: "Branch | None" = None
    branches: dict[str, "Branch"] = field(default_factory=dict[str, "Branch"])

    def add(self, steps: Sequence[str], us: float | None) -> None:
        """One candidate that has these steps more."""
        self.tried += 1
        if us is not None:
            self.right += 1
            self.best_us = us if self.best_us is None else min(self.best_us, us)
        if steps:
            first, *rest = steps
            self.branches.setdefault(first, Branch(first)).add(rest, us)
        elif self.step != NO_MORE:
            self.alone = self.alone or Branch(NO_MORE)
            self.alone.add((), us)

    @property
    def parts(self) -> list["Branch"]:
        """The branches, and among others what is not one of them; the fastest first."""
        found = [*self.branches.values()]
        if found and self.alone is not None:
            found.append(self.alone)
        return sorted(found, key=lambda one: (one.best_us is None, one.best_us or 0.0))


def sketch_of(trial: Trial) -> str | None:
    """The sketch of a candidate, or ``template``; None for one of a search in a single space."""
    return dict(trial.record.job.decisions).get("space")


def sketch_tree(search: Search) -> Branch | None:
    """All sketches of which candidates were measured; None for a search in a single space."""
    root = Branch()
    for trial in search.trials:
        label = sketch_of(trial)
        if label is not None:
            root.add([step.strip() for step in _STEP.findall(label)], trial.outcome.median_us)
    return root if root.tried else None


def sketch_section(search: Search) -> str:
    """The tree as HTML; empty for a search in a single space."""
    tree = sketch_tree(search)
    if tree is None:
        return ""
    return f"<p>Sketches, by the rules that were applied, outputs first:</p>{_listed(tree, tree.best_us)}"


def _listed(branch: Branch, best: float | None) -> str:
    """The fastest branches first."""
    items = "".join(f"<li>{_told(one, best)}{_listed(one, best)}</li>" for one in map(_joined, branch.parts))
    return f'<ul class="sketches">{items}</ul>' if items else ""


def _joined(branch: Branch) -> Branch:
    """Steps that are always followed by the same one are a line with it."""
    while len(branch.parts) == 1:
        (only,) = branch.parts
        branch = replace(only, step=f"{branch.step}, {only.step}")
    return branch


def _told(branch: Branch, best: float | None) -> str:
    step = f"<code>{escape(branch.step)}</code>"
    name = f"<b>{step}</b>" if best is not None and branch.best_us == best else step
    time = "none right" if branch.best_us is None else f"best {branch.best_us:.1f} us"
    failed = branch.tried - branch.right
    return f"{name}: {branch.tried} measured{f', {failed} failed' if failed else ''}, {time}"


def sketch_charts(search: Search) -> list[str]:
    """When which sketch was tried, and what the cost model thought of what was measured; none for other searches."""
    if sketch_tree(search) is None:
        return []
    times = [(number, sketch_of(trial), trial.outcome.median_us) for number, trial in enumerate(search.trials, 1)]
    points: dict[str, list[tuple[float, float]]] = {}
    for number, label, us in times:
        if label is not None and us is not None:
            points.setdefault(label, []).append((float(number), us))
    ordered = sorted(points, key=lambda label: min(us for _, us in points[label]))
    shown = [Series(_short(label), points[label], color) for label, color in zip(ordered, COLORS, strict=False)]
    others = [point for label in ordered[len(COLORS) :] for point in points[label]]
    if others:
        shown.append(Series("others", others, OTHERS))
    return [
        chart("Sketches, by trials", Axis("trials"), Axis("microseconds", Scale.LOGARITHMIC), shown),
        chart("Scores of what was measured", Axis("trials"), Axis("predicted"), _scores(search)),
    ]


def _short(label: str) -> str:
    """The beginning and the end of a long one."""
    half = MOST_LETTERS // 2 - 2
    return label if len(label) <= MOST_LETTERS else f"{label[:half]} .. {label[-half:]}"


def _scores(search: Search) -> list[Series]:
    """Of each generation of trials: the highest score, the one in the middle, and the lowest."""
    parts: list[tuple[float, list[float]]] = []
    for begin in range(0, len(search.trials), GENERATION):
        group = search.trials[begin : begin + GENERATION]
        scores = [trial.outcome.predicted for trial in group if trial.outcome.predicted is not None]
        if scores:
            parts.append((float(begin + len(group)), scores))
    kinds = (("highest", max, COLORS[0]), ("median", median, COLORS[1]), ("lowest", min, COLORS[2]))
    return [Series(name, [(at, of(scores)) for at, scores in parts], color, Mark.LINE) for name, of, color in kinds]
