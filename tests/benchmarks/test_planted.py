"""Planted graphs: each pair computes the same, and the search finds what a person does."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from benchmarks.planted.__main__ import ENOUGH, MAKERS, main
from benchmarks.planted.convolutions import training_form
from benchmarks.planted.measures import estimated
from benchmarks.planted.writer import Maker, Planted
from tests.closeness import assert_near
from tests.frontend.models import run_onnxruntime
from tilewright.base.arrays import random_array, random_integers
from tilewright.base.dtypes import from_numpy
from tilewright.base.superopt import Superopt
from tilewright.compilation import Options
from tilewright.superopt.search.optimization import Search
from tilewright.target.target import Target

OPTIONS = Options(Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M,cores=2"), 1)
QUICK = ("pool_after_points", "chain_of_products", "sigmoid_before_maximum", "linear_attention", "pool_of_dequantized")


def _name(maker: Maker) -> str:
    return maker.__name__


def _feeds(one: Planted) -> Mapping[str, np.ndarray]:
    return {value.name: _drawn(value.type.tensor_type) for value in one.given.graph.input}


def _drawn(kind: onnx.TypeProto.Tensor) -> np.ndarray:
    random, dtype = np.random.default_rng(0), from_numpy(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    shape = [extent.dim_value for extent in kind.shape.dim]
    return random_integers(dtype, shape, random) if dtype.is_int else random_array(dtype, shape, random)


@pytest.mark.parametrize("maker", MAKERS, ids=_name)
def test_a_rewrite_computes_the_same(maker: Maker) -> None:
    one = maker()
    feeds = dict(_feeds(one))
    given, rewritten = (run_onnxruntime(model, feeds) for model in (one.given, one.rewritten))
    assert len(given) == len(rewritten) > 0
    for old, new in zip(given, rewritten, strict=True):
        if new.dtype == np.float32:
            assert_near(new, old, 1e-5)
        else:
            np.testing.assert_array_equal(new, old)


def test_names_differ() -> None:
    assert len({maker.__name__ for maker in MAKERS}) == len(MAKERS) == 29


def _found(maker: Maker) -> None:
    gains = estimated(maker(), OPTIONS, Search.at(Superopt.MAX))
    assert gains.share >= ENOUGH, gains


@pytest.mark.parametrize("maker", [maker for maker in MAKERS if maker.__name__ in QUICK], ids=_name)
def test_what_is_planted_is_found(maker: Maker) -> None:
    _found(maker)


def test_the_branches_of_a_block_become_one_filter() -> None:
    """Also the one that has no filter: an image that is scaled and shifted."""
    gains = estimated(training_form(), OPTIONS, Search.at(Superopt.MAX))
    assert "filters-and-shifted-itself" in gains.rules
    assert gains.share >= 0.99, gains


@pytest.mark.slow
@pytest.mark.parametrize("maker", MAKERS, ids=_name)
def test_all_that_is_planted_is_found(maker: Maker) -> None:
    _found(maker)


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--estimate", "pool-after-points"])
    told = capsys.readouterr().out
    assert "| global pool after 1x1 | STENSO |" in told
    assert "mean-before-points-with-bias-2d" in told
    assert "1 of 1 have at least 0.9 of it" in told
