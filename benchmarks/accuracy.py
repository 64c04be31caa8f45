"""The two error measures, against float64: relative in the norm, and relative to the largest element.

`python -m benchmarks.accuracy [--networks NAME,...] [--limit 1.1]` compares Tilewright in bfloat16 with OpenVINO in
bfloat16 on the zoo: errors of all samples together (the root of the mean square), and their ratio. It fails if a ratio
is above the limit. Where OpenVINO computes in float32 (its error is below 1e-4), there is no ratio.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .processes import Spec, Worker
from .zoo.samples import Sample, load_samples

OPENVINO, OURS = "openvino_bf16", "tilewright_bf16"
"""Candidates."""
IS_FLOAT32 = 1e-4
"""Errors below are those of float32."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Largest error over all outputs; no unit."""

    norm: float
    """max over outputs of |y - r|_2 / |r|_2"""
    element: float
    """max over outputs of max|y - r| / max|r|"""


def accuracy(outputs: Sequence[NDArray[np.floating]], references: Sequence[NDArray[np.float64]]) -> Accuracy:
    """Compare outputs with float64 references. Raises ValueError when numbers or shapes of outputs differ."""
    if not references or [output.shape for output in outputs] != [reference.shape for reference in references]:
        raise ValueError(f"{[o.shape for o in outputs]} can't be compared with {[r.shape for r in references]}")
    both = zip(outputs, references, strict=True)
    pairs = [(np.asarray(output, np.float64) - reference, reference) for output, reference in both]
    norms = [_divide(np.linalg.norm(error), np.linalg.norm(exact)) for error, exact in pairs]
    elements = [_divide(np.abs(error).max(), np.abs(exact).max()) for error, exact in pairs]
    return Accuracy(float(np.max(norms)), float(np.max(elements)))  # unlike max(), np.max lets no NaN disappear


def _divide(error: np.floating, scale: np.floating) -> float:
    """error / scale; an exact zero reference is met exactly or not at all."""
    if scale == 0.0:
        return 0.0 if error == 0.0 else float("inf")
    return float(error / scale)


LEAST_DEVIATION, MOST_DEVIATION = 0.1, 10.0


def out_of_scale(deviations: Mapping[str, float]) -> dict[str, float]:
    """Standard deviations, by layer, outside of [0.1, 10]: errors of such layers would hide, or hide others'."""
    return {name: value for name, value in deviations.items() if not LEAST_DEVIATION <= value <= MOST_DEVIATION}


def errors_of(peer: str, model: Path, samples: Sequence[Sample]) -> list[Accuracy]:
    """The errors of a candidate of `candidates.py` on each sample, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"feeds-{index}.npz" for index in range(len(samples))]
        for path, sample in zip(paths, samples, strict=True):
            np.savez(path, allow_pickle=False, **sample.inputs)
        spec = Spec(peer, f"benchmarks.candidates:{peer}", {"model": str(model), "feeds": str(paths[0])}, 1)
        with Worker(spec) as worker:
            worker.wait_ready()
            return [_error(worker, *pair) for pair in zip(samples, paths, strict=True)]


def _error(worker: Worker, sample: Sample, feeds: Path) -> Accuracy:
    made = feeds.with_name(f"outputs-{feeds.name}")
    worker.save_outputs(made, feeds)
    with np.load(made) as archive:
        return accuracy([archive[name] for name in archive.files], list(sample.outputs.values()))


def together(errors: Sequence[Accuracy]) -> Accuracy:
    """The root of the mean square of each measure."""
    return Accuracy(*(float(np.sqrt(np.mean([getattr(e, name) ** 2 for e in errors]))) for name in ("norm", "element")))


@dataclass(frozen=True, slots=True)
class Compared:
    """The errors of OpenVINO and of Tilewright on a network, in bfloat16."""

    name: str
    theirs: Accuracy
    ours: Accuracy

    @property
    def ratio(self) -> float | None:
        """Of Tilewright's errors, in the norm, to OpenVINO's; None if OpenVINO computes in float32."""
        return None if self.theirs.norm < IS_FLOAT32 else self.ours.norm / self.theirs.norm

    def __str__(self) -> str:
        both = " | ".join(f"{e.norm:.2e}, {e.element:.2e}" for e in (self.theirs, self.ours))
        return f"| {self.name} | {both} | {'' if self.ratio is None else f'{self.ratio:.2f}'} |"


def compared(networks: Sequence[str], zoo: Path) -> Iterator[Compared]:
    for name in networks:
        samples = load_samples(zoo / f"{name}.npz")
        theirs, ours = (together(errors_of(peer, zoo / f"{name}.onnx", samples)) for peer in (OPENVINO, OURS))
        yield Compared(name, theirs, ours)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each network; 1 if a ratio is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", help="NAME,...; default: all in the folder")
    parser.add_argument("--zoo", type=Path, default=Path("build/zoo"), help="default %(default)s")
    parser.add_argument("--limit", type=float, default=1.1, help="of the ratio, default %(default)s")
    options = parser.parse_args(arguments)
    every = sorted(path.stem for path in options.zoo.glob("*.npz"))
    print("| network | OpenVINO: norm, element | Tilewright | ratio of norms |\n|---|---:|---:|---:|")
    failed = False
    for found in compared(options.networks.split(",") if options.networks else every, options.zoo):
        print(found, flush=True)
        failed |= found.ratio is not None and not found.ratio <= options.limit  # NaN is no success
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
