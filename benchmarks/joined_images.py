"""The images of a batch as one large image, after Wang et al., "PET" (OSDI 2021): `python -m benchmarks.joined_images`.

Images lie side by side, with a column of zeros after each, so that nothing is to be corrected at the borders between
them (PET computes these anew). Printed are the estimated costs of the convolution of a batch, as multiples of those of
the large image's with all copies.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from tilewright.compilation import Options, prepare
from tilewright.frontend.onnx.read import importer
from tilewright.superoptimizer import costs_of
from tilewright.target.target import Target

from .planted.writer import Network, Planted, planted, weights

SIZES = ((8, 64, 56), (8, 128, 28), (8, 256, 14), (8, 512, 7), (32, 512, 7), (32, 128, 5))
"""Images, their channels, and places along a side."""
TARGETS = ("x86_64,znver4,l1=32K,l2=1M,l3=32M", "x86_64,graniterapids,l1=48K,l2=2M,l3=480M")
PADS = [1, 1, 1, 1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each size."""
    argparse.ArgumentParser(description="Batches of images as one large image, by cost.").parse_args(arguments)
    print("| images | channels | side | Zen 4 | Granite Rapids |\n|---:|---:|---:|---:|---:|", flush=True)
    for images, channels, side in SIZES:
        one = joined(images, channels, side)
        given, rewritten = (prepare(importer.load(model)) for model in (one.given, one.rewritten))
        costs = [costs_of(given, Options(Target.parse(target), 1)) for target in TARGETS]
        gains = (f"{cost.of_graph(given) / cost.of_graph(rewritten):.2f}" for cost in costs)
        print(f"| {images} | {channels} | {side} | {' | '.join(gains)} |", flush=True)


def joined(images: int, channels: int, side: int) -> Planted:
    """A convolution of 3 x 3 of a batch, and of all its images side by side."""
    weight = weights(0, channels, channels, 3, 3)
    given, rewritten = Network("given"), Network("rewritten")
    given.returns(given("Conv", given.input("x", images, channels, side, side), weight, pads=PADS))
    x = rewritten.input("x", images, channels, side, side)
    apart = rewritten("Pad", x, np.array([0, 0, 0, 0, 0, 0, 0, 1], np.int64))
    lined_up = rewritten("Transpose", apart, perm=[1, 2, 0, 3])
    large = rewritten("Reshape", lined_up, np.array([1, channels, side, images * (side + 1)], np.int64))
    made = rewritten("Conv", large, weight, pads=PADS)
    parts = rewritten("Reshape", made, np.array([channels, side, images, side + 1], np.int64))
    begin, end, axis = (np.array([number], np.int64) for number in (0, side, 3))
    rewritten.returns(rewritten("Transpose", rewritten("Slice", parts, begin, end, axis), perm=[2, 0, 1, 3]))
    return planted("images of a batch", "PET", given, rewritten)


if __name__ == "__main__":
    main()
