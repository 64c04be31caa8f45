"""Options of quantization: how ranges are chosen, how accuracy is measured, and the type of activations."""

from tilewright.base.choices import Choice
from tilewright.base.dtypes import DType, i8, u8


class Method(Choice):
    """How the range of an activation follows from its values on the calibration data."""

    AUTO = "auto"
    """That of the others with the smallest error of the model's outputs on the calibration data."""
    MINMAX = "minmax"
    """From the smallest to the largest value."""
    PERCENTILE = "percentile"
    """Without the most extreme values: 0.005 % on each side."""
    ENTROPY = "entropy"
    """The range with the smallest divergence of the distribution that is left (Migacz, "8-bit inference with
    TensorRT", GTC 2017)."""


class Metric(Choice):
    """How far the quantized model is from the float model, on the calibration data."""

    AUTO = "auto"
    """``TOP1`` for a model whose one output is float ``[samples, classes]``, else ``L2``."""
    L2 = "l2"
    """``|y - r|_2 / |r|_2`` over all samples; of several outputs, the largest."""
    TOP1 = "top1"
    """The part of the samples for which another class has the largest score."""


class Activations(Choice):
    """The integer type of activations."""

    U8 = "u8"
    """With a zero point: ranges need not be symmetric."""
    I8 = "i8"
    """With a zero point of 0: ranges are symmetric."""

    @property
    def dtype(self) -> DType:
        """The element type."""
        return {Activations.U8: u8, Activations.I8: i8}[self]
