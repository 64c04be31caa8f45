"""A small MiniLM through import, normalization and fusion, against ONNX Runtime and float64."""

import numpy as np
import pytest

from examples.sentence_similarity import reference
from examples.sentence_similarity.model import Config, Weights, build_model
from tests.frontend.models import run_onnxruntime
from tilewright.frontend.onnx.read import importer
from tilewright.graph import evaluate_graph, verify
from tilewright.passes import fuse, normalize

HIDDEN, INNER, LAYERS, WORDS, POSITIONS = 32, 64, 2, 50, 24
CONFIG = Config(heads=4, epsilon=1e-12)


@pytest.fixture(scope="module")
def weights() -> Weights:
    return make_weights()


def make_weights() -> Weights:
    random = np.random.default_rng(7)
    shapes = {"word": WORDS, "position": POSITIONS, "token_type": 2}
    made = {f"embeddings.{kind}_embeddings.weight": random.normal(size=(n, HIDDEN)) for kind, n in shapes.items()}
    norms = ["embeddings"]
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}"
        linear = {f"attention.self.{part}": (HIDDEN, HIDDEN) for part in ("query", "key", "value")}
        linear |= {"attention.output.dense": (HIDDEN, HIDDEN)}
        linear |= {"intermediate.dense": (INNER, HIDDEN), "output.dense": (HIDDEN, INNER)}
        for name, shape in linear.items():
            made[f"{prefix}.{name}.weight"] = random.normal(0, shape[1] ** -0.5, shape)
            made[f"{prefix}.{name}.bias"] = random.normal(0, 0.2, shape[0])
        norms += [f"{prefix}.attention.output", f"{prefix}.output"]
    for name in norms:
        made[f"{name}.LayerNorm.weight"] = random.uniform(0.7, 1.3, HIDDEN)
        made[f"{name}.LayerNorm.bias"] = random.normal(0, 0.2, HIDDEN)
    return {name: value.astype(np.float32) for name, value in made.items()}


def make_feeds(batch: int, sequence: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    mask = np.arange(sequence) < sequence - np.arange(batch)[:, None]
    return {
        "input_ids": random.integers(0, WORDS, (batch, sequence)),
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": random.integers(0, 2, (batch, sequence)),
    }


@pytest.mark.parametrize(
    ("dimensions", "shapes", "runs"),
    [
        ((3, 8), None, [(3, 8)]),
        (("batch", "sequence"), {"input_ids": (2, 6)}, [(2, 6)]),
        (("batch", 8), None, [(1, 8), (4, 8)]),
        (("batch", "sequence"), None, [(1, 1), (2, 7), (3, POSITIONS)]),
    ],
)
def test_minilm(weights: Weights, dimensions: tuple, shapes: dict | None, runs: list[tuple[int, int]]) -> None:
    proto = build_model(weights, *dimensions, CONFIG)
    graph = importer.load(proto, shapes)
    normal = normalize(graph)
    verify(graph)
    verify(normal)
    for batch, sequence in runs:
        feeds = make_feeds(batch, sequence)
        expected = reference.embed(weights, feeds, CONFIG.heads, CONFIG.epsilon)
        (theirs,) = run_onnxruntime(proto, feeds)
        for each in (graph, normal):
            (ours,) = evaluate_graph(each, feeds)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)


def test_kernels(weights: Weights) -> None:
    """Bias, residual and GELU are epilogues; views have no kernel."""
    groups = [group.name for group in fuse(normalize(importer.load(build_model(weights, 3, 8, CONFIG))))]
    layer = [
        *["matmul_add"] * 3,
        "matmul_div_add",
        "softmax",
        "matmul",
        "matmul_add_add",
        "layernormalization",
        "matmul_add_div_erf_add_mul_mul",
        "matmul_add_add",
    ]
    before = ["gather_gather_add_add", "layernormalization", "cast_sub_mul"]
    after = ["cast", "layernormalization_mul", "reducesum_clip", "reducesum_div", "reducel2_clip", "div"]
    assert sorted(groups) == sorted([*before, *layer, "layernormalization", *layer, *after])


def test_the_table_of_positions_limits_a_sequence_known_at_run_time(weights: Weights) -> None:
    graph = importer.load(build_model(weights, "batch", "sequence", CONFIG))
    assert {v.given: most for v, most in graph.bounds.items()} == {"sequence": POSITIONS}
