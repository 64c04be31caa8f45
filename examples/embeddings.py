"""An embedding back end: sentences in, vectors of length one out, as a model of sentence-transformers gives them.

    embedder = Embedder(tilewright.load("encoder.tw"), HashTokenizer(words=30522))
    vectors = embedder.encode(["one sentence", "and another, longer one"])     # float32, [2, hidden]
    similarities = vectors @ vectors.T

The encoder is one compiled model for all batches and lengths; pooling and normalization are part of it. A tokenizer of
a trained model takes the place of ``HashTokenizer``, which needs no vocabulary. `python -m examples.embeddings` makes
an encoder of random weights: sentences with the same words are similar.
"""

import re
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

import tilewright
from tilewright import RunnableModel

from .sentence_similarity.model import Config, Weights, build_model

Vectors = NDArray[np.float32]
PADDING, BEGIN, FIRST_WORD = 0, 1, 2


class Tokenizer(Protocol):
    """Gives the ids of a sentence's tokens."""

    def __call__(self, sentence: str) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class HashTokenizer:
    """Words and signs, each of which is one of ``words`` ids by its hash; two words may have one id."""

    words: int

    def __call__(self, sentence: str) -> list[int]:
        found = re.findall(r"\w+|[^\w\s]", sentence.lower())
        return [BEGIN, *(FIRST_WORD + zlib.crc32(word.encode()) % (self.words - FIRST_WORD) for word in found)]


class Embedder:
    """An encoder and its tokenizer. ``longest``: tokens of a sentence; what follows is left out."""

    def __init__(self, model: RunnableModel, tokenizer: Tokenizer, longest: int = 256) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._longest = longest

    def encode(self, sentences: str | Sequence[str], batch_size: int = 32) -> Vectors:
        """The vectors of sentences, [sentences, hidden]; of a single one, [hidden].

        Sentences of about the same length share a batch, so that little is padded.
        """
        if isinstance(sentences, str):
            return self.encode([sentences])[0]
        tokens = [self._tokenizer(sentence)[: self._longest] for sentence in sentences]
        order = sorted(range(len(tokens)), key=lambda position: len(tokens[position]))
        vectors = np.empty((len(tokens), self._hidden), np.float32)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            vectors[batch] = self._run([tokens[position] for position in batch])
        return vectors

    @property
    def _hidden(self) -> int:
        size = self._model.outputs[0].shape[1]
        assert isinstance(size, int)
        return size

    def _run(self, tokens: Sequence[Sequence[int]]) -> Vectors:
        ids = np.full((len(tokens), max(map(len, tokens))), PADDING, np.int64)
        for row, sentence in zip(ids, tokens, strict=True):
            row[: len(sentence)] = sentence
        mask = (ids != PADDING).astype(np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return np.asarray(self._model.run(None, feeds)[0], np.float32)


def random_weights(hidden: int, layers: int, words: int, positions: int = 256) -> Weights:
    """Weights of an encoder that was not trained."""
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (words, hidden),
        "embeddings.position_embeddings.weight": (positions, hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in (f"encoder.layer.{number}" for number in range(layers)):
        inside = {f"attention.self.{part}": (hidden, hidden) for part in ("query", "key", "value")}
        inside |= {"attention.output.dense": (hidden, hidden)}
        inside |= {"intermediate.dense": (4 * hidden, hidden), "output.dense": (hidden, 4 * hidden)}
        for name, shape in inside.items():
            shapes |= {f"{layer}.{name}.weight": shape, f"{layer}.{name}.bias": shape[:1]}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    weights = {name: random.normal(0, shape[-1] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    for name in norms:
        weights |= {f"{name}.weight": np.ones(hidden, np.float32), f"{name}.bias": np.zeros(hidden, np.float32)}
    return weights


SENTENCES = (
    "The cat sits on the mat.",
    "On the mat sits the cat!",
    "Prices rose by four percent this year.",
    "This year, prices rose by five percent.",
)


def main() -> int:
    """Compile an encoder of random weights, save it, load it, and compare sentences."""
    words = 1000
    encoder = build_model(random_weights(64, 1, words), "batch", "sequence", Config(heads=4))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "encoder.tw"
        tilewright.compile(encoder).save(path, signed=False)
        embedder = Embedder(tilewright.load(path, trust=True), HashTokenizer(words))
    vectors = embedder.encode(SENTENCES)
    for sentence, row in zip(SENTENCES, vectors @ vectors.T, strict=True):
        print(" ".join(f"{similarity:5.2f}" for similarity in row), "", sentence)
    return 0


if __name__ == "__main__":
    sys.exit(main())
