"""Numerics policies bound the difference of a model's results from those of its operators; precisions of values."""

from tilewright.base.choices import Choice


class Math(Choice):
    """A numerics policy. With each of them, results are independent of the number of threads, and equal in each run.

    Errors are |y - r|_2 / |r|_2 and max|y - r| / max|r| of an output, against the operators in float64.
    """

    STRICT = "strict"
    """Every sum has the operator's own terms; the compiler may change their order, and fold scales of channels into the
    weights. Infinities and NaN appear where the operators have them."""
    CAREFUL = "careful"
    """As ``strict``, but models in 16 bits are computed in f32, and rules of a search may add in another order and
    round elsewhere. No intermediate value is new, so that none overflows that the operators do not have."""
    DEFAULT = "default"
    """Also algorithms with other terms (Winograd's), with about ten times larger errors that stay below 1e-4, where
    they are clearly faster. For finite inputs: an infinity makes its neighbours NaN, too."""
    FAST = "fast"
    """The same algorithms wherever they are estimated to be faster. Errors add up over more layers: likely below 1e-4,
    but without guarantee."""

    @property
    def keeps_terms(self) -> bool:
        """Whether every sum has the operator's own terms."""
        return self in (Math.STRICT, Math.CAREFUL)


class Precision(Choice):
    """The precision of a model in f32: in what type values pass from one kernel to another.

    Inputs, outputs, sums, normalizations and softmax stay in f32 with each of them.
    """

    FP32 = "fp32"
    BF16 = "bf16"
    """Values and weights are rounded to bfloat16 (8 bits of precision, the exponents of f32), and multiplied by its dot
    products where the processor has them."""
    F16 = "f16"
    """Values are stored in float16 (11 bits of precision, at most 65504), and products are of f32."""
