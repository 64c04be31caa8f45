"""Rules of an adversary about integers: they look true, and none is accepted, by a prover or by validation."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest

from tilewright.base.dtypes import from_numpy
from tilewright.base.errors import BadProgram, NotEquivalent
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops.operator import require
from tilewright.passes.rules import Rule, Term, parse_rules
from tilewright.passes.rules.terms import Apply, Number, Variable, subterms
from tilewright.superopt.evaluate.evaluator import Bindings
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.prove.axioms import usable
from tilewright.superopt.prove.egglog_prover import Effort
from tilewright.superopt.prove.proofs import all_axioms, relevant
from tilewright.superopt.prove.verification import Engine, Finding, Verdict, verify_rule
from tilewright.superopt.prove.z3_prover import agrees
from tilewright.superopt.validate.validation import validate
from tilewright.symbolic.expr import const

RULES = {rule.name: rule for rule in parse_rules(Path(__file__).with_name("false_integers.rules").read_text())}
PARTS = 7
IDENTITY = require("Identity")


@lru_cache(maxsize=64)
def evaluated(name: str) -> Finding:
    return verify_rule(RULES[name], Engine.FIELD)


def test_there_are_many() -> None:
    assert len(RULES) >= 15


@pytest.mark.parametrize("part", range(PARTS))
def test_evaluation_refutes_them(part: int) -> None:
    for name in list(RULES)[part::PARTS]:
        found = evaluated(name)
        assert found.verdict is Verdict.FALSE, name
        assert found.witness is not None, name


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_equality_saturation_proves_none(part: int) -> None:
    """Without evaluation before."""
    for name in list(RULES)[part::PARTS]:
        assert not _is_proved(RULES[name]), name


def _is_proved(rule: Rule) -> bool:
    names = usable(rule, relevant(rule))
    try:
        return all(
            all_axioms().used(version, Effort(rounds=6, terms=10_000), among=names) is not None
            for version in at_ranks(rule)
        )
    except BadProgram:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_z3_proves_none(part: int) -> None:
    for name in list(RULES)[part::PARTS]:
        try:
            assert not agrees(RULES[name], relevant(RULES[name], rounds=1), limit=2_000_000), name
        except BadProgram:
            continue


@pytest.mark.parametrize("name", RULES)
def test_validation_accepts_no_graph_made_by_them(name: str) -> None:
    """In the types, and with the constants, of the counterexample."""
    found = evaluated(name)
    assert found.witness is not None
    concrete = found.witness.instance.concrete_rule(RULES[name])
    given = {variable.name: variable for variable in concrete.variables}
    arrays = {given[called]: array for called, array in found.witness.values.items()}
    before, after = (
        _graph(concrete, side, prefix, arrays) for side, prefix in ((concrete.sources, "a"), (concrete.targets, "b"))
    )
    with pytest.raises((NotEquivalent, BadProgram)):
        validate(before, after)


def _graph(rule: Rule, side: Sequence[Term], prefix: str, arrays: dict[Variable, Array]) -> Graph:
    """The graph of one side; weights, scales and zero points are constants."""
    values: dict[Term, Value] = {}
    constants: dict[Value, Array] = {}
    nodes: list[Node] = []
    for variable, array in arrays.items():
        value = Value(variable.name, from_numpy(array.dtype), tuple(map(const, array.shape)))
        values[variable] = value
        if variable.is_weight or not array.shape:
            constants[value] = array
    for place, term in enumerate(subterms(side)):
        assert not isinstance(term, Number), "there are none"
        if isinstance(term, Apply):
            operands = [values[operand] for operand in term.operands]
            nodes.append(make_node(term.op, operands, [f"{prefix}{place}"], Bindings({}).attributes(term)))
            values[term] = nodes[-1].outputs[0]
    for place, root in enumerate(side):
        nodes.append(make_node(IDENTITY, [values[root]], [f"y{place}"], {}))
    inputs = tuple(values[variable] for variable in rule.variables if values[variable] not in constants)
    outputs = tuple(node.outputs[0] for node in nodes[-len(side) :])
    return Graph("side", inputs, outputs, tuple(nodes), constants)
