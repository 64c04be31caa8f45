"""The zoo's networks: Tilewright and its peers in turns. `python -m benchmarks.networks` writes results and tables.

Needs the zoo's files (`python -m benchmarks.zoo`) and the extra `bench`. Measure on a quiet machine.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from .compilation import compile_and_load
from .contest import BFLOAT16, INT8, PEERS, Case, has_matrix_unit, run_case
from .options import add_terms, names, terms_of
from .results import load, save
from .tables import report
from .work import run_shapes, work_of
from .zoo import quantized_path
from .zoo.samples import load_samples

NETWORKS = (
    "mlp",
    "dqn",
    "lstm",
    "nasrnn",
    "dcgan",
    "squeezenet",
    "mobilenet_v2",
    "resnet18",
    "resnet50",
    "resnext50",
    "densenet121",
    "inception_v3",
    "vgg16",
    "nasnet_mobile",
    "resnet18_3d",
    "bert_base",
    "minilm",
)
ZOO = Path("build/zoo")
RESULTS = Path("benchmarks/results/networks.json")
BFLOAT16_RESULTS = Path("benchmarks/results/networks_bf16.json")
INT8_RESULTS = Path("benchmarks/results/networks_int8.json")
PRECISIONS = {"fp32": (PEERS, RESULTS), "bf16": (BFLOAT16, BFLOAT16_RESULTS), "int8": (INT8, INT8_RESULTS)}
"""Peers, and where results go."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; results are saved after every network."""
    options = _options(arguments)
    terms, results = terms_of(options), load(options.results)
    for name in options.networks:
        case = prepare(name, options.zoo)
        case = quantized(case, options.zoo) if options.precision == "int8" else case
        for threads in options.threads:
            print(f"{name}, threads: {threads}", flush=True)
            results = results.with_rows(run_case(case, threads, terms))
            save(results, options.results)
        if not options.latency_only:
            times = compile_and_load(name, case.model, case.samples[0], max(options.threads), options.build_limit)
            results = results.with_compilation(times)
            save(results, options.results)
    print(report(results))


def prepare(name: str, zoo: Path) -> Case:
    """The case of a network. Raises FileNotFoundError when the zoo has no such file."""
    path = zoo / f"{name}.onnx"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run `python -m benchmarks.zoo --folder {zoo} {name}`")
    samples = load_samples(zoo / f"{name}.npz")
    model = onnx.load(path)
    work = work_of(model, run_shapes(model, samples[0].inputs))
    return Case(name, path, samples, "benchmarks.zoo.catalogue:module_of", work)


def quantized(case: Case, zoo: Path) -> Case:
    """The same network in int8, with the same inputs and exact answers. Raises FileNotFoundError without its file."""
    path = quantized_path(case.name, zoo)
    if not path.exists():
        command = f"python -m benchmarks.zoo.quantized --folder {zoo} {case.name}"
        raise FileNotFoundError(f"{path} is missing: run `{command}`")
    return replace(case, model=path, work=case.work.in_width(1, has_matrix_unit=has_matrix_unit()))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description="The zoo, peers in turns.")
    parser.add_argument("--networks", type=names, default=list(NETWORKS), help=f"default {','.join(NETWORKS)}")
    parser.add_argument("--latency-only", action="store_true", help="don't time compiling and loading")
    parser.add_argument("--zoo", type=Path, default=ZOO, help="folder of the zoo, default %(default)s")
    parser.add_argument("--results", type=Path, help=f"JSON file, default {RESULTS}, or one for the precision")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="default %(default)s")
    add_terms(parser, seconds=4.0)
    options = parser.parse_args(arguments)
    peers, results = PRECISIONS[options.precision]
    options.peers = list(peers) if options.peers == list(PEERS) else options.peers
    options.results = options.results or results
    return options


if __name__ == "__main__":
    main()
