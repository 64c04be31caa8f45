"""The images of a batch as one: the same numbers."""

import numpy as np

from benchmarks.joined_images import joined
from tests.closeness import assert_near
from tests.frontend.models import run_onnxruntime


def test_one_large_image_computes_the_same() -> None:
    one = joined(3, 4, 5)
    x = np.random.default_rng(0).standard_normal((3, 4, 5, 5)).astype(np.float32)
    (given,), (rewritten,) = (run_onnxruntime(model, {"x": x}) for model in (one.given, one.rewritten))
    assert_near(rewritten, given, 1e-5)
