"""The zoo's networks: Tilewright and its peers in turns. `python -m benchmarks.networks` writes results and tables.

Needs the zoo's files (`python -m benchmarks.zoo`) and the extra `bench`. Measure on a quiet machine.
"""

import argparse
from pathlib import Path

import onnx

from .compilation import compile_cold_and_warm
from .contest import PEERS, Case, Terms, run_case
from .harness import Plan
from .options import names, numbers
from .results import load, save
from .tables import report
from .work import run_shapes, work_of
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
RESULTS = Path("benchmarks/results/networks.json")
ROUNDS = 8


def main() -> None:
    """Measure; results are saved after every network."""
    options = _options()
    slot = options.seconds / ROUNDS
    terms = Terms(Plan(ROUNDS, slot, warm_up=slot / 4), options.peers, options.build_limit, options.lock)
    results = load(options.results)
    for name in options.networks:
        case = prepare(name, options.zoo)
        for threads in options.threads:
            print(f"{name}, {threads} threads", flush=True)
            results = results.with_rows(run_case(case, threads, terms))
            save(results, options.results)
        if options.compile_time:
            times = compile_cold_and_warm(name, case.model, max(options.threads), options.build_limit)
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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description="The zoo, peers in turns.")
    parser.add_argument("--networks", type=names, default=list(NETWORKS), help=f"default {','.join(NETWORKS)}")
    parser.add_argument("--peers", type=names, default=list(PEERS), help=f"default {','.join(PEERS)}")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="numbers of threads, default 1,2")
    parser.add_argument("--seconds", type=float, default=4.0, help="of timing per peer, default %(default)s")
    parser.add_argument("--build-limit", type=float, default=600.0, help="seconds to build, default %(default)s")
    parser.add_argument("--no-compile-time", dest="compile_time", action="store_false", help="leave out cold and warm")
    parser.add_argument("--zoo", type=Path, default=Path("build/zoo"), help="folder of the zoo, default %(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON file, default %(default)s")
    parser.add_argument("--lock", type=Path, help="hold an exclusive lock on this file while timing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
