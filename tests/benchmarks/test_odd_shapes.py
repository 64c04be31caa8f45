"""Odd shapes: what one more of each is, and that the measured kernels are those of the contraction."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import odd_shapes
from benchmarks.odd_shapes import Convolution, Product
from benchmarks.operator_models import Parts, assemble
from benchmarks.work import run_shapes, work_of
from benchmarks.zoo.samples import Sample, save_samples

PLAIN = Convolution(16, 32, (9, 8), (3, 3), (2, 1), (1, 1, 0, 1), (1, 2), 1)
DEPTHWISE = Convolution(24, 48, (6, 6), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 24)


def test_one_more_of_each() -> None:
    channel, pixel = PLAIN.odd()
    assert channel == replace(PLAIN, inner=17, outer=33)
    assert pixel == replace(PLAIN, size=(10, 9))
    assert next(DEPTHWISE.odd()) == replace(DEPTHWISE, inner=25, outer=50, groups=25)
    assert list(Product(1, 4, 8, 16).odd()) == [Product(1, 4, 9, 17), Product(1, 5, 8, 16)]


@pytest.mark.parametrize("contraction", [PLAIN, DEPTHWISE, Product(1, 4, 8, 16), Product(3, 4, 8, 16)])
def test_operations_are_those_of_the_definition(contraction: Convolution | Product) -> None:
    parts = Parts(np.random.default_rng(0))
    model, feeds = assemble(parts, contraction.add(parts), "odd")
    entry = 0.0
    if isinstance(contraction, Convolution):
        entry = 2.0 * odd_shapes.ENTRY * contraction.inner * np.prod(contraction.size)
    assert contraction.flops == work_of(model, run_shapes(model, feeds)).flops - entry


def test_the_contractions_of_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(np.random.default_rng(0))
    model, feeds = assemble(parts, PLAIN.add(parts), "net")
    onnx.save(model, tmp_path / "net.onnx")
    save_samples(tmp_path / "net.npz", [Sample(feeds, {})])
    _, measured = odd_shapes.contractions("net", tmp_path)
    assert measured == PLAIN
    monkeypatch.setattr(odd_shapes, "SECONDS", 0.0)
    assert 0 < odd_shapes.rate(measured) < float("inf")
