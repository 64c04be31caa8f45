"""Operators of classical models and of training, against brute force and ONNX's reference."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

import tilewright
from tests.frontend.models import model, run_onnxruntime, single_node
from tilewright.base.errors import IndexOutOfRange, InvalidModel, UnsupportedModel
from tilewright.base.settings import Settings

Array = NDArray[np.generic]
CHECKED = Settings(cache_dir=None, repro_dir=None, bounds_check=True)
GENERATOR = np.random.default_rng(3)
POOL = {1: [(2,), (5,), (3,)], 2: [(5, 5), (2, 3), (3, 1), (1, 1)], 3: [(1, 2, 3), (5, 1, 1)]}
"""N-grams by length."""


def grams(**changes: object) -> dict[str, object]:
    starts = itertools.accumulate((len(POOL[n]) * n for n in (1, 2)), initial=0)
    return {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": 3,
        "max_skip_count": 2,
        "ngram_counts": [*starts],
        "ngram_indexes": [*range(9)],
        "pool_int64s": [number for n in POOL for gram in POOL[n] for number in gram],
        **changes,
    }


def counted(row: Sequence[int], shortest: int, longest: int, skips: int) -> Counter[tuple[int, ...]]:
    """All n-grams at all places and distances."""
    found = Counter[tuple[int, ...]]()
    for length in range(shortest, longest + 1):
        for distance in range(1, 2 if length == 1 else skips + 2):
            last = len(row) - (length - 1) * distance
            found.update(tuple(row[at + k * distance] for k in range(length)) for at in range(last))
    return found


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        pytest.param((4, 9), {}, marks=pytest.mark.slow),
        pytest.param((13,), {"mode": "IDF", "weights": np.linspace(0.5, 2, 9).tolist()}, marks=pytest.mark.slow),
        ((3, 8), {"mode": "TFIDF", "min_gram_length": 2, "weights": np.linspace(0.5, 2, 9).tolist()}),
        pytest.param(
            (2, 7),
            {"max_gram_length": 2, "max_skip_count": 0, "ngram_indexes": [4, 0, 10, 1, 2, 3, 7, 5, 6]},
            marks=pytest.mark.slow,
        ),
        pytest.param((2, 2), {"mode": "IDF"}, marks=pytest.mark.slow),
    ],
)
def test_counts_of_ngrams(shape: tuple[int, ...], changes: Mapping[str, object]) -> None:
    given = grams(**changes)
    x = GENERATOR.choice([1, 2, 3, 5], shape).astype(np.int64)
    proto = single_node("TfIdfVectorizer", {"x": x}, opset=9, **given)
    (found,) = tilewright.compile(proto, threads=1, settings=CHECKED).run(None, {"x": x})
    pool = [gram for n in POOL for gram in POOL[n]]
    columns = given["ngram_indexes"]
    assert isinstance(columns, list)
    expected = np.zeros((*shape[:-1], max(columns) + 1), np.float32)
    limits = tuple(int(str(given[name])) for name in ("min_gram_length", "max_gram_length", "max_skip_count"))
    weights = given.get("weights", [1.0] * 9)
    assert isinstance(weights, list)
    for row, result in zip(x.reshape(-1, shape[-1]), expected.reshape(-1, expected.shape[-1]), strict=True):
        counts = counted(row.tolist(), *limits)
        for gram, column, weight in zip(pool, columns, weights, strict=True):
            count = counts[gram]
            result[column] = {"TF": count, "IDF": weight * (count > 0), "TFIDF": weight * count}[str(given["mode"])]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(found, run_onnxruntime(proto, {"x": x})[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"ngram_indexes": [0] * 9}, UnsupportedModel, "several n-grams in one column"),
        ({"ngram_counts": [0, 3, 12]}, InvalidModel, "do not divide 17 numbers"),
        ({"mode": "IDF", "weights": [1.0] * 9, "ngram_indexes": [*range(8, -1, -1)]}, UnsupportedModel, "the order of"),
        ({"pool_strings": ["a"]}, UnsupportedModel, "n-grams of text"),
    ],
)
def test_ngrams_that_are_refused(changes: Mapping[str, object], kind: type[Exception], text: str) -> None:
    proto = single_node("TfIdfVectorizer", {"x": np.zeros(5, np.int64)}, opset=9, **grams(**changes))
    with pytest.raises(kind, match=rf"node n \(TfIdfVectorizer\): .*{text}"):
        tilewright.compile(proto)


def of_domain(domain: str, op: str, inputs: Mapping[str, Array], outputs: int, **attributes: object) -> onnx.ModelProto:
    results = [f"y{position}" for position in range(outputs)]
    node = helper.make_node(op, [*inputs], results, name="n", domain=domain, **attributes)
    made = model([node], inputs, results, opset=18)
    made.opset_import.append(helper.make_opsetid(domain, 1))
    return made


def f(*shape: int) -> Array:
    return GENERATOR.random(shape).astype(np.float32)


@pytest.mark.slow  # the node tests have a step of each
@pytest.mark.parametrize("steps", [0, 1, 1000])
@pytest.mark.parametrize(
    ("op", "kinds", "attributes"),
    [
        ("Adagrad", 3, {"norm_coefficient": 0.1, "decay_factor": 0.3}),
        ("Adam", 4, {"norm_coefficient": 0.1, "norm_coefficient_post": 0.2}),
        ("Momentum", 3, {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.7, "mode": "standard"}),
        ("Momentum", 3, {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.7, "mode": "nesterov"}),
    ],
)
def test_steps_of_training(op: str, kinds: int, attributes: Mapping[str, object], steps: int) -> None:
    """Of two tensors of different shapes; the first step differs, and many steps keep their digits."""
    inputs = {"r": np.array(0.05, np.float32), "t": np.array(steps)}
    inputs |= {f"x{kind}{which}": f(*shape) for kind in range(kinds) for which, shape in enumerate([(3,), (2, 4)])}
    proto = of_domain("ai.onnx.preview.training", op, inputs, 2 * (kinds - 1), **attributes)
    found = tilewright.compile(proto, threads=1, settings=CHECKED).run(None, inputs)
    expected = ReferenceEvaluator(proto).run(None, inputs)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_tensors_that_are_no_groups() -> None:
    inputs = {"r": np.array(0.05, np.float32), "t": np.array(1), "x": f(3), "g": f(3)}
    with pytest.raises(InvalidModel, match=r"node n \(Adam\): 2 tensors are not 4 for each"):
        tilewright.compile(of_domain("ai.onnx.preview.training", "Adam", inputs, 3))


@pytest.mark.parametrize("shape", [(6,), pytest.param((3, 6), marks=pytest.mark.slow)])
def test_columns_and_limits(shape: tuple[int, ...]) -> None:
    x, chosen = f(*shape), np.array([[4, 0, 0]])
    for op, inputs, attributes in (
        ("ArrayFeatureExtractor", {"x": x, "i": chosen}, {}),
        ("Binarizer", {"x": x}, {"threshold": 0.5}),
    ):
        proto = of_domain("ai.onnx.ml", op, inputs, 1, **attributes)
        made = tilewright.compile(proto, threads=1, settings=CHECKED)
        np.testing.assert_array_equal(made.run(None, inputs)[0], run_onnxruntime(proto, inputs)[0])
    whole = np.array([-3, -2, 2, 3])
    proto = of_domain("ai.onnx.ml", "Binarizer", {"x": whole}, 1, threshold=-2.5)
    assert tilewright.compile(proto, threads=1, settings=CHECKED).run(None, {"x": whole})[0].tolist() == [0, 1, 1, 1]
    with pytest.raises(UnsupportedModel, match=r"the threshold 1\.0\d*e\+30 is beyond all i64"):
        tilewright.compile(of_domain("ai.onnx.ml", "Binarizer", {"x": whole}, 1, threshold=1e30))
    extractor = of_domain("ai.onnx.ml", "ArrayFeatureExtractor", {"x": x, "i": chosen}, 1)
    with pytest.raises(IndexOutOfRange):
        tilewright.compile(extractor, threads=1, settings=CHECKED).run(None, {"x": x, "i": chosen + 2})
