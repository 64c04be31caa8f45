"""How far outputs are from those of the float model, over all samples."""

import math
from dataclasses import dataclass

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, BadInput
from tilewright.base.names import readable
from tilewright.base.quantization import Metric
from tilewright.graph import Graph, Value
from tilewright.quantization.samples import Samples
from tilewright.quantization.statistics import Run


@dataclass(frozen=True, slots=True)
class Score:
    """The errors of a model. ``l2``: |y - r|_2 / |r|_2 of the worst output; ``top1``: the part of the samples with
    another class, None if the model does not look like a classifier."""

    l2: float
    top1: float | None

    def error(self, metric: Metric) -> float:
        """The error by ``metric``, which is not ``AUTO``."""
        return self.top1 if metric is Metric.TOP1 and self.top1 is not None else self.l2


def metric_for(graph: Graph, asked: Metric) -> Metric:
    """``asked``, or the metric that fits the outputs of ``graph``. Raises ``BadInput`` if it has no classes."""
    is_classifier = scores_of(graph) is not None
    if asked is Metric.TOP1 and not is_classifier:
        shapes = ", ".join(map(repr, graph.outputs))
        raise BadInput(f"metric=top1 needs one output [samples, classes] of floats; there is {shapes}: take l2")
    if asked is not Metric.AUTO:
        return asked
    return Metric.TOP1 if is_classifier else Metric.L2


def scores_of(graph: Graph) -> Value | None:
    """The one output of a classifier."""
    is_one = len(graph.outputs) == 1 and graph.outputs[0].dtype.is_float and len(graph.outputs[0].shape) == 2
    return graph.outputs[0] if is_one else None


class Reference:
    """The outputs of the float model ``run`` for ``samples``, with which others are compared.

    Raises ``BadFeed`` if an output has NaN or infinity.
    """

    def __init__(self, graph: Graph, run: Run, samples: Samples) -> None:
        self._samples = samples
        self._has_classes = scores_of(graph) is not None
        self._outputs = [list(run(batch)) for batch in samples.batches]
        for outputs in self._outputs:
            for value, output in zip(graph.outputs, outputs, strict=True):
                if not np.isfinite(_wide(output)).all():
                    raise BadFeed(f"output {readable(value.name)} of the float model has NaN or infinity")

    def score(self, run: Run) -> Score:
        """The errors of the outputs of ``run`` for the same samples."""
        count = len(self._outputs[0])
        error, norm, others = [0.0] * count, [0.0] * count, 0
        for batch, expected in zip(self._samples.batches, self._outputs, strict=True):
            found = run(batch)
            for position, (ours, reference) in enumerate(zip(found, expected, strict=True)):
                error[position] += float(np.square(_wide(ours) - _wide(reference)).sum())
                norm[position] += float(np.square(_wide(reference)).sum())
            if self._has_classes:
                others += int((found[0].argmax(axis=1) != expected[0].argmax(axis=1)).sum())
        l2 = max(_ratio(*pair) for pair in zip(error, norm, strict=True))
        rows = sum(len(outputs[0]) for outputs in self._outputs)
        return Score(l2, others / rows if self._has_classes and rows else None)


def _wide(array: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return array.astype(np.float64)


def _ratio(error: float, norm: float) -> float:
    return math.sqrt(error / norm) if norm else math.inf if error else 0.0
