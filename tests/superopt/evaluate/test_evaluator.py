"""Terms over a domain: what their names stand for."""

import numpy as np
import pytest

from tilewright.base.errors import BadProgram
from tilewright.passes.rules import parse_rules
from tilewright.superopt.evaluate.evaluator import Bindings, Evaluator
from tilewright.symbolic.expr import Symbol
from tilewright.tensor.domains import PRIME, Modular


def test_terms_with_symbols() -> None:
    (rule,) = parse_rules(
        "rule merge\n  for x[m, k], v[k, n], w[k, p]\n  let t = MatMul(x, Concat(v, w, axis=1))\n"
        "  from MatMul(x, v); MatMul(x, w)\n"
        "  to Slice(t, axes=(1,), starts=(0,), ends=(n,)); Slice(t, axes=(1,), starts=(n,), ends=(n + p,))"
    )
    domain = Modular(5)
    evaluator = Evaluator(domain)
    values = {
        name: domain.random((*shape, 2), i)
        for i, (name, shape) in enumerate({"x": (2, 3), "v": (3, 4), "w": (3, 1)}.items())
    }
    bindings = Bindings(values, {Symbol(name): value for name, value in {"m": 2, "k": 3, "n": 4, "p": 1}.items()})
    for source, target in zip(rule.sources, rule.targets, strict=True):
        assert domain.agree(evaluator.term(source, bindings), evaluator.term(target, bindings))
    assert not domain.agree(evaluator.term(rule.sources[0], bindings), evaluator.term(rule.targets[1], bindings))
    with pytest.raises(BadProgram, match="not bound"):
        evaluator.term(rule.targets[0], Bindings(values))
    with pytest.raises(BadProgram, match="variable x"):
        evaluator.term(rule.sources[0], Bindings({}))


def test_attributes_that_are_not_written() -> None:
    (rule,) = parse_rules(
        "rule r\n  for x[n, c, h], w[d, c, k]\n  from Conv(x, w, **rest)\n  to Conv(x, Mul(w, 2.0), **rest)"
    )
    domain = Modular()
    values = {"x": domain.random((1, 2, 4, 2), 0), "w": domain.random((2, 1, 3, 2), 1)}
    evaluator = Evaluator(domain)
    bindings = Bindings(values, {}, {"rest": {"group": 2, "pads": (1, 1)}})
    left, right = (evaluator.term(t, bindings) for t in (rule.sources[0], rule.targets[0]))
    assert np.array_equal(left * np.uint64(2) % np.uint64(PRIME), right)
    with pytest.raises(BadProgram, match=r"\*\*rest"):
        evaluator.term(rule.sources[0], Bindings(values))
