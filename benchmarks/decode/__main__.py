"""Decoding of a Llama-like model beside ONNX Runtime and OpenVINO: time of a token, and bandwidth of memory.

`python -m benchmarks.decode [--width 2048] [--layers 8] [--past 512] [--modes f32,bf16,int8,int4] [--lock PATH]` prints
a table: `--layers 2 --width 512 --words 4000` is a quick run. One model has open batch, past and sequence. Its results
at growing `past` are compared with ONNX Runtime's; then all decode in turns, from the same keys and values, and a probe
reads memory beyond the caches. Times are medians of tokens, ratios medians over rounds. A token reads all weights, and
the keys and values so far: with the time it takes that is the bandwidth.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

from tilewright.insight.peak import beyond_caches
from tilewright.insight.probes import read_probe
from tilewright.target.target import Target

from ..options import names
from ..processes import exclusive
from .decoders import Caches, Decoder, OnnxRuntime, OpenVino, Ours, Rooms
from .model import HEAD, Config, Weights, write

MODES = ("f32", "bf16", "int8", "int4")
PEERS = ("onnxruntime", "openvino")
OURS = "tilewright"
AT_ONCE, TOKENS = 5, 11
"""Of the tokens whose results are compared, so many first ones at once, then one after the other."""
WARM_UP = 2
"""Tokens that are not timed, after keys and values were set."""
PROBES = 20
"""Of the bandwidth, in a round: each takes a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: `tokens` from `past` on in each of `rounds`, and once as many as `prefill` at a time."""

    past: int
    tokens: int
    rounds: int
    prefill: int
    threads: int = 1
    clock: Callable[[], float] = perf_counter

    @property
    def most(self) -> int:
        return max(self.past + WARM_UP + self.tokens, self.prefill)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of tokens, and of prefills, by round."""

    tokens: list[list[float]]
    prefills: list[list[float]]


def caches(config: Config, past: int, batch: int = 1, seed: int = 1) -> Caches:
    """Random keys and values of past tokens."""
    random = np.random.default_rng(seed)
    shape = (batch, config.kv_heads, past, HEAD)
    return {name: random.standard_normal(shape, np.float32) for name in config.caches()}


def words(config: Config, count: int, batch: int = 1, seed: int = 2) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, config.words, (batch, count))


def decoded(decoder: Decoder, config: Config, batch: int = 1) -> list[NDArray[np.floating]]:
    """The logits of some words at once, then of one after the other, and the keys and values of all."""
    given = words(config, TOKENS, batch)
    decoder.start(caches(config, 0, batch))
    parts = [given[:, :AT_ONCE], *(given[:, at : at + 1] for at in range(AT_ONCE, TOKENS))]
    found: list[NDArray[np.floating]] = [np.array(decoder.step(part)) for part in parts]
    return [*found, *map(np.array, decoder.caches().values())]


def difference(found: Sequence[NDArray[np.floating]], expected: Sequence[NDArray[np.floating]]) -> float:
    """The largest, in the Euclidean norm, relative to what is expected; of what was found."""
    pairs = zip(found, expected, strict=False)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


def measured(
    decoders: Sequence[Decoder], config: Config, plan: Plan, probe: Callable[[], float]
) -> tuple[dict[str, Times], float]:
    """All in turns; also the best bandwidth of memory, in GB/s."""
    times = {decoder.name: Times([], []) for decoder in decoders}
    past, given, bandwidth = caches(config, plan.past), words(config, plan.most), 0.0
    for _ in range(plan.rounds):
        for decoder in decoders:
            decoder.start(past)
            parts = (given[:, at : at + 1] for at in range(WARM_UP + plan.tokens))
            steps = [_timed(decoder, part, plan.clock) for part in parts]
            times[decoder.name].tokens.append(steps[WARM_UP:])
            if plan.prefill:
                decoder.start(caches(config, 0))
                times[decoder.name].prefills.append([_timed(decoder, given[:, : plan.prefill], plan.clock)])
        bandwidth = max(bandwidth, *(probe() for _ in range(PROBES)))
    return times, bandwidth


def _timed(decoder: Decoder, part: NDArray[np.int64], clock: Callable[[], float]) -> float:
    begin = clock()
    decoder.step(part)
    return clock() - begin


def config_of(mode: str, sizes: Config) -> Config:
    return replace(sizes, weights=Weights.F32 if mode in ("f32", "bf16") else Weights(mode))


def made(mode: str, path: Path, config: Config, plan: Plan, peers: Sequence[str]) -> Iterator[Decoder]:
    """The decoders of a file, ONNX Runtime first: in bfloat16, which it does not have, it takes float32."""
    most = max(plan.most, TOKENS)
    if "onnxruntime" in peers:
        yield OnnxRuntime(path, Rooms(config, 1, most), plan.threads)
    if "openvino" in peers:
        yield OpenVino(path, config, plan.threads, "bf16" if mode == "bf16" else "f32")
    yield Ours(path, Rooms(config, 1, most), plan.threads, "bf16" if mode == "bf16" else "fp32")


def table(mode: str, sizes: Config, plan: Plan, peers: Sequence[str], folder: Path, lock: Path | None) -> list[str]:
    """The rows of a mode: one for each decoder."""
    config, path = config_of(mode, sizes), folder / f"{mode}.onnx"
    write(config, path)
    decoders = list(made(mode, path, config, plan, peers))
    results = {decoder.name: decoded(decoder, config) for decoder in decoders}
    expected = next(iter(results.values()))
    probe = read_probe(target := Target.host(), beyond_caches(target), plan.threads)
    with exclusive(lock):
        times, bandwidth = measured(decoders, config, plan, probe)
    read = (config.weight_bytes // (2 if mode == "bf16" else 1) + config.cache_bytes(plan.past)) / 1e9
    return [
        _row(mode, name, found, times[OURS], read, bandwidth, difference(results[name], expected))
        for name, found in times.items()
    ]


def _row(mode: str, name: str, found: Times, own: Times, read: float, bandwidth: float, far: float) -> str:
    """`read`: GB that a token reads; `far`: the difference from ONNX Runtime's results."""
    token = statistics.median(second for of_round in found.tokens for second in of_round)
    rates = f"{read / token:.1f} | {read / token / bandwidth:.2f}"
    prefill = f"{_ratio(found.prefills, own.prefills):.2f}" if own.prefills else ""
    ratio = _ratio(found.tokens, own.tokens)
    return f"| {mode} | {name} | {token * 1e3:.2f} | {ratio:.2f} | {rates} | {prefill} | {far:.0e} |"


def _ratio(theirs: list[list[float]], ours: list[list[float]]) -> float:
    """The median over rounds of the ratio of their medians."""
    pairs = zip(theirs, ours, strict=True)
    return statistics.median(statistics.median(a) / statistics.median(b) for a, b in pairs)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    sizes = Config(options.width, options.layers, options.kv_heads, options.words)
    clock = process_time if options.busy else perf_counter
    plan = Plan(options.past, options.tokens, options.rounds, options.prefill, options.threads, clock)
    print("| mode | by | ms a token | time / ours | GB/s | of memory's | prefill, time / ours | difference |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for mode in options.modes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            rows = table(mode, sizes, plan, options.peers, Path(folder), options.lock)
            print("\n".join(rows), flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--words", type=int, default=32000)
    parser.add_argument("--past", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=8, help="timed in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefill", type=int, default=0, help="words at once, after no others; 0: not measured")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--modes", type=names, default=list(MODES), help="of f32, bf16, int8, int4")
    parser.add_argument("--peers", type=names, default=list(PEERS), help="of onnxruntime, openvino")
    parser.add_argument("--busy", action="store_true", help="time of the processor: others use it, too (one thread)")
    parser.add_argument("--lock", type=Path, help="hold an exclusive lock on this file while timing")
    parser.add_argument("--folder", type=Path, help="where the model is written for a while")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
