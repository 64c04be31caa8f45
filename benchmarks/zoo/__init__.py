"""The zoo: seventeen networks as ONNX files, with inputs and float64 reference outputs. Needs torch (extra `bench`).

    python -m benchmarks.zoo [--folder build/zoo] [NAME ...]     writes NAME.onnx and NAME.npz

catalogue.py  the table of networks: how each is built, what it takes; the place to add one
models.py     networks that no library has
libraries.py  torchvision, timm, transformers
scaling.py    random weights with which every layer's output has a standard deviation in [0.1, 10]
export.py     network -> NAME.onnx, NAME.npz
samples.py    NAME.npz: inputs and reference outputs; needs NumPy only
quantized.py  NAME.onnx -> int8/NAME.onnx, the network quantized by ONNX Runtime
census.py     which operators the files hold; needs onnx only

Weights are random and seeded: nothing is fetched, and the same versions of the libraries make the same files. They come
from torch's TorchScript exporter, as most files that people have do: static batch, float32, opset 17 (MiniLM: 13, with
layer norms spelt out). The exporter's rewriting for inference is off, as it folds batch norms into convolutions.
"""

from pathlib import Path


def quantized_path(name: str, folder: Path) -> Path:
    """Where the int8 model of a network of the zoo in `folder` is."""
    return folder / "int8" / f"{name}.onnx"
