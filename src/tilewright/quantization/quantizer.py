"""``quantize``: a float model to a quantized one, within a bound of accuracy.

1. The model is imported, constants and batch normalizations are folded.
2. The float model runs on the calibration data: distributions of activations.
3. Scales, zero points and integers follow; the best recipe is the one with the smallest error of the outputs.
4. Each layer is measured alone. Beginning with the most sensitive one, layers stay float until the bound holds.
5. The result is compiled, and its error measured on all data.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.errors import BadInput, Unsupported
from tilewright.base.events import Listener, ignore, step
from tilewright.base.memory import memory_guarded
from tilewright.base.names import shown
from tilewright.base.quantization import Activations, Method, Metric
from tilewright.base.settings import Settings
from tilewright.base.store import Store
from tilewright.compilation import Compiled, Options, Services
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read.foreign import OnnxOperator, installed_operators
from tilewright.frontend.onnx.write import exporter
from tilewright.frontend.opening import opened
from tilewright.graph import Graph
from tilewright.passes.between import Between
from tilewright.passes.normalize import normalize
from tilewright.passes.rules import ALGEBRA, load_rules, rewrite
from tilewright.quantization.accuracy import Reference, Score, metric_for
from tilewright.quantization.insertion import quantized
from tilewright.quantization.layers import Layer, Layers, find_layers
from tilewright.quantization.parameters import Form, Parameters, Recipe, parameters
from tilewright.quantization.placement import place
from tilewright.quantization.ranges import RANGES
from tilewright.quantization.report import LayerReport, Report
from tilewright.quantization.samples import Samples, checked_samples, read_samples
from tilewright.quantization.search import FEW, Bounded, Found, Measuring
from tilewright.quantization.simulation import Simulation
from tilewright.quantization.sizes import for_sizes
from tilewright.quantization.speed import times_of
from tilewright.quantization.statistics import Run, collect
from tilewright.runtime.abi import MAX_THREADS
from tilewright.target.target import Target

USUAL_BOUNDS: Mapping[Metric, float] = {Metric.L2: 0.05, Metric.TOP1: 0.01}
"""The bounds of errors if none is given."""
_INTEGERS = frozenset({"QuantizeLinear", "DequantizeLinear", "MatMulInteger", "ConvInteger", "Requantize"})
"""Operators of models that are quantized already."""


@dataclass(frozen=True, slots=True)
class QuantizedModel:
    """A quantized model: its ``graph``, and a ``report`` of its accuracy."""

    graph: Graph
    report: Report
    files: tuple[Path, ...]
    """The files of the float model, which ``save`` does not overwrite."""
    operators: tuple[OnnxOperator, ...] = ()

    @checked(BadInput)
    def save(self, path: FilePath) -> None:
        """Write a standard ONNX model. Raises ``BadInput`` if the file can't be written."""
        exporter.save(self.graph, Path(path), inputs=self.files, operators=self.operators)


@checked(BadInput)
@memory_guarded("the model was quantized")
def quantize(
    model: object,
    data: FilePath | Mapping[str, object],
    *,
    accuracy: Annotated[float, Within(0.0, 1.0)] | None = None,
    metric: Metric | str = Metric.AUTO,
    method: Method | str = Method.AUTO,
    activations: Activations | str = Activations.U8,
    bias_correction: bool = True,
    weight_range: bool = True,
    power_of_two: bool = False,
    speed: bool = False,
    shapes: Mapping[str, Iterable[int | str]] | None = None,
    threads: Annotated[int, Within(1, MAX_THREADS)] | None = None,
    operators: Sequence[OnnxOperator] = (),
    settings: Settings | None = None,
    listener: Listener = ignore,
) -> QuantizedModel:
    """Quantize the convolutions and products of matrices of a model: int8 weights by channel, 8-bit activations.

    ``data``: calibration data, an ``.npz`` file or arrays by the names of inputs, with samples along the first
    dimension, or stacks of whole feeds. ``accuracy``: the largest error allowed on them, by ``metric`` (``base.
    quantization``); by default 0.01 for ``top1`` and 0.05 for ``l2``. Layers that hurt stay float. ``method``: how
    ranges of activations are chosen; ``activations``: their type. ``bias_correction`` and ``weight_range`` (the search
    for ranges of weights with the smallest squared error) are used where they lower the error. ``power_of_two``: all
    scales are powers of two. ``speed``: report the time of each layer before and after, too. ``shapes``, ``threads``,
    ``operators``, ``settings``, ``listener``: as for ``compile``; open dimensions stay open, and take the sizes of the
    data while they are measured.

    Raises ``BadFeed`` for data that do not fit the model, or with which it computes NaN; ``BadInput`` for a model
    without a layer to quantize, and for one that is quantized already; ``UnsupportedModel`` for a node that ONNX can't
    express; and what ``compile`` raises.
    """
    chosen = settings or Settings.from_environment()
    asked = _Asked(Metric.named(metric), accuracy, Method.named(method), bias_correction, weight_range)
    form = Form(Activations.named(activations), power_of_two)
    source = opened(model, (), operators, "quantize")
    arrays = data if isinstance(data, Mapping) else read_samples(Path(data))
    graph = source.load({name: tuple(shape) for name, shape in (shapes or {}).items()}, {}, chosen.model_bytes)
    if (found := Between.first(graph)) is not None:
        raise Unsupported(f"a model in stages can't be quantized. {found}")
    samples = checked_samples(graph.inputs, arrays)
    graph, layers = _prepared(graph)
    known = (*operators, *installed_operators())
    exporter.export(graph, known)  # refuses what can't be written before anything is measured
    compiling = _compiler(chosen, threads, listener)
    made, report = _Quantizing(graph, layers, samples, asked, form, compiling, listener).result(timed=speed)
    return QuantizedModel(made, report, source.files(), known)


@dataclass(frozen=True, slots=True)
class _Asked:
    metric: Metric
    bound: float | None
    method: Method
    correct: bool
    search: bool

    @property
    def methods(self) -> Sequence[Method]:
        return list(RANGES) if self.method is Method.AUTO else [self.method]


def _prepared(graph: Graph) -> tuple[Graph, Layers]:
    """The graph with constants and batch normalizations folded, and its layers. Raises ``BadInput``."""
    known = next((node for node in graph.nodes if node.op.name in _INTEGERS), None)
    if known is not None:
        raise BadInput(f"the model is quantized already ({shown(known.source or known.op.name)}); give the float model")
    graph = rewrite(normalize(graph), load_rules(ALGEBRA))
    layers = find_layers(graph)
    if not layers.found:
        why = "; ".join(f"{one.name}: {one.reason}" for one in layers.refused) or "there are none"
        raise BadInput(f"the model has no convolution or product of matrices that can be quantized ({why})")
    return graph, layers


_Compiling = Callable[[Graph], Compiled]


def _compiler(settings: Settings, threads: int | None, listener: Listener) -> _Compiling:
    """Compiles graphs for this machine."""
    options = Options(Target.host(settings, listener), settings.num_threads if threads is None else threads)
    services = Services(cache=Store.open(settings, listener))
    return lambda graph: compile_graph(graph, options, services)


@dataclass(frozen=True, slots=True)
class _Quantizing:
    """The whole way for a prepared graph."""

    graph: Graph
    layers: Layers
    samples: Samples
    asked: _Asked
    form: Form
    compiling: _Compiling
    listener: Listener

    def build(self, graph: Graph) -> Run:
        """A function that runs ``graph``."""
        return self.compiling(graph).executable.run

    def result(self, *, timed: bool) -> tuple[Graph, Report]:
        """The quantized graph, and the report, with times if it is to be ``timed``."""
        fixed = for_sizes(self.graph, self.samples.sizes)
        layers = find_layers(fixed).found
        placement = place(fixed, layers)
        with step(self.listener, "calibration"):
            statistics = collect(fixed, layers, placement.scaled_as.values(), self.samples, self.build)
            simulation = Simulation(fixed, layers, placement, self.form, self.build)

        def numbers_of(recipe: Recipe) -> Parameters:
            return parameters(fixed, layers, placement, statistics, recipe, self.form)

        few = Reference(fixed, simulation.as_float(), self.samples.first(FEW))
        measuring = Measuring(layers, simulation, few)
        allowed = Recipe(self.asked.methods[0], self.asked.search, self.asked.correct)
        with step(self.listener, "sensitivity"):
            best = measuring.best_recipe(self.asked.methods, allowed, numbers_of)
            scores = measuring.sensitivities(best.numbers, self.listener)
        whole = Reference(fixed, simulation.as_float(), self.samples)
        metric, bound = self._bound()
        bounded = Bounded(fixed, replace(measuring, reference=whole), best.numbers, scores, metric, bound, self.build)
        with step(self.listener, "search"):
            found = bounded.result()
        chosen = [layer for position, layer in enumerate(self.layers.found) if position in found.kept]
        made = quantized(self.graph, chosen, place(self.graph, chosen), best.numbers)
        report = self._report(made, best.recipe, scores, found, (metric, bound))
        return made, self._timed(report, fixed, for_sizes(made, self.samples.sizes)) if timed else report

    def _bound(self) -> tuple[Metric, float]:
        metric = metric_for(self.graph, self.asked.metric)
        return metric, USUAL_BOUNDS[metric] if self.asked.bound is None else self.asked.bound

    def _report(
        self, made: Graph, recipe: Recipe, scores: Sequence[Score], found: Found, bound: tuple[Metric, float]
    ) -> Report:
        wide = (
            f"it is one of the {len(scores) - len(found.kept)} with the largest errors, without which the bound holds"
        )
        rows = [
            _row(layer, score, "" if position in found.kept else wide)
            for position, (layer, score) in enumerate(zip(self.layers.found, scores, strict=True))
        ]
        rows += [LayerReport(one.name, one.operator, False, None, None, one.reason) for one in self.layers.refused]
        return Report(
            *bound,
            self.samples.count,
            found.score.l2,
            found.score.top1,
            found.all_layers.l2,
            found.all_layers.top1,
            recipe.method,
            recipe.correct,
            recipe.search,
            tuple(rows),
            _weight_bytes(self.graph),
            _weight_bytes(made),
        )

    def _timed(self, report: Report, before: Graph, after: Graph) -> Report:
        names, feeds = {layer.layer for layer in report.layers}, self.samples.batches[0]
        return report.timed(*(times_of(self.compiling(graph), feeds, names) for graph in (before, after)))


def _row(layer: Layer, score: Score, reason: str) -> LayerReport:
    return LayerReport(layer.name, layer.node.op.name, not reason, score.l2, score.top1, reason)


def _weight_bytes(graph: Graph) -> int:
    """Bytes of the constants that nodes read."""
    read = {value for node in graph.nodes for value in node.inputs}
    return sum(array.nbytes for value, array in graph.constants.items() if value in read)
