"""Random graphs: no wrong number, no error, no crash; and the harness itself, on faults that are planted."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.random_graphs import shards
from tests.random_graphs.__main__ import REGRESSIONS
from tests.random_graphs.case import Case, Node, from_json, to_json
from tests.random_graphs.coverage import LEFT_OUT, NO_KERNEL
from tests.random_graphs.generator import OPSETS, SMALL, Growing, generate
from tests.random_graphs.minimize import minimize
from tests.random_graphs.reference import evaluate
from tests.random_graphs.rules import RULES
from tests.random_graphs.verdict import Kind, compare, judge
from tilewright.frontend.onnx.read.rules import RULES as KNOWN

QUICK = 30
"""Graphs that every run has; the rest of the small ones are slow, as the large ones are."""
SHARD = 30
SLOW_SHARD = 500
SLOW = 20_000
UNDECIDED = 0.02
UNSUPPORTED = 0.05


@pytest.mark.parametrize("first", range(0, QUICK, SHARD))
def test_no_graph_is_wrong(first: int) -> None:
    _check(range(first, first + SHARD))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, SMALL + SLOW, SLOW_SHARD))
def test_none_of_many_graphs_is_wrong(first: int) -> None:
    _check(range(first, first + SLOW_SHARD))


def _check(seeds: range) -> None:
    verdicts = dict(shards.run(seeds))
    failed = [f"python -m tests.random_graphs {s}  # {v}" for s, v in verdicts.items() if v.kind.is_failure]
    assert not failed, "\n".join(failed)
    counts = Counter(verdict.kind for verdict in verdicts.values())
    odd = "\n".join(f"{seed} {verdict}" for seed, verdict in verdicts.items() if verdict.kind is not Kind.RIGHT)
    assert counts.total() == len(seeds)
    assert counts[Kind.UNDECIDED] <= UNDECIDED * len(seeds), odd
    assert counts[Kind.UNSUPPORTED] <= UNSUPPORTED * len(seeds), odd


@pytest.mark.share(2)
@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("*.json")), ids=lambda path: path.stem)
def test_what_failed_once(path: Path) -> None:
    case = from_json(path.read_text())
    for checked in (False, True):
        verdict = judge(replace(case, checked=checked))
        assert verdict.kind is Kind.RIGHT, verdict


# Reach


def test_every_rule_of_the_importer_is_reached() -> None:
    missing = KNOWN.keys() - RULES.keys() - LEFT_OUT.keys()
    assert not missing, f"no rule of generation for {sorted(missing)}; write one, or say in coverage.py why not"
    assert not LEFT_OUT.keys() & RULES.keys()
    assert (LEFT_OUT.keys() | NO_KERNEL.keys()) <= KNOWN.keys()


@pytest.mark.parametrize("op_type", sorted((RULES.keys() & KNOWN.keys()) - NO_KERNEL.keys()))
def test_every_operator_can_be_drawn(op_type: str) -> None:
    refused: Counter[str] = Counter()
    for position in range(150):
        opset = sorted(set(OPSETS), reverse=True)[position % len(set(OPSETS))]
        growing = Growing(np.random.default_rng(position), opset)
        if growing.can_draw(op_type) and growing.attempt(op_type):
            return
        refused += growing.refused
    pytest.fail(f"{op_type} is never drawn: {refused}")


# The harness


def test_a_seed_is_one_case() -> None:
    for seed in (0, 1, 2, SMALL, SMALL + 1):
        case = generate(seed)
        assert to_json(generate(seed)) == to_json(case)
        assert to_json(from_json(to_json(case))) == to_json(case)


def _sum_case() -> Case:
    x, y = np.float32([1, 2, 3]), np.float32([0.5, np.inf, 4])
    nodes = (
        Node("Add", ("x", "y"), ("a",)),
        Node("Exp", ("x",), ("b",)),
        Node("Mul", ("a", "b"), ("c",)),
        Node("Neg", ("c",), ("d",)),
    )
    return Case("sum", 21, nodes, {"x": x}, {"y": y}, {}, ("d", "a"))


def test_verdicts() -> None:
    case = _sum_case()
    estimates = evaluate(case)
    right = [estimates[name].exact.astype(np.float32) for name in case.outputs]
    near = [right[0] * np.float32(1 + 1e-6), right[1]]
    wrong = [right[0] * np.float32(1 + 1e-4), right[1]]
    finite = [right[0], np.float32([1.5, 9.0, 7.0])]
    assert judge(case).kind is Kind.RIGHT
    assert compare(case.outputs, right, right, estimates).kind is Kind.RIGHT
    assert compare(case.outputs, near, right, estimates).kind is Kind.RIGHT
    assert compare(case.outputs, wrong, right, estimates).kind is Kind.WRONG
    assert compare(case.outputs, finite, right, estimates).kind is Kind.WRONG
    assert compare(case.outputs, right, wrong, estimates).kind is Kind.RIGHT
    assert compare(case.outputs, wrong, wrong, estimates).kind is Kind.RIGHT
    assert compare(case.outputs, wrong, near[::-1], estimates).kind is Kind.UNDECIDED
    wide = [array.astype(np.float64) for array in right]
    assert compare(case.outputs, wide, right, estimates).kind is Kind.WRONG


def _quantized_case() -> Case:
    """Of five elements, the second is not defined, nor what follows from it; the largest of them is."""
    nodes = (
        Node("QuantizeLinear", ("x", "s", "z"), ("q",)),
        Node("DequantizeLinear", ("q", "s", "z"), ("y",)),
        Node("Neg", ("y",), ("n",)),
        Node("ReduceMax", ("y",), ("m",), {"keepdims": 0}),
        Node("DynamicQuantizeLinear", ("x",), ("d", "e", "f")),
    )
    x = np.float32([1.5, np.nan, -2.5, np.inf, -np.inf])
    parameters = {"s": np.float32(0.25), "z": np.int8(3)}
    return Case("quantized", 21, nodes, {"x": x}, {}, parameters, ("q", "n", "m", "d", "e", "f"))


def test_nan_as_an_integer_hides_nothing_else() -> None:
    case = _quantized_case()
    estimates = evaluate(case)
    for name in ("q", "y", "n"):
        assert estimates[name].undefined().tolist() == [False, True, False, False, False]
    np.testing.assert_array_equal(estimates["q"].exact[[0, 2, 3, 4]], [9, -7, 127, -128])
    assert estimates["d"].undefined().all() and estimates["f"].undefined().all()
    assert not estimates["e"].undefined().any()
    assert not estimates["m"].undefined().any()
    assert judge(case).kind is Kind.RIGHT
    right = [estimates[name].exact.astype(estimates[name].dtype) for name in case.outputs]
    for place in range(5):
        for output in range(2):
            found = [array.copy() for array in right]
            found[output][place] = 5
            expected = Kind.RIGHT if place == 1 else Kind.WRONG
            assert compare(case.outputs, found, right, estimates).kind is expected


def test_minimizing_keeps_what_fails() -> None:
    small = minimize(_sum_case(), lambda case: any(node.op_type == "Mul" for node in case.nodes))
    assert [node.op_type for node in small.nodes] == ["Mul"]
    assert judge(small).kind is Kind.RIGHT


CRASHES_AT_3 = """
import os, sys
for seed in sys.argv[1:]:
    print("at", seed, "Tilewright", flush=True)
    if seed == "3":
        os.abort()
    print("is", seed, "right", flush=True)
"""
HANGS = "import sys, time; print('at', sys.argv[1], 'reference', flush=True); time.sleep(60)"


def test_a_crash_is_charged_to_its_seed() -> None:
    found = dict(shards.run(range(2, 6), [sys.executable, "-c", CRASHES_AT_3]))
    assert {seed: verdict.kind for seed, verdict in found.items()} == {
        2: Kind.RIGHT,
        3: Kind.CRASH,
        4: Kind.RIGHT,
        5: Kind.RIGHT,
    }
    assert found[3].text.startswith("Tilewright: exit -6")


def test_a_hang_is_charged_to_its_seed() -> None:
    found = dict(shards.run([7], [sys.executable, "-c", HANGS], patience=3.0))
    assert found[7].kind is Kind.HANG
    assert found[7].text == "reference"
