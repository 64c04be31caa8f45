"""``tilewright optimize``: search for an equivalent graph that takes less time, report the rules applied, write it."""

import argparse
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tilewright.base.checks import Checks
from tilewright.base.errors import BadInput, Unsupported
from tilewright.base.numerics import Math
from tilewright.base.outputs import check_output, output
from tilewright.base.superopt import Strategy, Superopt
from tilewright.cli.operator_names import operators_of
from tilewright.cli.options import (
    ISOLATION,
    add_choice,
    add_compile_arguments,
    bounds,
    file_path,
    positive,
    refuse_for,
    settings_of,
    shapes,
    tolerance,
)
from tilewright.cli.output import emit
from tilewright.cli.progress import reporting
from tilewright.cli.rule_files import rule_paths
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console

if TYPE_CHECKING:
    from tilewright.base.events import Listener
    from tilewright.frontend.api import Source
    from tilewright.frontend.onnx.read.foreign import OnnxOperator
    from tilewright.frontend.onnx.read.kept import Kept
    from tilewright.graph import Graph
    from tilewright.passes.rules import Rule
    from tilewright.superopt.search.accounts import Account
    from tilewright.superopt.search.optimization import Search
    from tilewright.superopt.search.result import LeftOut, Optimized
    from tilewright.superopt.validate.validation import Validation


class Cost(Enum):
    """The runtime whose time the search reduces."""

    COMPILER = "compiler"
    ONNXRUNTIME = "onnxruntime"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``options``, the cost model, and what to write."""
    add_compile_arguments(parser)
    parser.set_defaults(superopt=Superopt.MAX.value)
    whose = "the runtime whose time the search reduces: Tilewright's compiled code, or ONNX Runtime"
    add_choice(parser, "--cost", Cost.COMPILER, whose)
    add_choice(parser, "--strategy", Strategy.BACKTRACKING, "how equivalent graphs are searched")
    parser.add_argument(
        "--alpha", type=_alpha, metavar="A", help="extend graphs that cost at most A times the best so far"
    )
    parser.add_argument("--budget", type=positive, metavar="N", help="extend at most N graphs of each subgraph")
    parser.add_argument("-o", "--output", type=file_path, metavar="FILE.onnx", help="write the graph as an ONNX model")
    parser.add_argument(
        "--report", type=file_path, metavar="FILE.html", help="write a page with rules, proofs, costs and diagrams"
    )
    parser.add_argument("--quiet", action="store_true", help="do not show progress")


def _alpha(text: str) -> float:
    value = tolerance(text)
    if not 1.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 1")
    return value


@dataclass(frozen=True, slots=True)
class _Found:
    """The graph that the search found, how it was checked, and its measured relative time."""

    optimized: "Optimized"
    validation: "Validation"
    measured: float | None
    seconds: float
    given: "Sequence[Account]" = ()
    """What became of the rules of the user."""
    left_out: "Sequence[LeftOut]" = ()
    """The rules that ``--math`` left out, where they match."""


def execute(options: argparse.Namespace, console: Console) -> int:
    """Import, search, check, write, report."""
    from tilewright.frontend.opening import opened

    names = ("backend", "accelerator", "library", "dynamic", *ISOLATION)
    refuse_for(options, "optimize searches here, for CPUs", names)
    own = operators_of(options.operators)
    source = opened(options.model, operators=own)
    given = (*source.files(), *rule_paths(options.rules or ())[0])
    outputs = [check_output(path, given) for path in (options.output, options.report) if path is not None]
    if len({path.absolute() for path in outputs}) < len(outputs):
        raise BadInput(f"--output and --report are both {options.report}: give two names")
    graph, kept = _read(source, options)
    with reporting(f"optimizing {options.model}", plain_console(stderr=True, quiet=options.quiet)) as listener:
        found = _found_by_rules(graph, options, listener)
    if options.output is not None:
        others = _Others(own, kept, _as_given(source, options))
        _write(found, Cost(options.cost), Math.named(options.math), options.output, given, others)
    if options.report is not None:
        from tilewright.report.page import write_page
        from tilewright.report.superopt import superopt_sections

        title = f"Optimized: {options.model.name}"
        unit = "cycles" if options.cost == Cost.COMPILER.value else "seconds"
        sections = superopt_sections(found.optimized, found.validation, found.measured, unit)
        write_page(options.report, title, sections, given)
    names = [] if kept is None else kept.operators
    if options.json:
        emit({**_json(found, options), "kept": names})
    else:
        if names:
            console.print(f"kept as they are: nodes of {', '.join(names)}", soft_wrap=True)
        _show(found, options, console)
    return Status.DONE


def _found_by_rules(graph: "Graph", options: argparse.Namespace, listener: "Listener") -> _Found:
    """Raises ``BadInput`` if a rule of the user produced a graph that is not equivalent."""
    from tilewright.superopt.validate.validation import NotEquivalent

    try:
        return _found(graph, options, listener)
    except NotEquivalent as error:
        if options.rules is None:
            raise
        files = " ".join(map(str, rule_paths(options.rules)[0]))
        raise BadInput(f"{error}; find the false rule with `tilewright rules verify {files}`") from error


def _found(graph: "Graph", options: argparse.Namespace, listener: "Listener") -> _Found:
    from tilewright.base.numerics import Precision
    from tilewright.compilation import Options, Services, prepare
    from tilewright.passes.alternatives import known
    from tilewright.superopt.costs.onnxruntime_timing import OnnxRuntimeCosts
    from tilewright.superopt.search.accounts import accounts
    from tilewright.superoptimizer import costs_of, optimize_for, superoptimize
    from tilewright.target.target import Target
    from tilewright.tune.recorded import recorded

    begin = time.perf_counter()
    level, policy = Superopt.named(options.superopt), Math.named(options.math)
    own = _Own.of(options)
    search = None if level is Superopt.OFF else _search_of(own.believed, options, level)
    if options.cost == Cost.ONNXRUNTIME.value:
        costs = OnnxRuntimeCosts(options.threads)
        made = optimize_for(graph, costs, search, policy, costs.run)
        optimized = made.optimized
        measured = optimized.cost_after / optimized.cost_before if optimized.steps else None
        told = () if search is None else accounts(own.rules, own.doubts, optimized, costs, policy)
        return _Found(optimized, made.validation, measured, time.perf_counter() - begin, told, made.left_out)
    target = Target.parse(options.target)
    limit = options.memory_limit
    wanted = Precision.named(options.precision)
    policies = (policy, limit, level, Checks.named(options.checks))
    given = Options(
        target, options.threads, bounds(options.bounds), False, *policies, alternatives=known(), precision=wanted
    )
    with recorded(settings_of(options).records, target, options.threads, listener) as tuned:
        prepared = prepare(graph, math=Math.STRICT)  # the model that is written has the types of this one
        made = superoptimize(prepared, given, Services(listener=listener, tuned=tuned), search)
    costs = costs_of(made.optimized.before, given)
    told = () if search is None else accounts(own.rules, own.doubts, made.optimized, costs, policy)
    seconds = time.perf_counter() - begin
    return _Found(made.optimized, made.validation, made.measured, seconds, told, made.compiled.left_out)


@dataclass(frozen=True, slots=True)
class _Own:
    """The rules of the user, and why some may not be applied."""

    rules: "tuple[Rule, ...]"
    doubts: Mapping[str, str]

    @staticmethod
    def of(options: argparse.Namespace) -> "_Own":
        """Those of ``--rules``. Raises ``BadInput`` for files that are none, and for two rules of one name."""
        from tilewright.base.store import Store
        from tilewright.passes.rules.given import RuleFile
        from tilewright.superopt.prove.trust import doubts

        files = [RuleFile.read(path) for path in rule_paths(options.rules or ())[0]]
        cache = Store.open(settings_of(options))
        rules = tuple(rule for file in files for rule in file.rules)
        for name, count in Counter(rule.name for rule in rules).items():
            if count > 1:
                raise BadInput(f"--rules: {count} rules are called {name}; give them names of their own")
        return _Own(rules, {name: why for file in files for name, why in doubts(file, cache).items()})

    @property
    def believed(self) -> "tuple[Rule, ...]":
        return tuple(rule for rule in self.rules if rule.name not in self.doubts)


def _search_of(own: "Sequence[Rule]", options: argparse.Namespace, level: Superopt) -> "Search":
    """What was asked for."""
    from tilewright.passes.rules import ALGEBRA, load_rules
    from tilewright.superopt.search.optimization import Search

    usual = Search.at(level, options.memory_limit)
    effort = usual.effort
    limits = replace(
        effort.limits, alpha=options.alpha or effort.limits.alpha, pops=options.budget or effort.limits.pops
    )
    are_added = rule_paths(options.rules or ())[1]
    rules = (*(usual.rules if are_added else load_rules(ALGEBRA)), *own)
    return replace(usual, rules=rules, effort=replace(effort, limits=limits), strategy=Strategy(options.strategy))


def _read(source: "Source", options: argparse.Namespace) -> "tuple[Graph, Kept | None]":
    """The graph, without nodes of operators that nobody defined, and these."""
    from tilewright.frontend.onnx.front_end import OnnxModel
    from tilewright.passes.between import Between

    given = (shapes(options.shapes), bounds(options.bounds))
    graph, kept = source.load_around(*given) if isinstance(source, OnnxModel) else (source.load(*given), None)
    if (found := Between.first(graph)) is not None:
        raise Unsupported(f"only models of one native part can be optimized. {found}")
    return graph, kept


def _as_given(source: "Source", options: argparse.Namespace) -> bytes | None:
    """The user's file, if it is one ONNX file, and was searched without other sizes."""
    from tilewright.frontend.onnx.front_end import OnnxModel

    files, is_searched = source.files(), Superopt.named(options.superopt) is not Superopt.OFF
    is_whole = isinstance(source, OnnxModel) and len(files) == 1 and not (options.shapes or options.bounds)
    return files[0].read_bytes() if is_whole and is_searched else None


@dataclass(frozen=True, slots=True)
class _Others:
    """Operators of the user, and nodes of operators that nobody defined."""

    operators: "Sequence[OnnxOperator]"
    kept: "Kept | None"
    given: bytes | None
    """The user's file, if it may be written again: it has all its weights, and no size was asked for."""


def _write(found: _Found, cost: Cost, policy: Math, path: Path, given: Iterable[Path], others: _Others) -> None:
    """The graph with constants folded; for another runtime, the model as it was if nothing was found."""
    from tilewright.frontend.onnx.read.foreign import installed_operators
    from tilewright.frontend.onnx.write import exporter
    from tilewright.superoptimizer import folded, for_others

    operators = (*others.operators, *installed_operators())
    after = found.optimized.after
    if cost is Cost.ONNXRUNTIME and not found.optimized.steps and others.given is not None:
        with output(path, given) as file:
            file.write(others.given)
        return
    made = folded(after, policy) if cost is Cost.COMPILER else for_others(after)
    exporter.save(made, path, inputs=given, operators=operators, kept=others.kept)


def _json(found: _Found, options: argparse.Namespace) -> dict[str, object]:
    optimized = found.optimized
    return {
        "model": str(options.model),
        "output": None if options.output is None else str(options.output),
        "cost": options.cost,
        "superopt": options.superopt,
        "nodes": {"before": len(optimized.before.nodes), "after": len(optimized.after.nodes)},
        "costs": {"before": optimized.cost_before, "after": optimized.cost_after},
        "rules": dict(Counter(step.rule.name for step in optimized.steps)),
        "given": [{**asdict(account), "fate": account.fate.value} for account in found.given],
        "left_out": [one.to_json() for one in found.left_out],
        "measured": found.measured,
        "validation": str(found.validation),
        "seconds": found.seconds,
    }


def _show(found: _Found, options: argparse.Namespace, console: Console) -> None:
    _show_given(found.given, console)
    if found.left_out:
        told = ", ".join(map(str, found.left_out))
        console.print(f"left out by --math {options.math}: {told}", soft_wrap=True, highlight=False, markup=False)
    optimized = found.optimized
    if not optimized.steps:
        console.print(f"no graph was found that takes less time; {found.seconds:.1f} s")
        return
    from tilewright.passes.rules import floats_of

    table = Table(title="Rules applied")
    table.add_column("rule")
    table.add_column("times", justify="right")
    table.add_column("floats")
    rules = {step.rule.name: step.rule for step in optimized.steps}
    for name, times in Counter(step.rule.name for step in optimized.steps).items():
        table.add_row(name, str(times), floats_of(rules[name]).value)
    console.print(table)
    saved = optimized.cost_after / optimized.cost_before
    lines = [f"estimated time: {saved:.3f} of before" if options.cost == Cost.COMPILER.value else ""]
    lines += [] if found.measured is None else [f"measured time: {found.measured:.3f} of before"]
    lines += [f"checked: {found.validation}", f"{found.seconds:.1f} s"]
    for line in filter(None, lines):
        console.print(line, soft_wrap=True)


def _show_given(given: "Sequence[Account]", console: Console) -> None:
    if not given:
        return
    table = Table(title="Rules given")
    for heading in ("rule", "what became of it", "times", "matches", "best gain", "why"):
        table.add_column(heading, justify="right" if heading in ("times", "matches", "best gain") else "left")
    for one in given:
        gain = "" if one.gain is None else f"{one.gain:.1%}"
        table.add_row(one.rule, one.fate.value, str(one.times), str(one.matches), gain, one.reason)
    console.print(table)
