"""One case (a model and its exact answers) run by all peers in turns; what a peer does, or why it fails, is a row."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tilewright.insight.probes import fma_probe, read_probe
from tilewright.target.target import Target

from .accuracy import Accuracy, accuracy
from .candidates import load_feeds
from .harness import CandidateError, Plan, Samples, measure_survivors
from .processes import Spec, Worker, exclusive
from .results import Row
from .work import Roof, Work
from .zoo.samples import Sample

PEERS = (
    "onnxruntime",
    "openvino",
    "torch_eager",
    "torch_compile",
    "tilewright",
    "tilewright_strict",
)  # of candidates.py
TVM = "tvm_metaschedule"
TILEWRIGHT = ("tilewright", "tilewright_strict", "tilewright_bf16")
BFLOAT16 = ("openvino_bf16", "tilewright_bf16")
"""Peers whose dot products do twice as many operations as those of float32, on weights of half the size."""
INT8 = ("onnxruntime", "openvino", "openvino_bf16", "tilewright", "tilewright_bf16")
"""Peers on int8 models; OpenVINO computes what is not quantized in float32, or in bfloat16, which is its default, and
Tilewright as it is asked to."""
RUN_FROM_SOURCE = ("torch_eager", "torch_compile", "torch_max_autotune")
PROBES = 50


@dataclass(frozen=True, slots=True)
class Case:
    """A model file, inputs with exact answers (the first of them is timed), and how PyTorch gets at the module."""

    name: str
    model: Path
    samples: Sequence[Sample]
    source: str
    """ "module:function"; see candidates.py"""
    work: Work


@dataclass(frozen=True, slots=True)
class Terms:
    """How a contest is held, whatever the case."""

    plan: Plan
    peers: Sequence[str] = PEERS
    build_limit: float = 600.0
    """Seconds that a peer may take until it has run once."""
    lock: Path | None = None
    """Held while timing, where several people measure on one machine."""
    target: str = "host"
    """What Tilewright compiles for."""
    records: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Tilewright with what was found by searches: the files of records, by the names that the peers have."""
    tvm: Path | None = None
    """The folder of TVM's search."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What peers did in turns, by name; a peer that failed has a reason, and perhaps an error."""

    samples: Mapping[str, Samples]
    errors: Mapping[str, Accuracy]
    failures: Mapping[str, str]


def run_case(case: Case, threads: int, terms: Terms) -> list[Row]:
    """A row per peer, in the order of `terms.peers`. All build side by side and then run in turns."""
    with tempfile.TemporaryDirectory() as folder:
        feeds = write_feeds(case.samples, Path(folder))
        specs = [_spec(case, peer, feeds[0], threads, terms) for peer in terms.peers]
        specs += [_tuned(case, peer, feeds[0], threads, terms) for peer in terms.records]
        outcome = run_in_turns(specs, case.samples, feeds, terms)
    with exclusive(terms.lock):
        roof = measure_roof(case.work, threads)
    return [_row(case, threads, peer, outcome, roof) for peer in (*terms.peers, *terms.records)]


def run_in_turns(specs: Sequence[Spec], samples: Sequence[Sample], feeds: Sequence[Path], terms: Terms) -> Outcome:
    """Build all side by side, compare what they make of `feeds`, the files of `samples`, and time them in turns."""
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(spec, terms.build_limit)) for spec in specs]
        errors, failures = _errors(workers, samples, feeds)
        ready = [worker for worker in workers if worker.name in errors]
        with exclusive(terms.lock):
            times, died = measure_survivors(ready, terms.plan)
    reasons = {name: reason.removeprefix(f"{name}: ") for name, reason in (failures | died).items()}
    return Outcome(times, errors, reasons)


def measure_roof(work: Work, threads: int) -> Roof:
    """What this machine can do at best: threads times what one does alone, with its part of the weights."""
    target = Target.host()
    compute, read = fma_probe(target), read_probe(target, int(work.bytes) // threads)
    peak, bandwidth = (max(probe() for _ in range(PROBES)) for probe in (compute, read))
    return Roof(threads * peak * 1e9, threads * bandwidth * 1e9)


def write_feeds(samples: Sequence[Sample], folder: Path) -> list[Path]:
    """Write the inputs of each sample to a file of its own in `folder`."""
    paths = [folder / f"feeds-{index}.npz" for index in range(len(samples))]
    for path, sample in zip(paths, samples, strict=True):
        np.savez(path, allow_pickle=False, **sample.inputs)
    return paths


def _spec(case: Case, peer: str, feeds: Path, threads: int, terms: Terms) -> Spec:
    arguments = {"model": str(case.model), "feeds": str(feeds)}
    if peer == TVM:
        return Spec(peer, f"benchmarks.metaschedule:{TVM}", arguments | {"folder": str(terms.tvm)}, threads)
    if peer in RUN_FROM_SOURCE:
        arguments["source"] = case.source
    if peer in TILEWRIGHT:
        arguments["target"] = terms.target
    return Spec(peer, f"benchmarks.candidates:{peer}", arguments, threads)


def _tuned(case: Case, peer: str, feeds: Path, threads: int, terms: Terms) -> Spec:
    arguments = {"model": str(case.model), "feeds": str(feeds), "target": terms.target}
    arguments["records"] = str(terms.records[peer])
    return Spec(peer, "benchmarks.candidates:tilewright_tuned", arguments, threads)


def _errors(
    workers: Sequence[Worker], samples: Sequence[Sample], feeds: Sequence[Path]
) -> tuple[dict[str, Accuracy], dict[str, str]]:
    """Wait for every worker; its worst error over all samples, or why it has none, by name."""
    errors: dict[str, Accuracy] = {}
    failures: dict[str, str] = {}
    for worker in workers:
        try:
            worker.wait_ready()
            errors[worker.name] = _worst([_error(worker, *pair) for pair in zip(samples, feeds, strict=True)])
        except (CandidateError, ValueError) as error:  # ValueError: outputs of another shape
            failures[worker.name] = str(error)
    return errors, failures


def _error(worker: Worker, sample: Sample, feeds: Path) -> Accuracy:
    path = feeds.with_name(f"{worker.name}-{feeds.name}")
    worker.save_outputs(path, feeds)
    return accuracy(list(load_feeds(str(path)).values()), list(sample.outputs.values()))


def has_matrix_unit() -> bool:
    """Whether this machine multiplies narrow numbers by AMX."""
    return "amx-tile" in Target.host().features


def _worst(errors: Sequence[Accuracy]) -> Accuracy:
    return Accuracy(*(float(np.max([getattr(e, name) for e in errors])) for name in ("norm", "element")))


def _row(case: Case, threads: int, peer: str, outcome: Outcome, roof: Roof) -> Row:
    if peer in outcome.failures:
        return Row(case.name, threads, peer, failure=outcome.failures[peer])
    of_peer = outcome.samples[peer]
    work = case.work.in_width(2, has_matrix_unit=has_matrix_unit()) if peer in BFLOAT16 else case.work
    broken = roof.broken_by(work, min(of_peer.slot_medians))
    reason = f"faster than the roofline's {1e3 * roof.least_seconds(work):.3g} ms: measured wrongly" if broken else ""
    share = work.flops / of_peer.median / roof.flops
    slots, error = tuple(of_peer.slot_medians), outcome.errors[peer]
    return Row(case.name, threads, peer, reason, slots, of_peer.median, share, error)
