"""The accelerator's roofline, with and without latency hiding: `python -m benchmarks.vta [--config osdi] [--bus 8]`.

For each convolution of ResNet-18 but the first (batch 1, C2 to C11 as VTA numbers them), and all of them: operations
per byte of the program, the roof (the peak of the matrix unit, or what device memory allows at these bytes) and what
the cycle simulator gives with one and two virtual threads, in GOPS at the configuration's clock, where a multiply-add
is two operations; and the share of cycles in which the matrix unit multiplied. Each program is compiled with the
analytic choice (`backend/vta/schedules/`), checked for hazards, and run on random numbers; its result is compared with
NumPy's. `--trials N` prints instead what the tuner finds among N schedules of each layer, of the template, of
sketches (`--space sketches`) or both.
Nothing is timed: cycles are those of a model, whose constants are in `backend/vta/cycles.py`. `--rtl FILE` writes the
configuration's hardware as Verilog instead. `--left` tells in which cycles nothing is multiplied, and why
(`vta_left.py`). `--model FILE` takes the layers of a quantized model, beside the CPU (`vta_model.py`).
"""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from tilewright import te
from tilewright.backend.vta.config import PRESETS, Config
from tilewright.backend.vta.convolution import (
    Convolution,
    Tiling,
    chosen_tiling,
    convolution_program,
    loop_program,
)
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.packing import packed_data, packed_filters, unpacked_result
from tilewright.backend.vta.runtime import Runtime
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.base.search import Spaces
from tilewright.tune.accelerator import tune_accelerator

from . import vta_left


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution of square images and filters: pixels on a side, channels, filters; padding keeps the size."""

    size: int
    channels: int
    filters: int
    kernel: int
    stride: int

    def blocked(self, config: Config) -> Convolution:
        """The convolution of whole blocks."""
        return Convolution(
            self.size,
            self.size,
            -(-self.channels // config.block_in),
            -(-self.filters // config.block_out),
            self.kernel,
            self.stride,
            self.kernel // 2,
        )


LAYERS = {
    "C2": Layer(56, 64, 64, 3, 1),
    "C3": Layer(56, 64, 128, 3, 2),
    "C4": Layer(56, 64, 128, 1, 2),
    "C5": Layer(28, 128, 128, 3, 1),
    "C6": Layer(28, 128, 256, 3, 2),
    "C7": Layer(28, 128, 256, 1, 2),
    "C8": Layer(14, 256, 256, 3, 1),
    "C9": Layer(14, 256, 512, 3, 2),
    "C10": Layer(14, 256, 512, 1, 2),
    "C11": Layer(7, 512, 512, 3, 1),
}
CALLS = dict(zip(LAYERS, (4, 1, 1, 3, 1, 1, 3, 1, 1, 3), strict=True))
"""How often ResNet-18 computes each layer."""


@dataclass(frozen=True, slots=True)
class Point:
    """What became of a program: its cycles, those that multiplied, bytes from and to device memory."""

    cycles: int
    products: int
    bytes: int

    def __add__(self, other: "Point") -> "Point":
        return Point(self.cycles + other.cycles, self.products + other.products, self.bytes + other.bytes)

    def times(self, calls: int) -> "Point":
        """Of as many runs."""
        return Point(self.cycles * calls, self.products * calls, self.bytes * calls)

    @property
    def share(self) -> float:
        """The part of the matrix unit's peak."""
        return self.products / self.cycles

    def intensity(self, config: Config) -> float:
        """Operations per byte."""
        return 2 * config.products * self.products / self.bytes

    def gops(self, config: Config) -> float:
        """Operations in a nanosecond."""
        return self.share * config.peak_gops

    def roof(self, config: Config, timing: Timing) -> float:
        """The most operations in a nanosecond that the peak and device memory allow."""
        return min(config.peak_gops, self.intensity(config) * timing.bus_bytes * config.clock_mhz / 1000)


def point(layer: Layer, config: Config, timing: Timing, threads: int) -> Point:
    """Run a layer. Raises ValueError if its result is wrong."""
    convolution = layer.blocked(config)
    tiling = chosen_tiling(convolution, config, timing, threads)
    generator = np.random.default_rng(0)
    data = generator.integers(-128, 128, (config.batch, layer.channels, layer.size, layer.size))
    filters = generator.integers(-128, 128, (layer.filters, layer.channels, layer.kernel, layer.kernel))
    return _checked(convolution, tiling, config, timing, data, filters)


def _checked(
    convolution: Convolution, tiling: Tiling, config: Config, timing: Timing, data: np.ndarray, filters: np.ndarray
) -> Point:
    feeds = {"data": packed_data(data, config), "filters": packed_filters(filters, config)}
    run = Runtime(SimulatedDevice(config, timing=timing)).run(convolution_program(convolution, tiling, config), feeds)
    if not np.array_equal(unpacked_result(run.results["result"], len(filters)), exact(convolution, data, filters)):
        raise ValueError(f"{convolution}, {tiling}: the result is wrong")
    counters, cycles = run.report.counters, run.report.cycles
    assert counters is not None
    assert cycles is not None
    return Point(cycles.total, cycles.gemm, counters.loaded + counters.stored)


def exact(convolution: Convolution, data: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """The convolution in NumPy, shifted and clipped to 8 bits: sums of products of bytes are exact in float64."""
    pad, stride = convolution.padding, convolution.stride
    padded = np.pad(data.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, filters.shape[2:], axis=(2, 3))
    sums = np.einsum("nchwij,fcij->nfhw", windows[:, :, ::stride, ::stride], filters.astype(np.float64), optimize=True)
    return np.clip(sums.astype(np.int64) >> convolution.shift, -128, 127)


def rows(names: Iterable[str], config: Config, timing: Timing) -> Iterable[tuple[str, Point, Point]]:
    """Each layer with one and two virtual threads; at last all calls of the network together."""
    all_points = (Point(0, 0, 0), Point(0, 0, 0))
    for name in names:
        one, two = (point(LAYERS[name], config, timing, threads) for threads in (1, 2))
        yield name, one, two
        all_points = all_points[0] + one.times(CALLS[name]), all_points[1] + two.times(CALLS[name])
    yield "all", *all_points


def table(names: Iterable[str], config: Config, timing: Timing) -> Iterable[str]:
    """The lines that are printed."""
    yield f"{config.name}: {config.peak_gops:.1f} GOPS at {config.clock_mhz} MHz, {timing.bus_bytes} bytes in a cycle"
    yield f"{'':<5}{'one virtual thread':^36}{'two virtual threads':^36}"
    head = f"{'op/byte':>9}{'roof':>9}{'GOPS':>9}{'share':>8} "
    yield f"{'':<5}{head}{head}"
    shares: dict[str, float] = {}
    for name, one, two in rows(names, config, timing):
        shares[name] = two.share
        yield f"{name:<5}{_cells(one, config, timing)}{_cells(two, config, timing)}"
    yield from medians({name: share for name, share in shares.items() if name in CALLS})


def medians(shares: Mapping[str, float]) -> Iterable[str]:
    """The median of some layers, and of the network's calls of them."""
    calls = [share for name, share in shares.items() for _ in range(CALLS[name])]
    yield f"median of {len(shares)} layers {median(shares.values()):.2%}, of {len(calls)} calls {median(calls):.2%}"


def _cells(item: Point, config: Config, timing: Timing) -> str:
    numbers = (item.intensity(config), item.roof(config, timing), item.gops(config))
    return "".join(f"{number:>9.1f}" for number in numbers) + f"{item.share:>8.1%} "


def tuned(names: Iterable[str], config: Config, timing: Timing, trials: int, space: Spaces) -> Iterable[str]:
    """The cycles of the analytic choice and of the tuner's for each layer, as lines."""
    shares: dict[str, float] = {}
    for name in names:
        naive = loop_program(LAYERS[name].blocked(config), config)
        found = tune_accelerator(naive, config, timing, trials=trials, space=space)
        shares[name] = te.accelerate(found.schedule, config, timing).cycles.utilisation
        yield f"{name:<5}{found.analytic_cycles:>10}{found.cycles:>10}{shares[name]:>8.1%}  of {found.tried} schedules"
    yield from medians(shares)


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vta", description=__doc__)
    parser.add_argument("--config", choices=list(PRESETS), default="vta", help="default %(default)s")
    parser.add_argument("--bus", type=int, default=Timing().bus_bytes, help="bytes in a cycle, default %(default)s")
    parser.add_argument("--layers", default=",".join(LAYERS), help="default %(default)s")
    parser.add_argument("--trials", type=int, help="tune: print the analytic and the tuner's cycles")
    spaces = [spaces.value for spaces in Spaces]
    parser.add_argument("--space", choices=spaces, default="templates", help="of --trials, default %(default)s")
    parser.add_argument("--rtl", type=Path, metavar="FILE", help="write Verilog to FILE, and run nothing")
    parser.add_argument("--model", type=Path, metavar="FILE", help="the layers of a quantized model, beside the CPU")
    parser.add_argument("--left", action="store_true", help="where the cycles are in which nothing is multiplied")
    options = parser.parse_args(arguments)
    if options.rtl is not None:
        from tilewright.backend.vta.rtl import verilog

        options.rtl.write_text(verilog(PRESETS[options.config], Timing(bus_bytes=options.bus)))
        return
    if options.model is not None:
        from . import vta_model

        for line in vta_model.table(options.model, PRESETS[options.config], Timing(bus_bytes=options.bus)):
            print(line, flush=True)
        return
    names, config, timing = options.layers.split(","), PRESETS[options.config], Timing(bus_bytes=options.bus)
    space, trials = Spaces(options.space), options.trials
    if options.left:
        lines = vta_left.table(((name, LAYERS[name].blocked(config)) for name in names), config, timing)
    elif trials is None:
        lines = table(names, config, timing)
    else:
        lines = tuned(names, config, timing, trials, space)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
