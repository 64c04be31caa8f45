"""The zoo's contractions with one channel or one pixel more, against themselves: `python -m benchmarks.odd_shapes`.

Prints the rate of each distinct convolution and matrix product of the zoo's networks, that of the same with one more of
each channel, and with one more pixel (or row) per dimension; then the median of what the odd ones keep of the rate.
Operations are those of the operator's definition. A convolution reads what another one made, as in a network, and
all kernels that belong to it count. One thread; measure on a quiet machine. Needs the zoo's files and the extra
`bench`.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from statistics import median
from typing import TypeAlias

import numpy as np
import onnx

import tilewright
from tilewright.insight.places import calls_of, sources

from .networks import NETWORKS, ZOO
from .operator_models import Parts, assemble
from .options import names
from .work import Shape, run_shapes
from .zoo.samples import load_samples

SECONDS = 0.15
"""Of timing each shape."""
ENTRY = 16
"""Channels of the model's input, from which the convolution before the measured one makes its data."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution at batch 1."""

    inner: int
    outer: int
    size: Shape
    kernel: Shape
    strides: Shape
    pads: Shape
    dilations: Shape
    groups: int

    @property
    def flops(self) -> float:
        """By definition: multiplications by padding count."""
        return 2.0 * self.outer * prod(self._result()) * self.inner // self.groups * prod(self.kernel)

    def odd(self) -> Iterator["Convolution"]:
        """One channel more (or one group of them), then one pixel more."""
        if self.groups == 1:
            yield replace(self, inner=self.inner + 1, outer=self.outer + 1)
        else:
            more = self.groups + 1
            inner, outer = (channels // self.groups * more for channels in (self.inner, self.outer))
            yield replace(self, inner=inner, outer=outer, groups=more)
        if max(self.size) > 1:
            yield replace(self, size=tuple(extent + 1 for extent in self.size))

    def add(self, parts: Parts) -> str:
        """The nodes; the name of the one that is measured."""
        dims = len(self.size)
        entry = parts.weight((self.inner, ENTRY, *[1] * dims), ENTRY)
        data = parts.node("Conv", parts.input(1, ENTRY, *self.size), entry)
        share = self.inner // self.groups
        weight = parts.weight((self.outer, share, *self.kernel), share * prod(self.kernel))
        window = {"strides": self.strides, "pads": self.pads, "dilations": self.dilations}
        made = parts.node("Conv", data, weight, name=MEASURED, group=self.groups, **window)
        return parts.node("GlobalAveragePool", made)

    def _result(self) -> Shape:
        dims = range(len(self.size))
        reach = [self.dilations[d] * (self.kernel[d] - 1) + 1 for d in dims]
        padded = [self.size[d] + self.pads[d] + self.pads[d + len(self.size)] for d in dims]
        return tuple((padded[d] - reach[d]) // self.strides[d] + 1 for d in dims)


@dataclass(frozen=True, slots=True)
class Product:
    """A product of matrices, with a constant second one if ``batch`` is 1."""

    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> float:
        """Two per multiply-add."""
        return 2.0 * self.batch * self.rows * self.inner * self.columns

    def odd(self) -> Iterator["Product"]:
        """One channel more, then one row more."""
        yield replace(self, inner=self.inner + 1, columns=self.columns + 1)
        yield replace(self, rows=self.rows + 1)

    def add(self, parts: Parts) -> str:
        """The nodes; the name of the one that is measured."""
        shape = (self.batch, self.inner, self.columns)
        left = parts.input(*((self.batch,) if self.batch > 1 else ()), self.rows, self.inner)
        right = parts.input(*shape) if self.batch > 1 else parts.weight(shape[1:], self.inner)
        return parts.node("MatMul", left, right, name=MEASURED)


Contraction: TypeAlias = Convolution | Product
MEASURED = "measured"


def contractions(network: str, zoo: Path) -> Iterator[Contraction]:
    """The convolutions and matrix products of a network of the zoo, as often as they are there."""
    model = onnx.load(zoo / f"{network}.onnx")
    weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    shapes = {**run_shapes(model, load_samples(zoo / f"{network}.npz")[0].inputs), **weights}
    for node in model.graph.node:
        if node.op_type == "Conv" and all(name in shapes for name in node.input[:2]):
            yield _convolution(node, shapes)
        elif node.op_type in ("MatMul", "Gemm") and all(name in shapes for name in node.input[:2]):
            yield _product(node, shapes)


def _convolution(node: onnx.NodeProto, shapes: dict[str, Shape]) -> Convolution:
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    source, weight = shapes[node.input[0]], shapes[node.input[1]]
    dims = len(source) - 2

    def numbers(name: str, count: int, default: int) -> Shape:
        return tuple(int(number) for number in attributes.get(name, [default] * count))

    return Convolution(
        source[1],
        weight[0],
        source[2:],
        weight[2:],
        numbers("strides", dims, 1),
        numbers("pads", 2 * dims, 0),
        numbers("dilations", dims, 1),
        int(attributes.get("group", 1)),
    )


def _product(node: onnx.NodeProto, shapes: dict[str, Shape]) -> Product:
    left, right, result = (shapes[name] for name in (node.input[0], node.input[1], node.output[0]))
    inner = right[-1] if result[-1] != right[-1] else right[-2]
    batch = prod(right[:-2])
    return Product(batch, prod(result[:-1]) // batch if batch > 1 else prod(left) // inner, inner, result[-1])


def rate(contraction: Contraction) -> float:
    """GFLOP/s: the shortest of many runs of all kernels that belong to it."""
    parts = Parts(np.random.default_rng(0))
    model, feeds = assemble(parts, contraction.add(parts), "odd")
    compiled = tilewright.compile(model, threads=1).compiled
    own = [any(MEASURED in source for source in sources(call.group)) for call in calls_of(compiled)]
    _, best = compiled.executable.timed_run(feeds)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        _, times = compiled.executable.timed_run(feeds)
        best = list(map(min, best, times))
    return contraction.flops / sum(seconds for seconds, counts in zip(best, own, strict=True) if counts) / 1e9


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each shape, and the medians."""
    options = _options(arguments)
    found = dict.fromkeys(each for network in options.networks for each in contractions(network, options.zoo))
    wanted = [each for each in found if each.flops >= options.least]
    kept: dict[str, list[float]] = {"channel": [], "pixel": []}
    for contraction in wanted[:: options.step]:
        whole = rate(contraction)
        shares = {name: rate(odd) / whole for name, odd in zip(kept, contraction.odd(), strict=False)}
        for name, share in shares.items():
            kept[name].append(share)
        listed = ", ".join(f"one {name} more keeps {share:.0%}" for name, share in shares.items())
        print(f"{whole:6.0f} GFLOP/s, {listed}: {contraction}", flush=True)
    for name, shares in (*kept.items(), ("either", [share for both in kept.values() for share in both])):
        print(f"one {name} more keeps {median(shares):.1%} of the rate (median of {len(shares)})")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.odd_shapes", description="The zoo, one more of each.")
    parser.add_argument("--networks", type=names, default=list(NETWORKS), help=f"default {','.join(NETWORKS)}")
    parser.add_argument("--zoo", type=Path, default=ZOO, help="folder of the zoo, default %(default)s")
    parser.add_argument("--step", type=int, default=1, help="measure every so-many-th shape, default all")
    parser.add_argument(
        "--least", type=float, default=1e6, help="operations of the smallest shape, default %(default)s"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
