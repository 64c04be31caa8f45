"""ResNet-18's convolutions C1 to C12, as the paper numbers them, at batch 1 and with nothing that follows them."""

from dataclasses import dataclass

import numpy as np

from tilewright.frontend.onnx.read.importer import load
from tilewright.space.space import Space
from tilewright.target.target import Target
from tilewright.tune import spaces
from tilewright.tune.tasks import tasks

from ..choices import compiled
from ..operator_models import Parts, assemble, convolution

WAY = "direct, in blocks"


@dataclass(frozen=True, slots=True)
class Layer:
    """A square convolution; `kernel // 2` elements are padded at each border."""

    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int


LAYERS = {
    "C1": Layer(224, 3, 64, 7, 2),
    "C2": Layer(56, 64, 64, 3, 1),
    "C3": Layer(56, 64, 64, 1, 1),
    "C4": Layer(56, 64, 128, 3, 2),
    "C5": Layer(56, 64, 128, 1, 2),
    "C6": Layer(28, 128, 128, 3, 1),
    "C7": Layer(28, 128, 256, 3, 2),
    "C8": Layer(28, 128, 256, 1, 2),
    "C9": Layer(14, 256, 256, 3, 1),
    "C10": Layer(14, 256, 512, 3, 2),
    "C11": Layer(14, 256, 512, 1, 2),
    "C12": Layer(7, 512, 512, 3, 1),
}


def space_of(layer: Layer, target: Target) -> Space:
    """The template's space of a direct convolution of what comes in blocks of channels."""
    parts = Parts(np.random.default_rng(0))
    arguments = (layer.size, layer.size, layer.inputs, layer.outputs, layer.kernel, layer.stride, layer.kernel // 2)
    model, _ = assemble(parts, convolution(2)(parts, 1, *arguments), "layer")
    _, choices = compiled(load(model), target)
    (task,) = tasks(choices)
    route = next(route for route in task.routes if route.name == WAY)
    return spaces.space_of(route.kernels[-1], target)
