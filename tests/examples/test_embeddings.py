"""The example of an embedding back end: vectors of sentences of any number and length, from one compiled model."""

import numpy as np
import pytest

import tilewright
from examples.embeddings import SENTENCES, Embedder, HashTokenizer, Weights, main, random_weights
from examples.sentence_similarity import reference
from examples.sentence_similarity.model import Config, build_model

CONFIG, WORDS = Config(heads=2), 50


@pytest.fixture(scope="module")
def weights() -> Weights:
    return random_weights(16, 1, WORDS, positions=32)


@pytest.fixture(scope="module")
def embedder(weights: Weights) -> Embedder:
    model = tilewright.compile(build_model(weights, "batch", "sequence", CONFIG), dynamic="symbolic", threads=1)
    return Embedder(model, HashTokenizer(WORDS), longest=32)


@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_vectors_are_those_of_the_reference(embedder: Embedder, weights: Weights, batch_size: int) -> None:
    sentences = ["", "one", *SENTENCES, "word " * 100]
    vectors = embedder.encode(sentences, batch_size=batch_size)
    assert vectors.shape == (7, 16)
    for sentence, vector in zip(sentences, vectors, strict=True):
        ids = np.array([HashTokenizer(WORDS)(sentence)[:32]])
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        expected = reference.embed(weights, feeds, CONFIG.heads, CONFIG.epsilon)
        np.testing.assert_allclose(vector, expected[0], rtol=0, atol=1e-5)


def test_a_single_sentence_and_none(embedder: Embedder) -> None:
    np.testing.assert_allclose(embedder.encode("one"), embedder.encode(["one", SENTENCES[0]])[0], rtol=0, atol=1e-5)
    assert embedder.encode([]).shape == (0, 16)


def test_main_prints_similarities(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    rows = [[float(word) for word in line.split()[:4]] for line in capsys.readouterr().out.splitlines()]
    assert min(rows[0][1], rows[2][3]) > max(rows[0][2], rows[0][3], rows[1][2], rows[1][3])
