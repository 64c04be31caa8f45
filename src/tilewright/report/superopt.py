"""The page of an optimized graph: applied rules and their proofs, costs, pictures, steps and validation."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from html import escape

from tilewright.base.names import readable
from tilewright.graph import Graph, Node
from tilewright.passes.rules import Rule, floats_of, index_of, print_rule
from tilewright.report.changes import Change, changed, changes
from tilewright.report.graphs import Role, picture
from tilewright.report.page import Section, folded, pictures, table
from tilewright.superopt.search.result import Applied, Optimized
from tilewright.superopt.validate.validation import Validation

WHOLE = 40
"""Maximum nodes of a graph that is drawn as a whole; of larger ones, only changed parts are drawn."""
_LARGEST = 120
"""Maximum nodes of a drawn part."""
_SHOWN = 200
"""Maximum rows of a table."""
_UNFOLDED = 20
"""Maximum rows of a table that is not collapsed."""


def superopt_sections(
    found: Optimized, validation: Validation | None = None, measured: float | None = None, unit: str = "cycles"
) -> list[Section]:
    """An overview, the rules in the order of their first use, the pictures, the steps, and the validation.

    ``measured``: the relative time of the optimized graph, if measured; ``unit``: that of the costs.
    """
    return [
        Section("Overview", _overview(found, validation, measured, unit)),
        Section("Rules", _rules(found.steps)),
        Section("Graphs", _graphs(found.before, found.after)),
        Section("Steps", _steps(found.steps, unit)),
        *([] if validation is None else [Section("Validation", _validation(validation))]),
    ]


def _overview(found: Optimized, validation: Validation | None, measured: float | None, unit: str) -> str:
    gain = f"{found.cost_before / found.cost_after:.3f}" if found.cost_after else ""
    rows = [
        ("operators of a run", *(str(_run_operators(graph)) for graph in (found.before, found.after)), ""),
        (f"cost, {unit}", _cost(found.cost_before), _cost(found.cost_after), gain),
        *([("time, measured", "1", f"{measured:.3f}", f"{1 / measured:.3f}")] if measured else []),
    ]
    checked = "not validated" if validation is None else str(validation)
    return table(("", "before", "after", "gain"), rows) + f"<p>{len(found.steps)} steps; {escape(checked)}.</p>"


def _run_operators(graph: Graph) -> int:
    """The number of operators at run time, without those that compute weights from weights at compile time."""
    weights = index_of(graph).weights
    return sum(node.outputs[0].name not in weights for node in graph.nodes)


def _cost(cost: float) -> str:
    return f"{cost:,.0f}" if cost >= _WHOLE_COST else f"{cost:.6g}"


_WHOLE_COST = 1e4
"""Costs from this on are printed without fractions."""


def _rules(steps: Sequence[Applied]) -> str:
    counts = Counter(step.rule.name for step in steps)
    rules = {step.rule.name: step.rule for step in steps}
    if not rules:
        return '<p class="empty">No rule was applied.</p>'
    return "\n".join(
        f"<h3>{escape(name)}</h3>"
        f"<p>applied {counts[name]} times; {escape(_proof(rule))}; floats: {floats_of(rule).value}</p>"
        f"<pre>{escape(print_rule(replace(rule, proof=None)))}</pre>"
        for name, rule in rules.items()
    )


def _proof(rule: Rule) -> str:
    """The evidence for a rule."""
    proof = rule.proof
    if proof is None:
        return "its file states no proof"
    axioms = f" by {', '.join(proof.axioms)}" if proof.axioms else ""
    shapes = f", and evaluated at {proof.shapes} shapes" if proof.shapes else ""
    return f"{proof.evidence.value}{axioms}{shapes}"


def _steps(steps: Sequence[Applied], unit: str) -> str:
    if not steps:
        return '<p class="empty">None.</p>'
    rows = [
        (
            str(number),
            step.rule.name,
            _names(step.replaced),
            _names(step.made),
            _cost(step.cost_before),
            _cost(step.cost_after),
        )
        for number, step in enumerate(steps[:_SHOWN], 1)
    ]
    told = (
        f"<p>Large graphs are searched in pieces: costs are sums over the operators of a piece, in {escape(unit)}.</p>"
    )
    return told + _listed(("step", "rule", "replaced", "made", "cost before", "cost after"), rows, len(steps), "steps")


def _listed(headings: Sequence[str], rows: Sequence[Sequence[str]], count: int, what: str) -> str:
    """A table of the first ``rows`` of ``count``; a long one is collapsed."""
    more = f"<p>and {count - len(rows)} more.</p>" if count > len(rows) else ""
    shown = table(headings, rows) + more
    return folded(f"{count} {what}", shown) if len(rows) > _UNFOLDED else shown


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(readable, names))


def _legend() -> str:
    return (
        '<p>Operators that <span class="replaced">are replaced</span>, and what <span class="made">is made</span> in '
        "their place; all others stay. Dashed: inputs, constants and values from elsewhere.</p>"
    )


# Pictures


def _graphs(before: Graph, after: Graph) -> str:
    found = changes(before, after)
    if not found:
        return '<p class="empty">Both graphs are the same.</p>'
    if max(len(before.nodes), len(after.nodes)) <= WHOLE:
        return _legend() + pictures(_pair(before, after, before.nodes, after.nodes))
    return _legend() + "\n".join(_part(number, change, before, after) for number, change in enumerate(found, 1))


def _part(number: int, change: Change, before: Graph, after: Graph) -> str:
    """Pictures of a change with the operators around it."""
    heading = f"<h3>Change {number}, at {change.places} {'places' if change.places > 1 else 'place'}</h3>"
    size = max(len(change.replaced), len(change.made))
    if size > _LARGEST:
        return f"{heading}<p>{size} operators are too many to be drawn.</p>"
    nodes = [_with_readers(side, graph) for side, graph in ((change.replaced, before), (change.made, after))]
    return heading + pictures(_pair(before, after, *nodes))


def _with_readers(changed: Sequence[Node], graph: Graph) -> list[Node]:
    """``changed`` and the nodes that read their results, in the order of ``graph``."""
    inside = {node.outputs[0].name for node in changed}
    made = {value.name for node in changed for value in node.outputs}
    return [
        node
        for node in graph.nodes
        if node.outputs[0].name in inside or any(v is not None and v.name in made for v in node.inputs)
    ]


def _pair(before: Graph, after: Graph, old: Sequence[Node], new: Sequence[Node]) -> list[str]:
    """Pictures of changed nodes, before and after."""
    replaced, made = changed(before, after)
    old_roles = {node.outputs[0].name: Role.REPLACED for node in replaced}
    new_roles = {node.outputs[0].name: Role.MADE for node in made}
    return [picture("before", old, old_roles, before.outputs), picture("after", new, new_roles, after.outputs)]


# Validation


def _validation(validation: Validation) -> str:
    rows = [
        (
            readable(one.value),
            str(one.operators),
            "modulo a prime" if one.method.value == "exact" else one.method.value,
            ", ".join(f"{old} as {new}" for old, new in sorted(one.sizes.items()) if old != new) or "its own",
            f"{one.error_bound:.0e}",
        )
        for one in validation.checked[:_SHOWN]
    ]
    headings = ("value", "operators compared", "how", "extents", "probability of an error")
    told = _listed(headings, rows, len(validation.checked), "values") if rows else ""
    undecided = [(readable(name), reason) for name, reason in validation.undecided.items()][:_SHOWN]
    open_ = _listed(("not decided", "why"), undecided, len(validation.undecided), "not decided") if undecided else ""
    return f"<p>{escape(str(validation))}.</p>{told}{open_}"
