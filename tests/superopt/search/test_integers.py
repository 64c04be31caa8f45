"""Rules about integers: they hold bit by bit, stay as exact as they say, and are found in quantized graphs."""

import numpy as np
import onnx
import pytest

import tilewright
from benchmarks.planted.quantized import (
    PLANTED,
    chain_of_integers,
    joined_integer_filters,
    last_row_of_product,
    pool_of_dequantized,
)
from benchmarks.planted.writer import Maker
from tests.frontend.exact_bytes import saturates
from tests.frontend.models import run_onnxruntime
from tilewright.base.arrays import has_same_bits, random_integers
from tilewright.base.dtypes import from_numpy
from tilewright.passes.rules import INTEGERS, Evidence, Floats, Rule, floats_of, load_rules, parse_rules, print_rule
from tilewright.superopt.evaluate.instances import try_rule
from tilewright.superopt.prove.proofs import replays
from tilewright.superopt.prove.z3_prover import agrees

RULES = load_rules(INTEGERS)
PARTS = 6
FEW = [rule for rule in RULES if rule.name in ("maxima-of-bytes-2d", "rows-of-integer-product", "bytes-joined.-2")]


def test_of_integers_they_are_exact() -> None:
    others = {rule.name for rule in RULES if floats_of(rule) is not Floats.EXACT}
    assert all("quantized-product" in name or "quantized-points" in name for name in others), others
    assert len(RULES) - len(others) >= 40


def test_they_print_and_parse() -> None:
    for rule in RULES:
        assert parse_rules(print_rule(rule)) == [rule]


@pytest.mark.parametrize("rule", FEW, ids=lambda rule: rule.name)
def test_some_hold_and_are_proved(rule: Rule) -> None:
    see_that_it_holds(rule, shapes=2)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_hold_and_are_proved_by_both_provers(part: int) -> None:
    for rule in RULES[part::PARTS]:
        see_that_it_holds(rule, shapes=4)


def see_that_it_holds(rule: Rule, shapes: int) -> None:
    trial = try_rule(rule, shapes=shapes)
    assert trial.holds, (rule.name, trial.counterexample)
    assert rule.proof is not None
    assert rule.proof.evidence is Evidence.PROVED
    assert replays(rule, rule.proof.axioms), rule.name
    assert agrees(rule, rule.proof.axioms), rule.name


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    random, found = np.random.default_rng(0), dict[str, np.ndarray]()
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = from_numpy(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        found[value.name] = random_integers(dtype, [extent.dim_value for extent in kind.shape.dim], random)
    return found


@pytest.mark.parametrize(
    ("maker", "rule"),
    [
        (pool_of_dequantized, "maxima-of-bytes-2d"),
        (last_row_of_product, "rows-of-integer-product-unshifted"),
        (joined_integer_filters, "integer-filters-joined-unshifted"),
        (chain_of_integers, "product-from-the-right"),
    ],
    ids=lambda one: "" if isinstance(one, str) else one.__name__,
)
def test_strict_finds_them_and_results_are_those_of_onnxruntime(maker: Maker, rule: str) -> None:
    model = maker().given
    found = tilewright.compile(model, superopt="fast", math="strict", threads=1)
    assert rule in {row.rule for row in found.explain().rules}
    assert all(row.floats == "exact" for row in found.explain().rules)
    assert rule not in {one.rule for one in found.explain().left_out}
    feeds = feeds_of(model)
    if saturates():
        feeds = {name: given // 2 if given.dtype == np.uint8 else given for name, given in feeds.items()}
    for ours, theirs in zip(found.run(None, feeds), run_onnxruntime(model, feeds), strict=True):
        assert has_same_bits(np.asarray(ours), np.asarray(theirs))


def test_planted_graphs_compute_the_same() -> None:
    for maker in PLANTED:
        one = maker()
        feeds = feeds_of(one.given)
        pairs = zip(run_onnxruntime(one.given, feeds), run_onnxruntime(one.rewritten, feeds), strict=True)
        assert all(has_same_bits(np.asarray(old), np.asarray(new)) for old, new in pairs), one.name


def test_a_scale_that_is_negative_keeps_its_place() -> None:
    """The largest byte is the smallest number then: the rule about scales does not match."""
    model = pool_of_dequantized().given
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(onnx.numpy_helper.from_array(-array, tensor.name))
    found = tilewright.compile(model, superopt="fast", threads=1)
    assert found.explain().rules == ()
    feeds = feeds_of(model)
    (ours,), (theirs,) = found.run(None, feeds), run_onnxruntime(model, feeds)
    assert has_same_bits(np.asarray(ours), np.asarray(theirs))
