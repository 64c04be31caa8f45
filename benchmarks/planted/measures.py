"""What a person's rewrite of a planted graph gives, and what the search finds.

Both are gains over the planted graph compiled without a search, so that what always runs (batch normalizations folded
into weights) counts for neither. `share` is the part of the available gain that is found: 1 if both are equally fast.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.base.superopt import Superopt
from tilewright.compilation import Options, compile_prepared, prepare
from tilewright.frontend.onnx.read import importer
from tilewright.measure.turns import Plan, measure, ratio
from tilewright.superopt.search.optimization import Search
from tilewright.superopt.search.result import Applied
from tilewright.superopt.validate.validation import random_feeds
from tilewright.superoptimizer import costs_of, superoptimize

from .writer import Planted

PLAN = Plan(rounds=8, slot=0.1, rest=0.02)


@dataclass(frozen=True, slots=True)
class Gains:
    """Times without a search, as multiples of those of the rewrite, and of what was found; and how it was found."""

    available: float
    found: float
    seconds: float
    rules: str

    @property
    def share(self) -> float:
        return self.found / self.available


def estimated(one: Planted, options: Options, search: Search) -> Gains:
    """Gains by the costs of whole graphs, in cycles."""
    given, rewritten = (prepare(importer.load(model)) for model in (one.given, one.rewritten))
    costs = costs_of(given, options)
    begin = time.perf_counter()
    best = min(search.under(options.math).optimize(given, costs), key=lambda one: one.cost_after)
    seconds = time.perf_counter() - begin
    before = costs.of_graph(given)
    found = before / min(before, costs.of_graph(best.after))
    return Gains(before / costs.of_graph(rewritten), found, seconds, _told(best.steps))


def measured(one: Planted, options: Options, search: Search) -> Gains:
    """Gains as measured, in turns."""
    given, rewritten = (prepare(importer.load(model)) for model in (one.given, one.rewritten))
    begin = time.perf_counter()
    result = superoptimize(given, replace(options, superopt=Superopt.MAX), search=search)
    seconds = time.perf_counter() - begin
    models = {"given": compile_prepared(given, options), "rewritten": compile_prepared(rewritten, options)}
    if result.optimized.steps:
        models["found"] = result.compiled
    feeds = random_feeds(given, 0)
    timings = measure({name: lambda m=m: m.executable.run(feeds) for name, m in models.items()}, PLAN)
    available = ratio(timings["given"], timings["rewritten"])
    found = ratio(timings["given"], timings["found"]) if "found" in timings else 1.0
    return Gains(available, found, seconds, _told(result.optimized.steps))


def _told(steps: Sequence[Applied]) -> str:
    counts = Counter(step.rule.name for step in steps)
    return ", ".join(name if times == 1 else f"{name} {times}" for name, times in counts.items()) or "none"
