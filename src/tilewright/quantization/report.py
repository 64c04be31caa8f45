"""What became of a model that was quantized: accuracy in all and by layer, and sizes."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from rich.console import Console
from rich.table import Table

from tilewright.base.quantization import Method, Metric
from tilewright.insight.console import plain_console
from tilewright.insight.names import plain
from tilewright.quantization.speed import Times


@dataclass(frozen=True, slots=True)
class LayerReport:
    """A sum of products: its place in the model, its operator, and whether it is ``quantized``.

    ``l2``: the error of the model's outputs with this layer alone quantized, ``top1``: the part of the samples with
    another class; None if it can't be quantized, and if there are no classes. ``reason``: why it is float.
    ``us_before`` and ``us_after``: microseconds of its kernels; None if they were not measured.
    """

    layer: str
    operator: str
    quantized: bool
    l2: float | None
    top1: float | None
    reason: str
    us_before: float | None = None
    us_after: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The whole. ``l2`` and ``top1``: errors of the quantized model on all samples, against the float model; ``all_l2``
    and ``all_top1``: with every layer quantized; ``bound``: the largest error allowed, by ``metric``.

    ``method``: the method of ranges that was taken; ``bias_correction`` and ``weight_range``: whether these lowered the
    error, and so were used. ``bytes_before`` and ``bytes_after``: of all weights. ``us_before`` and ``us_after``:
    microseconds of a run on the first batch; None if they were not measured.
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
    us_before: float | None = None
    us_after: float | None = None

    def timed(self, before: Times, after: Times) -> "Report":
        """The report with these times."""
        layers = tuple(
            replace(layer, us_before=before.layers.get(layer.layer), us_after=after.layers.get(layer.layer))
            for layer in self.layers
        )
        return replace(self, layers=layers, us_before=before.whole, us_after=after.whole)

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

    def _lines(self) -> Iterator[str]:
        used = [self.method.value]
        used += ["bias correction"] if self.bias_correction else []
        used += ["ranges of weights with the smallest error"] if self.weight_range else []
        yield f"{self.quantized} of {len(self.layers)} layers are quantized ({', '.join(used)})"
        bound = f"bound: {self.metric.value} {self.bound:.2%}"
        yield f"error on {self.samples} samples: {_told(self.l2, self.top1)}; {bound}"
        yield f"with all layers quantized: {_told(self.all_l2, self.all_top1)}"
        yield f"weights: {self.bytes_before} bytes before, {self.bytes_after} after"
        if self.us_before is not None and self.us_after is not None:
            yield f"a run: {self.us_before:.1f} us before, {self.us_after:.1f} us after"


def _told(l2: float, top1: float | None) -> str:
    return f"l2 {l2:.2%}" + ("" if top1 is None else f", top1 {top1:.2%}")


def _table(layers: Sequence[LayerReport]) -> Table:
    has_classes = any(layer.top1 is not None for layer in layers)
    has_times = any(layer.us_before is not None for layer in layers)
    table = Table(title="Error of the outputs with one layer quantized")
    table.add_column("layer")
    table.add_column("operator")
    numbers = ["l2", *(["top1"] if has_classes else []), *(["us before", "us after"] if has_times else [])]
    for heading in numbers:
        table.add_column(heading, justify="right")
    table.add_column("stays float because")
    for layer in layers:
        errors = [layer.l2, *([layer.top1] if has_classes else [])]
        times = [layer.us_before, layer.us_after] if has_times else []
        cells = [*("" if n is None else f"{n:.2%}" for n in errors), *("" if n is None else f"{n:.1f}" for n in times)]
        table.add_row(plain(layer.layer), layer.operator, *cells, layer.reason)
    return table
