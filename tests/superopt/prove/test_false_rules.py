"""Rules of an adversary: they look true, and none is accepted, neither by a prover nor by validation."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import BadProgram, NotEquivalent
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops.operator import require
from tilewright.passes.rules import Rule, Term, parse_rules
from tilewright.superopt.evaluate.instances import Instance, sampled
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.generate.counting import graph_of
from tilewright.superopt.prove.egglog_prover import Effort
from tilewright.superopt.prove.proofs import all_axioms, relevant
from tilewright.superopt.prove.verification import Engine, Finding, Verdict, verify_rule
from tilewright.superopt.prove.z3_prover import agrees
from tilewright.superopt.validate.validation import Validation, validate

RULES = parse_rules(Path(__file__).with_name("false.rules").read_text())
UNDECIDED = {
    "groups-side-by-side-of-other-sizes": Verdict.HOLDS,  # at the sizes that are drawn; not provable, see below
    "Exp-of-windows-of-padding": Verdict.UNPROVED,  # no value is finite
    "Sigmoid-of-windows-of-padding": Verdict.UNPROVED,
    "Relu-of-windows-of-padding": Verdict.UNPROVED,
}
"""What evaluation does not refute."""
PARTS = 8


@lru_cache(maxsize=256)
def evaluated(name: str) -> Finding:
    return verify_rule(_rule(name), Engine.FIELD)


def _rule(name: str) -> Rule:
    return next(rule for rule in RULES if rule.name == name)


def test_there_are_many_false_rules() -> None:
    assert len(RULES) >= 100
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("part", range(PARTS))
def test_evaluation_refutes_them(part: int) -> None:
    for rule in RULES[part::PARTS]:
        assert evaluated(rule.name).verdict is UNDECIDED.get(rule.name, Verdict.FALSE), rule.name


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_equality_saturation_proves_none(part: int) -> None:
    """Without evaluation before."""
    for rule in RULES[part::PARTS]:
        assert not _is_proved(rule), rule.name


def _is_proved(rule: Rule) -> bool:
    try:
        return all(all_axioms().proves(version, Effort(rounds=6, terms=10_000)) for version in at_ranks(rule))
    except BadProgram:
        return False


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_evaluation_does_not_refute_is_not_proved(name: str) -> None:
    assert not _is_proved(_rule(name))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_z3_proves_none(part: int) -> None:
    for rule in RULES[part::PARTS]:
        try:
            assert not agrees(rule, relevant(rule, rounds=1), limit=2_000_000), rule.name
        except BadProgram:
            continue


@pytest.mark.parametrize("part", range(PARTS))
def test_validation_accepts_no_graph_made_by_them(part: int) -> None:
    for rule in RULES[part::PARTS]:
        found = evaluated(rule.name).counterexample
        if found is None:
            assert rule.name in UNDECIDED
            continue
        with pytest.raises((NotEquivalent, BadProgram)):
            _validate(rule, found)


def test_validation_refuses_groups_of_other_sizes() -> None:
    """At sizes at which the rule is false, which evaluation did not draw."""
    rule = _rule("groups-side-by-side-of-other-sizes")
    refused = 0
    for instance in sampled(rule, largest=4, seed=3, tries=400):
        sizes = {symbol.name: size for symbol, size in instance.symbols.items()}
        if sizes["o"] != sizes["p"] and (sizes["o"] + sizes["p"]) % 2 == 0 and sizes["g"] == 1:
            try:
                _validate(rule, instance)
            except NotEquivalent:
                refused += 1
            except BadProgram:
                continue
    assert refused


def _validate(rule: Rule, instance: Instance) -> Validation:
    before, after = (_graph(rule, instance, side, name) for side, name in ((rule.sources, "a"), (rule.targets, "b")))
    constants = {value: _random(value) for value in (*before.constants, *after.constants)}
    own = {value: constants[value] for value in after.constants}
    return validate(replace(before, constants=constants), replace(after, constants=own))


def _random(value: Value) -> Array:
    """Numbers that no other constant has, by its name."""
    seed = int.from_bytes(value.name.encode(), "big") % 2**32
    shape = tuple(int(str(extent)) for extent in value.shape)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


IDENTITY = require("Identity")


def _graph(rule: Rule, instance: Instance, side: Sequence[Term], prefix: str) -> Graph:
    """The graph of one side, with all inputs of the rule; its outputs are y0, y1 ..."""
    graph = graph_of(rule, instance, tuple(side))
    both = [*graph_of(rule, instance, rule.sources).inputs, *graph_of(rule, instance, rule.targets).inputs]
    renamed: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        outputs = tuple(replace(value, name=f"{prefix}.{value.name}") for value in node.outputs)
        renamed.update(zip(node.outputs, outputs, strict=True))
        inputs = tuple(value and renamed.get(value, value) for value in node.inputs)
        nodes.append(replace(node, inputs=inputs, outputs=outputs))
    for number, output in enumerate(graph.outputs):
        nodes.append(make_node(IDENTITY, [renamed[output]], [f"y{number}"], {}))
    made = tuple(node.outputs[0] for node in nodes[-len(graph.outputs) :])
    return replace(graph, inputs=tuple(dict.fromkeys(both)), nodes=tuple(nodes), outputs=made)
