"""Write networks of the zoo as int8 models: `python -m benchmarks.zoo.quantized [--folder build/zoo] [NAME ...]`.

`onnxruntime.quantization` makes them, static, after its own pre-processing, with what it recommends for x86 with dot
products: `QuantizeLinear` and `DequantizeLinear` around operators (QDQ), activations in u8, weights in i8 by channel.
Files that exist are kept.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from . import quantized_path
from .catalogue import NETWORKS, Network, generator

FIRST = 2000
"""Number of the first calibration sample: others than those that errors are measured on."""
SAMPLES = 16


class Reader(CalibrationDataReader):
    """Random inputs of a network, one sample at a time."""

    def __init__(self, network: Network) -> None:
        self._feeds = _feeds(network)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next sample; None after the last one."""
        return next(self._feeds, None)


def _feeds(network: Network) -> Iterator[dict[str, np.ndarray]]:
    for index in range(FIRST, FIRST + SAMPLES):
        inputs = network.inputs(generator(index), 1)
        yield {name: values.numpy() for name, values in zip(network.names, inputs, strict=True)}


def write(name: str, folder: Path) -> None:
    """Quantize NAME.onnx of `folder`. Raises KeyError for an unknown name."""
    path = quantized_path(name, folder)
    path.parent.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=path.parent) as temporary:
        prepared, made = Path(temporary) / "prepared.onnx", Path(temporary) / "made.onnx"
        quant_pre_process(folder / f"{name}.onnx", prepared, skip_symbolic_shape=True)
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(prepared, made, Reader(NETWORKS[name]), per_channel=True, **types)
        made.replace(path)


def main() -> None:
    """Write all networks that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo.quantized", description="Write the zoo in int8.")
    parser.add_argument("--folder", type=Path, default=Path("build/zoo"), help="of the zoo, default %(default)s")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default all")
    options = parser.parse_args()
    for name in options.names or NETWORKS:
        if not quantized_path(name, options.folder).exists():
            write(name, options.folder)
            print(f"{name}: written", flush=True)


if __name__ == "__main__":
    main()
