"""What became of a model that was quantized: accuracy in all and by layer, and sizes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from tilewright.base.quantization import Method, Metric
from tilewright.insight.console import plain_console
from tilewright.insight.names import plain


@dataclass(frozen=True, slots=True)
class LayerReport:
    """A sum of products: its place in the model, its operator, and whether it is ``quantized``.

    ``l2``: the error of the model's outputs with this layer alone quantized, ``top1``: the part of the samples with
    another class; None if it can't be quantized, and if there are no classes. ``reason``: why it is float.
    """

    layer: str
    operator: str
    quantized: bool
    l2: float | None
    top1: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """The whole. ``l2`` and ``top1``: errors of the quantized model on all samples, against the float model; ``all_l2``
    and ``all_top1``: with every layer quantized; ``bound``: the largest error allowed, by ``metric``.

    ``method``: the method of ranges that was taken; ``bias_correction`` and ``weight_range``: whether these lowered the
    error, and so were used. ``bytes_before`` and ``bytes_after``: of all weights.
    """

    metric: Metric
    bound: float
    samples: int
    l2: float
    top1: float | None
    all_l2: float
    all_top1: float | None
    method: Method
    bias_correction: bool
    weight_range: bool
    layers: tuple[LayerReport, ...]
    bytes_before: int
    bytes_after: int

    @property
    def quantized(self) -> int:
        """How many layers are quantized."""
        return sum(layer.quantized for layer in self.layers)

    def to_json(self) -> dict[str, object]:
        """All fields, as JSON values."""
        return {**asdict(self), "metric": self.metric.value, "method": self.method.value}

    def show(self, console: Console | None = None) -> None:
        """Print it."""
        target = console or plain_console()
        target.print(_table(self.layers))
        for line in self._lines():
            target.print(line, soft_wrap=True)

    def _lines(self) -> Sequence[str]:
        used = [self.method.value]
        used += ["bias correction"] if self.bias_correction else []
        used += ["ranges of weights with the smallest error"] if self.weight_range else []
        bound = f"bound: {self.metric.value} {self.bound:.2%}"
        return (
            f"{self.quantized} of {len(self.layers)} layers are quantized ({', '.join(used)})",
            f"error on {self.samples} samples: {_told(self.l2, self.top1)}; {bound}",
            f"with all layers quantized: {_told(self.all_l2, self.all_top1)}",
            f"weights: {self.bytes_before} bytes before, {self.bytes_after} after",
        )


def _told(l2: float, top1: float | None) -> str:
    return f"l2 {l2:.2%}" + ("" if top1 is None else f", top1 {top1:.2%}")


def _table(layers: Sequence[LayerReport]) -> Table:
    classes = any(layer.top1 is not None for layer in layers)
    table = Table(title="Error of the outputs with one layer quantized")
    for heading in ("layer", "operator", "l2", *(["top1"] if classes else []), "stays float because"):
        table.add_column(heading, justify="right" if heading in ("l2", "top1") else "left")
    for layer in layers:
        errors = [layer.l2, *([layer.top1] if classes else [])]
        cells = ("" if error is None else f"{error:.2%}" for error in errors)
        table.add_row(plain(layer.layer), layer.operator, *cells, layer.reason)
    return table
