"""Compiles models after a search for a better graph (``superopt="fast"`` or ``"max"``), or with rules of a user.

The search works on the prepared graph, with all built-in rules, and minimizes the costs of Tilewright's kernels. The
result is checked against the original graph (``superopt.validate``); then computations on weights are folded. At
``max``, the best few graphs are compiled and measured in turns with the original one, which is kept unless another one
is clearly faster. What ``math=`` does not permit is left out, and told; under ``math="strict"``, compiled
graphs also have the bits of the original one.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from tilewright import interface
from tilewright.base.errors import BadInput, InternalError, NotEquivalent, ResourceLimit
from tilewright.base.events import step
from tilewright.base.numerics import Math, Precision
from tilewright.base.plugins import identity
from tilewright.base.settings import Stage
from tilewright.base.store import Recent
from tilewright.base.superopt import Superopt
from tilewright.compilation import ALONE, Compiled, Options, Services, compile_prepared
from tilewright.graph import Array, Graph
from tilewright.measure.turns import Plan, measure, ratio
from tilewright.ops import Trait
from tilewright.passes.normalize import normalize
from tilewright.passes.rules import ALGEBRA, Rule, floats_of, is_permitted, load_rules, permitted_rule, rewrite, sweeps
from tilewright.superopt.costs.kernel_model import KernelCosts
from tilewright.superopt.costs.provider import CostProvider
from tilewright.superopt.prove.verification import Engine, Verdict, verify_rule
from tilewright.superopt.search.fingerprint import fingerprint
from tilewright.superopt.search.left_out import left_out, with_other_bits
from tilewright.superopt.search.optimization import Search
from tilewright.superopt.search.result import LeftOut, Optimized, applied_by
from tilewright.superopt.validate.bits import differing
from tilewright.superopt.validate.validation import Runner, Validation, random_feeds, validate
from tilewright.target.machine import GUESSED_EXTENT

T = TypeVar("T")

FINALISTS = 3
"""The number of graphs that are compiled and measured, besides the original one."""
CLEARLY = 0.98
"""The maximum time of a graph, relative to that of the original one, to replace it: two measurements of one model may
differ by a percent."""
KERNELS = 4096
"""Maximum kernels in memory while models are compared, if there is no other cache."""
_RUNS, _LEAST_SLOT, _MOST_SLOT = 40, 0.004, 0.1
"""The runs of a turn, and limits of its seconds: a short model needs no more time for as many runs."""
_SECONDS = 2.0
"""Of measuring the best graphs: no round begins after that."""


@dataclass(frozen=True, slots=True)
class Superoptimized:
    """A compiled model, its optimized graph, and the result of validation.

    ``measured``: its time relative to that of the original graph; None if it was not measured.
    """

    compiled: Compiled
    optimized: Optimized
    validation: Validation
    measured: float | None = None


def compile_by_rules(prepared: Graph, options: Options, services: Services) -> Compiled:
    """The model compiled with ``options.rules`` applied wherever they match, and validated.

    Raises ``BadInput`` for a rule that ``options.math`` does not permit, for a false one, and for rules that can be
    applied without end.
    """
    _check_asked(options)
    rules = [found for rule in _others(options) if (found := permitted_rule(rule, options.math)) is not None]
    forbidden = left_out([rule for rule in _others(options) if not is_permitted(rule, options.math)], prepared)
    try:
        done = list(sweeps(prepared, rules, fold=False))
    except InternalError as error:
        false = "".join(f"; {told}" for rule in rules if (told := _told_if_false(rule)))
        raise BadInput(f"{error}{false or '; leave one of them out, or exchange its from and to'}") from error
    if not done or not _is_finite(folded(done[-1][0], options.math), prepared):
        return replace(compile_prepared(prepared, options, services), left_out=forbidden)
    steps = tuple(applied_by(one, 0.0, 0.0) for _, made in done for one in made)
    found, compiling = Optimized(prepared, done[-1][0], steps, 0.0, 0.0), _Compiling(options, services, forbidden)
    chosen = found if compiling.has_bits_of_given(found) else Optimized.unchanged(prepared)
    services.watch(Stage.SUPEROPT, chosen.after)
    return compiling.result(chosen).compiled


def _check_asked(options: Options) -> None:
    """Raises ``BadInput`` for a rule that a user named, and ``options.math`` does not permit."""
    for file in options.rules:
        for rule in file.rules if file.is_asked else ():
            if not is_permitted(rule, options.math):
                allowing = next(math for math in _FROM_STRICT if is_permitted(rule, math))
                raise BadInput(
                    f"{file.name}: the rule {rule.name} can't be applied under math={options.math.value}, as what it "
                    f"does to floats is: {floats_of(rule).value}; leave it out, or give math={allowing.value}"
                )


_FROM_STRICT = (Math.STRICT, Math.CAREFUL, Math.DEFAULT)


def _told_if_false(rule: Rule) -> str:
    """The counterexample of a false ``rule``, as text; empty if there is none."""
    found = verify_rule(rule, Engine.FIELD)
    return f"{rule.name} is false: {found.witness or found.counterexample}" if found.verdict is Verdict.FALSE else ""


def _others(options: Options) -> tuple[Rule, ...]:
    return tuple(rule for file in options.rules for rule in file.rules)


def superoptimize(
    prepared: Graph, options: Options, services: Services = ALONE, search: Search | None = None
) -> Superoptimized:
    """Compile a model after a search for a better graph. ``search``: replaces that of ``options.superopt``.

    Only rules that ``options.math`` permits are applied. Raises ``BadInput`` if ``options.rules`` has others that a
    user named, and for a false rule in it.
    """
    # The models to be compared have most of their kernels in common.
    shared = services if services.cache is not None else replace(services, cache=Recent(KERNELS))
    if options.superopt is Superopt.OFF:
        return _Compiling(options, shared).result(Optimized.unchanged(prepared))
    _check_asked(options)
    with step(services.listener, "superopt"):
        permitted = (search or _search(options)).under(options.math)
        compiling = _Compiling(options, shared, left_out(permitted.left_out, prepared))
        chosen, measured = compiling.chosen(_found(prepared, options, permitted))
    services.watch(Stage.SUPEROPT, chosen.after)
    return replace(compiling.result(chosen), measured=measured)


def _search(options: Options) -> Search:
    usual = Search.at(options.superopt, options.memory_limit)
    return replace(usual, rules=(*usual.rules, *_others(options)))


@dataclass(frozen=True, slots=True)
class ForOthers:
    """A graph for another runtime, its validation, and the rules that ``math`` left out."""

    optimized: Optimized
    validation: Validation
    left_out: tuple[LeftOut, ...] = ()


def optimize_for(
    graph: Graph, costs: CostProvider, search: Search | None, math: Math, run: Runner | None = None
) -> ForOthers:
    """The equivalent graph of lowest ``costs`` for an imported graph, for other runtimes.

    Without ``search``, that is the normalized graph. ``run``: by that runtime, to compare bits under ``math="strict"``.
    Raises ``NotEquivalent`` if the result is not equivalent.
    """
    prepared = for_others(graph)
    if search is None:
        return ForOthers(Optimized.unchanged(prepared), validate(prepared, prepared, math=math))
    permitted = search.under(math)
    found = permitted.optimize(prepared, costs)
    paying = (one for one in found if one.cost_after < CLEARLY * one.cost_before)
    finite = (one for one in paying if _is_finite(for_others(one.after), prepared))
    chosen = next((one for one in finite if _pays_again(one, costs)), found[-1])
    forbidden = left_out(permitted.left_out, prepared)
    if run is not None and math is Math.STRICT and chosen.steps:
        before, after = (partial(run, graph) for graph in (chosen.before, chosen.after))
        if differing(prepared, before, after) is not None:
            forbidden, chosen = (*forbidden, *with_other_bits(chosen.steps)), found[-1]
    return ForOthers(chosen, validate(prepared, chosen.after, math=math), forbidden)


def for_others(graph: Graph) -> Graph:
    """``graph`` with constants folded, without rules, which may not pay elsewhere; weights of few bits stay so."""
    return normalize(graph, kept=Trait.WIDENS)


def _pays_again(one: Optimized, costs: CostProvider) -> bool:
    """Whether it is clearly cheaper if costs are measured again: the best of several may be so by chance."""
    return costs.of_graph(one.after) < CLEARLY * one.cost_before


def _found(graph: Graph, options: Options, search: Search) -> list[Optimized]:
    """Graphs that cost less, the cheapest first; ``graph`` itself is the last."""
    found = search.optimize(graph, costs_of(graph, options))
    return [one for one in found if not one.steps or _is_finite(folded(one.after, options.math), graph)]


def costs_of(graph: Graph, options: Options) -> KernelCosts:
    """The costs for a search in the prepared ``graph``, on as many cores as the model will use."""
    bounds, cores = interface.bounds_of(graph, options.bounds), options.target.cores
    target = replace(options.target, cores=min(cores, options.threads or cores))
    return KernelCosts.of(graph, target, options.math, bounds, options.alternatives)


def folded(graph: Graph, math: Math = Math.DEFAULT) -> Graph:
    """``graph``, which a search made, with computations on weights folded, and with all rules applied that always
    reduce work and that ``math`` permits."""
    permitted = [found for rule in load_rules(ALGEBRA) if (found := permitted_rule(rule, math)) is not None]
    return rewrite(normalize(graph), permitted)


def _is_finite(graph: Graph, before: Graph) -> bool:
    """Whether all weights computed by rules are finite: a product of two large ones may overflow."""
    old = {value.name for value in before.constants}
    made = (array for value, array in graph.constants.items() if value.name not in old and value.dtype.is_float)
    return all(bool(np.isfinite(array.astype(np.float64)).all()) for array in made)


@dataclass(slots=True)
class _Compiling:
    """The parameters of compiling that are the same for all graphs of a model."""

    options: Options
    services: Services
    left_out: tuple[LeftOut, ...] = ()
    """The rules that ``options.math`` left out so far."""
    _known: dict[bytes, Compiled] = field(default_factory=dict[bytes, Compiled])
    """Compiled models by graph: measured ones are also validated and returned."""

    def result(self, chosen: Optimized) -> Superoptimized:
        """The chosen model, validated."""
        compiled = replace(self._compiled(chosen), left_out=self.left_out)
        return Superoptimized(compiled, chosen, self._validated(chosen))

    def has_bits_of_given(self, one: Optimized) -> bool:
        """Whether, under ``math="strict"``, the compiled graph has the bits of the given one; if not, that is noted."""
        if self.options.math is not Math.STRICT or not one.steps:
            return True
        graphs = [self._compiled(each) for each in (Optimized.unchanged(one.before), one)]
        before, after = (compiled.executable.run for compiled in graphs)
        if differing(one.before, before, after) is None:
            return True
        self.left_out += with_other_bits(one.steps)
        return False

    def chosen(self, found: Sequence[Optimized]) -> tuple[Optimized, float | None]:
        """The cheapest graph; at ``max`` the fastest, and its time relative to that of the original graph."""
        if len(found) == 1 or self.options.superopt is not Superopt.MAX:
            paying = (one for one in found[:-1] if one.cost_after < CLEARLY * one.cost_before)
            return next(filter(self._is_fitting, paying), found[-1]), None
        key, cache = self._key(found), self.services.cache
        known = None if cache is None or key is None else cache.get(key)
        for one in found:
            if known == fingerprint(one.after):
                return one, None
        chosen, relative = self._fastest(found[-1], finalists(found[:-1]))
        if cache is not None and key is not None:
            cache.put(key, fingerprint(chosen.after))
        return chosen, relative

    def _key(self, found: Sequence[Optimized]) -> str | None:
        """The cache key of the choice among ``found``, so that compiling again chooses the same graph.

        None if an option has no identity (``base.plugins.identity``).
        """
        try:
            asked = identity(self.options).encode()
        except ValueError:
            return None
        graphs = b"".join(fingerprint(one.after) for one in found)
        return hashlib.sha256(b"superopt" + asked + graphs).hexdigest()

    def _fastest(self, given: Optimized, rivals: Sequence[Optimized]) -> tuple[Optimized, float]:
        """The best of ``rivals`` and its relative time, if it is clearly faster; else ``given``."""
        feeds = random_feeds(given.before, 0, GUESSED_EXTENT)
        made = [(rival, compiled) for rival in rivals if (compiled := self._fitting(rival)) is not None]
        as_given = _run(self._compiled(given), feeds)
        plan = turns_of(_seconds(as_given))

        def measured(some: Sequence[tuple[Optimized, Compiled]]) -> list[float]:
            return _ratios(as_given, [_run(compiled, feeds) for _, compiled in some], plan)

        found = clearly_fastest(made, measured)
        return (given, 1.0) if found is None else (found[0][0], found[1])

    def _is_fitting(self, one: Optimized) -> bool:
        is_free = self.options.memory_limit is None and self.options.math is not Math.STRICT
        return is_free or self._fitting(one) is not None

    def _fitting(self, one: Optimized) -> Compiled | None:
        """The compiled graph; None if it does not fit in the memory limit, or has other bits than ``math`` permits."""
        try:
            compiled = self._compiled(one)
        except ResourceLimit:
            return None
        return compiled if self.has_bits_of_given(one) else None

    def _compiled(self, one: Optimized) -> Compiled:
        key = fingerprint(one.after)
        if key not in self._known:
            graph = folded(one.after, self.options.math) if one.steps else one.after
            self._known[key] = compile_prepared(graph, self.options, self.services)
        return replace(self._known[key], applied=one.steps)

    def _validated(self, one: Optimized) -> Validation:
        try:
            return self._checked(one)
        except NotEquivalent as error:
            if not self.options.rules:
                raise
            files = " ".join(file.name for file in self.options.rules)
            raise BadInput(f"{error}; find the false rule with `tilewright rules verify {files}`") from error

    def _checked(self, one: Optimized) -> Validation:
        """Validate exactly; also with floats at ``max``, and where the exact validation left values undecided."""
        math = self.options.math
        if self.options.superopt is not Superopt.MAX or not one.steps:
            validation = validate(one.before, one.after, math=math)
            if validation.is_complete:
                return validation
        is_exact = self.options.precision is Precision.FP32
        exact = self if is_exact else _Compiling(replace(self.options, precision=Precision.FP32), self.services)
        known = {id(each.after): exact._compiled(each) for each in (Optimized.unchanged(one.before), one)}
        return validate(one.before, one.after, lambda graph, feeds: known[id(graph)].executable.run(feeds), math=math)


def finalists(found: Sequence[Optimized]) -> list[Optimized]:
    """The ``FINALISTS`` to be measured, of graphs in the order of ``Search.optimize``: the best by the costs of whole
    graphs, and the best by the sums of nodes, in turns, as either estimate may be wrong."""
    by_nodes = sorted(found, key=lambda one: one.cost_of_nodes)
    proposed = (one for pair in zip(found, by_nodes, strict=True) for one in pair)
    return list({id(one): one for one in proposed}.values())[:FINALISTS]


def turns_of(seconds: float) -> Plan:
    """How to measure graphs of which one takes ``seconds``."""
    slot = min(max(_RUNS * seconds, _LEAST_SLOT), _MOST_SLOT)
    return Plan(rounds=8, slot=slot, rest=slot / 4, budget=_SECONDS)


def clearly_fastest(rivals: Sequence[T], measured: Callable[[Sequence[T]], Sequence[float]]) -> tuple[T, float] | None:
    """The best of ``rivals`` and its relative time, if that is clearly below 1 in two measurements.

    ``measured``: returns relative times. The best of several may be so by chance in the first measurement.
    """
    first = measured(rivals)
    if not first or min(first) > CLEARLY:
        return None
    best = rivals[first.index(min(first))]
    (again,) = measured([best])
    return (best, again) if again <= CLEARLY else None


def _seconds(run: Callable[[], object]) -> float:
    """Of a run; the first one is not counted."""
    run()
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _ratios(given: Callable[[], object], rivals: Sequence[Callable[[], object]], plan: Plan) -> list[float]:
    """The times of ``rivals`` relative to that of ``given``."""
    named = {str(number): rival for number, rival in enumerate(rivals)}
    timings = measure({"given": given, **named}, plan)
    return [ratio(timings[name], timings["given"]) for name in named]


def _run(compiled: Compiled, feeds: Mapping[str, Array]) -> Callable[[], object]:
    return lambda: compiled.executable.run(feeds)
