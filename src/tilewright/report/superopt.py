"""The page of an optimized graph: what was applied and why it holds, what it costs, how it was checked, pictures."""

from collections import Counter
from collections.abc import Sequence
from html import escape

from tilewright.base.names import readable
from tilewright.graph import Graph, Node
from tilewright.passes.rules import Rule, print_rule
from tilewright.report.changes import Change, changed, changes
from tilewright.report.graphs import Role, picture
from tilewright.report.page import Section, pictures, table
from tilewright.superopt.result import Applied, Optimized
from tilewright.superopt.validation import Validation

WHOLE = 40
"""Graphs of up to so many nodes are drawn whole; of larger ones, what has changed."""
_LARGEST = 120
"""Nodes of a part that is still drawn."""
_SHOWN = 200
"""Rows of a table."""


def superopt_sections(found: Optimized, validation: Validation | None = None) -> list[Section]:
    """An overview, the rules in the order of their first use, the steps, the pictures, and the validation."""
    return [
        Section("Overview", _overview(found, validation)),
        Section("Rules", _rules(found.steps)),
        Section("Steps", _steps(found.steps)),
        Section("Graphs", _legend() + _graphs(found.before, found.after)),
        *([] if validation is None else [Section("Validation", _validation(validation))]),
    ]


def _overview(found: Optimized, validation: Validation | None) -> str:
    gain = f"{found.cost_before / found.cost_after:.3f}" if found.cost_after else ""
    rows = [
        ("operators", str(len(found.before.nodes)), str(len(found.after.nodes)), ""),
        ("cost", f"{found.cost_before:.6g}", f"{found.cost_after:.6g}", gain),
    ]
    checked = "not validated" if validation is None else str(validation)
    return table(("", "before", "after", "gain"), rows) + f"<p>{len(found.steps)} steps; {escape(checked)}.</p>"


def _rules(steps: Sequence[Applied]) -> str:
    counts = Counter(step.rule.name for step in steps)
    rules = {step.rule.name: step.rule for step in steps}
    if not rules:
        return '<p class="empty">No rule was applied.</p>'
    return "\n".join(
        f"<h3>{escape(name)}</h3><p>applied {counts[name]} times; {escape(_proof(rule))}</p>"
        f"<pre>{escape(print_rule(rule))}</pre>"
        for name, rule in rules.items()
    )


def _proof(rule: Rule) -> str:
    """Why a rule is believed."""
    proof = rule.proof
    if proof is None:
        return "its file states no proof"
    axioms = f" by {', '.join(proof.axioms)}" if proof.axioms else ""
    shapes = f", and evaluated at {proof.shapes} shapes" if proof.shapes else ""
    return f"{proof.evidence.value}{axioms}{shapes}"


def _steps(steps: Sequence[Applied]) -> str:
    rows = [
        (
            str(number),
            step.rule.name,
            _names(step.replaced),
            _names(step.made),
            f"{step.cost_before:.6g}",
            f"{step.cost_after:.6g}",
        )
        for number, step in enumerate(steps[:_SHOWN], 1)
    ]
    more = f"<p>and {len(steps) - _SHOWN} more.</p>" if len(steps) > _SHOWN else ""
    return table(("step", "rule", "replaced", "made", "cost before", "after"), rows) + more


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
        return pictures(_pair(before, after, before.nodes, after.nodes))
    return "\n".join(_part(number, change, before, after) for number, change in enumerate(found, 1))


def _part(number: int, change: Change, before: Graph, after: Graph) -> str:
    """A change with the operators around it."""
    heading = f"<h3>Change {number}, at {change.places} {'places' if change.places > 1 else 'place'}</h3>"
    size = max(len(change.replaced), len(change.made))
    if size > _LARGEST:
        return f"{heading}<p>{size} operators are too many to be drawn.</p>"
    nodes = [_with_readers(side, graph) for side, graph in ((change.replaced, before), (change.made, after))]
    return heading + pictures(_pair(before, after, *nodes))


def _with_readers(changed: Sequence[Node], graph: Graph) -> list[Node]:
    """``changed``, and the nodes that read what they make, in the order of ``graph``."""
    inside = {node.outputs[0].name for node in changed}
    made = {value.name for node in changed for value in node.outputs}
    return [
        node
        for node in graph.nodes
        if node.outputs[0].name in inside or any(v is not None and v.name in made for v in node.inputs)
    ]


def _pair(before: Graph, after: Graph, old: Sequence[Node], new: Sequence[Node]) -> list[str]:
    """Pictures of nodes of both graphs."""
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
    told = table(("value", "operators compared", "how", "extents", "probability of an error"), rows)
    undecided = [(readable(name), reason) for name, reason in validation.undecided.items()]
    open_ = table(("not decided", "why"), undecided) if undecided else ""
    return f"<p>{escape(str(validation))}.</p>{told}{open_}"
