"""Numerics policies: how far a model's results may be from those of its operators, computed one by one."""

from tilewright.base.choices import Choice


class Math(Choice):
    """A policy for numbers. Whatever it is, results do not depend on the number of threads, nor change from run to run.

    Errors are |y - r|_2 / |r|_2 and max|y - r| / max|r| of an output, against the operators in float64.
    """

    STRICT = "strict"
    """Every sum has the operator's own terms; only their order is the compiler's, and what scales a channel may be
    folded into the weights before it. Infinities and NaN are where the operators have them."""
    DEFAULT = "default"
    """Also algorithms with other terms (Winograd's), whose errors are about ten times as large and stay below 1e-4,
    where they are clearly faster. For finite numbers: an infinity makes its neighbours NaN, too."""
    FAST = "fast"
    """The same algorithms wherever they are estimated to be faster at all. Errors add up over more layers; that they
    stay below 1e-4 is likely, and not promised."""
