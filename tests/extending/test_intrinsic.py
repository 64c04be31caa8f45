"""A tensor intrinsic outside of the package: ``word_pairs.py``."""

from pathlib import Path

import numpy as np
import pytest

from tests.extending.word_pairs import product
from tilewright import te
from tilewright.backend.cpu.image import assembly
from tilewright.compilation import build_program
from tilewright.loops.interpreter import interpret
from tilewright.target.target import Target

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs" / "extending.md"
HOST = Target.host()


def test_it_computes_the_product_as_the_interpreter_and_numpy_do() -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(-1 << 15, 1 << 15, shape, dtype=np.int16) for shape in ((8, 12), (12, 32)))
    feeds = {"A": a, "B": np.ascontiguousarray(b.reshape(6, 2, 4, 8).transpose(2, 0, 3, 1))}
    expected = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    program = te.lower(product(8, 32, 12))
    np.testing.assert_array_equal(interpret(program, feeds)["C"], expected)
    if not HOST.has("avx2"):
        pytest.skip("needs avx2")
    np.testing.assert_array_equal(build_program(program, HOST).run(feeds)[0], expected)


def test_it_is_an_instruction() -> None:
    made = assembly(te.lower(product(8, 32, 64)), Target.parse("x86_64,znver3"))
    assert made.count("vpmaddwd") == 8


def test_the_documentation_shows_the_file() -> None:
    assert (HERE / "word_pairs.py").read_text() in DOCS.read_text()
