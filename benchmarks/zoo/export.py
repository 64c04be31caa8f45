"""Write a network as NAME.onnx, and inputs with float64 reference outputs as NAME.npz."""

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn

from ..accuracy import accuracy
from .catalogue import NETWORKS, Inputs, Network, build, generator
from .samples import Sample, save_samples
from .scaling import check_scale

SAMPLES, NUMBERS = 3, 1000
"""At least so many samples, with so many numbers in their outputs: errors of few numbers are a matter of luck."""
OUTPUT = "output"
MOST_ERROR = 1e-4  # of ONNX Runtime without optimizations, against float64: the file computes what the network does


def export(name: str, folder: Path, batch: int = 1) -> None:
    """Write both files. Raises KeyError for an unknown name, ValueError when file and network disagree."""
    network, module = NETWORKS[name], build(name)
    exact, samples = copy.deepcopy(module).double(), list[Sample]()
    while len(samples) < SAMPLES or sum(y.size for sample in samples for y in sample.outputs.values()) < NUMBERS:
        inputs = network.inputs(generator(len(samples)), batch)
        check_scale(module, inputs)
        samples.append(_sample(exact, network.names, inputs))
    model = folder / f"{name}.onnx"
    _write_model(network, module, network.inputs(generator(0), batch), model)
    for sample in samples:
        _check(model, sample)
    save_samples(folder / f"{name}.npz", samples)


def _write_model(network: Network, module: nn.Module, inputs: Inputs, path: Path) -> None:
    """Export by TorchScript; training mode is "preserved" (it is off) as the exporter folds batch norms otherwise."""
    with torch.no_grad(), _attention_as_operators(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tracing: constants that depend on shapes, which are static here
        torch.onnx.export(
            module,
            inputs,
            path,
            dynamo=False,
            opset_version=network.opset,
            training=torch.onnx.TrainingMode.PRESERVE,
            input_names=list(network.names),
            output_names=[OUTPUT],
        )
    onnx.checker.check_model(str(path), full_check=True)


@contextmanager
def _attention_as_operators() -> Iterator[None]:
    """In evaluation, torch's attention is otherwise one call, for which there is no operator of ONNX."""
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def _sample(exact: nn.Module, names: tuple[str, ...], inputs: Inputs) -> Sample:
    doubles = [values.double() if values.is_floating_point() else values for values in inputs]
    with torch.no_grad():
        output = exact(*doubles)
    arrays = {name: values.numpy() for name, values in zip(names, inputs, strict=True)}
    return Sample(arrays, {OUTPUT: output.numpy()})


def _check(model: Path, sample: Sample) -> None:
    """Raise ValueError when the file, run as it is, is far from the reference."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    error = accuracy(session.run(None, _feeds(session, sample.inputs)), list(sample.outputs.values()))
    if not max(error.norm, error.element) <= MOST_ERROR:
        raise ValueError(f"{model}: ONNX Runtime is off the float64 reference by {error}")


def _feeds(session: onnxruntime.InferenceSession, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {value.name: inputs[value.name] for value in session.get_inputs()}
