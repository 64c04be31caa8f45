"""One compiled model for all choices: which layers are quantized, and with which numbers, are inputs of each run.

A quantized operand is ``Where(switch, DequantizeLinear(QuantizeLinear(x)), x)``, with the switch, the scale and the
zero point as inputs; weights and biases are inputs, too. So a layer is measured by runs, without compiling a model.
The sums are of floats: results differ from those of the quantized model by rounding only.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.dtypes import boolean, f32
from tilewright.graph import Graph, Value
from tilewright.ops.shapes import static
from tilewright.quantization.insertion import Insertion
from tilewright.quantization.layers import Layer, channels_of, weight_of
from tilewright.quantization.parameters import Form, Parameters
from tilewright.quantization.placement import Operand, Placement, place
from tilewright.quantization.statistics import Build, Run


class Simulation:
    """A graph of fixed shapes, compiled by ``build``, whose ``layers`` can be quantized in each run."""

    def __init__(self, graph: Graph, layers: Sequence[Layer], placement: Placement, form: Form, build: Build) -> None:
        """``placement``: that of all ``layers``."""
        self._graph = graph
        inserting = Insertion(graph)
        self._usual: dict[str, Array] = {}
        """The inputs beside those of the model, with nothing quantized."""
        self._quantizers: dict[Value, tuple[str, str]] = {}
        self._switches: dict[Operand, str] = {}
        self._weights: dict[Value, str] = {}
        self._biases: dict[Value, str] = {}
        self._add_switches(inserting, placement, form)
        for layer in layers:
            self._open(inserting, layer)
        self._run = build(inserting.graph())

    def with_layers(self, chosen: Sequence[Layer], numbers: Parameters) -> Run:
        """The model with the ``chosen`` layers quantized by ``numbers``, as a function."""
        own = {**self._usual, **self._settings(chosen, numbers)}
        return lambda feeds: self._run({**feeds, **own})

    def as_float(self) -> Run:
        """The model with nothing quantized, as a function."""
        return lambda feeds: self._run({**feeds, **self._usual})

    def _settings(self, chosen: Sequence[Layer], numbers: Parameters) -> Mapping[str, Array]:
        found: dict[str, Array] = {}
        for value, (scale, zero) in self._quantizers.items():
            by = numbers.quantizers[value.name]
            found[scale], found[zero] = np.array(by.scale), np.array(by.zero, by.dtype.numpy)
        found.update((self._switches[operand], np.array(True)) for operand in place(self._graph, chosen).readers)
        for layer in chosen:
            if layer.result in self._weights:
                found[self._weights[layer.result]] = numbers.weights[layer.result.name].wide()
            bias = numbers.integer_bias(layer)
            if bias is not None:
                found[self._biases[layer.result]] = bias.wide()
        return found

    def _add_switches(self, inserting: Insertion, placement: Placement, form: Form) -> None:
        rounded = {value: self._round_trip(inserting, value, form) for value in placement.scaled_as}
        producers = self._graph.producers()
        for result, position in placement.readers:
            value = producers[result].inputs[position]
            assert value is not None, "an operand that is missing is not quantized"
            switch = inserting.input("switch", boolean)
            self._switches[result, position] = switch.name
            self._usual[switch.name] = np.array(False)
            chosen = inserting.apply("Where", [switch, rounded[value], value], f"{value.name}.chosen", value)
            inserting.replace((result, position), chosen)

    def _round_trip(self, inserting: Insertion, value: Value, form: Form) -> Value:
        integers = form.activations.dtype
        scale, zero = inserting.input(f"{value.name}.scale", f32), inserting.input(f"{value.name}.zero", integers)
        self._quantizers[value] = scale.name, zero.name
        self._usual[scale.name] = np.array(1.0, np.float32)
        self._usual[zero.name] = np.array(0, integers.numpy)
        codes = inserting.apply("QuantizeLinear", [value, scale, zero], f"{value.name}.quantized", value)
        return inserting.apply("DequantizeLinear", [codes, scale, zero], f"{value.name}.rounded", value)

    def _open(self, inserting: Insertion, layer: Layer) -> None:
        """Make inputs of the weight and the bias of ``layer``."""
        array, value, bias = weight_of(layer, self._graph), layer.weight_value, layer.bias
        if array is None or value is None or layer.weight is None:
            return
        weight = inserting.input(value.name, f32, static(value.shape) or ())
        self._weights[layer.result], self._usual[weight.name] = weight.name, array
        inserting.replace((layer.result, layer.weight), weight)
        if bias is None:
            return
        channels = channels_of(layer, self._graph)
        known = np.zeros(channels, np.float32) if bias.value is None else self._graph.constants[bias.value]
        added = inserting.input(f"{layer.result.name}.bias", f32, known.shape)
        self._biases[layer.result], self._usual[added.name] = added.name, known
        inserting.replace((bias.node.outputs[0], bias.position), added)
