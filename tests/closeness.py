"""When results of drawn tests are near enough."""

import numpy as np
from numpy.typing import NDArray


def assert_near(found: NDArray[np.generic], wanted: NDArray[np.generic], tolerance: float) -> None:
    """``found`` differs by at most ``tolerance`` from ``wanted``, in units of its largest element, but at least of 1.

    ``wanted`` is finite: where float32 overflows, right implementations differ (an infinity, NaN, or a large number
    that came another way), so a test must not draw what does.
    """
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert np.isfinite(wanted).all(), "what was drawn overflows, so that it decides nothing: draw smaller values"
    largest = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * largest)
