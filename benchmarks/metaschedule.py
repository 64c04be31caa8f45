"""A network tuned by TVM's MetaSchedule, and by Tilewright in less time: `python -m benchmarks.metaschedule`.

TVM tunes for `--minutes`, its weights laid out anew as its documentation advises for CPUs; then Tilewright for
`--minutes-of-ours`. Then both, Tilewright untuned and ONNX Runtime run in turns. Each tunes on all cores, for models of
`--threads`. Needs the zoo's file of the network and the extras `bench` and `tvm`. Measure on a quiet machine.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from tilewright.target.target import Target

from . import networks, searched
from .candidates import Feeds, Session, load_feeds
from .contest import TVM, run_case
from .options import add_terms, terms_of
from .results import Results
from .tables import OURS, report

if TYPE_CHECKING:
    import tvm

TRIALS = 1_000_000
"""More than there is time for."""
BATCH = 16
"""Candidates that are measured at once. TVM stores its first results when each task had a first batch: with 16, after
about 15 minutes for ResNet-18 on two cores; with its default of 64, twice that time."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune both, then run them in turns."""
    options = _options(arguments)
    case = networks.prepare(options.network, options.zoo)
    (threads,) = options.threads
    with TemporaryDirectory(prefix="tilewright-metaschedule-") as name:
        folder = Path(name)
        _tune_tvm(case.model, threads, folder, 60 * options.minutes)
        records = folder / "records.db"
        searched.tune(case, threads, options.minutes_of_ours, "all", "host", records)
        terms = replace(terms_of(options), peers=("onnxruntime", TVM, OURS), records={f"{OURS}_all": records})
        rows = run_case(case, threads, replace(terms, tvm=folder))
    print(report(Results().with_rows(rows)))


def tvm_metaschedule(model: str, feeds: str, threads: int, folder: str) -> Session:
    """TVM with the fastest schedules of its search in `folder`; a candidate as in candidates.py."""
    import tvm
    from tvm import relax

    arrays, target = load_feeds(feeds), _target(threads)
    module, weights = _imported(Path(model), {name: list(array.shape) for name, array in arrays.items()})
    executable = tvm.compile(_applied(target, folder)(module), target=target)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    packed = machine["main_transform_params"](weights)

    def infer(inputs: Feeds) -> list[np.ndarray]:
        made = machine["main"](*(tvm.runtime.tensor(array, tvm.cpu()) for array in inputs.values()), *packed)
        return [made.numpy()] if hasattr(made, "numpy") else [part.numpy() for part in made]

    return Session(infer, arrays)


def _tune_tvm(model: Path, threads: int, folder: Path, seconds: float) -> None:
    """Search until time is over: what was measured is in `folder` by then. Raises RuntimeError if that is nothing."""
    command = [sys.executable, "-m", "benchmarks.metaschedule", "--tune", str(model), str(threads), str(folder)]
    try:
        subprocess.run(command, check=True, timeout=seconds, stdout=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        found = folder / "database_tuning_record.json"
        trials = found.read_text().count("\n") if found.exists() else 0
        if trials == 0:
            raise RuntimeError(f"TVM measured nothing in {seconds / 60:g} minutes; give it more --minutes") from None
        print(f"TVM: {trials} trials in {seconds / 60:g} minutes", flush=True)


def _search(model: Path, threads: int, folder: str) -> None:
    import onnx
    import tvm
    from tvm import relax
    from tvm.s_tir.meta_schedule.relax_integration import tune_relax

    inputs = onnx.load(model).graph.input
    shapes = {i.name: [dim.dim_value for dim in i.type.tensor_type.shape.dim] for i in inputs}
    target = _target(threads)
    with target:
        module = tvm.transform.Sequential(
            [
                relax.transform.DecomposeOpsForInference(),
                relax.transform.CanonicalizeBindings(),
                relax.get_pipeline("zero"),
                relax.transform.AttachAttrLayoutFreeBuffers(),
            ]
        )(_imported(model, shapes)[0])
    tune_relax(module, {}, target, folder, max_trials_global=TRIALS, num_trials_per_iter=BATCH)


def _target(threads: int) -> "tvm.target.Target":
    import tvm

    return tvm.target.Target({"kind": "llvm", "mcpu": Target.host().cpu, "num-cores": threads})


def _imported(model: Path, shapes: dict[str, list[int]]) -> "tuple[tvm.IRModule, list[tvm.runtime.Tensor]]":
    import onnx
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    module = from_onnx(onnx.load(model), shape_dict=shapes, keep_params_in_input=True)
    bare, weights = relax.frontend.detach_params(module)
    return bare, weights["main"]


def _applied(target: "tvm.target.Target", folder: str) -> "tvm.transform.Pass":
    """What was found, applied: TVM's own pipeline, without its search."""
    from tvm import relax

    return relax.get_pipeline(
        "static_shape_tuning", total_trials=0, target=target, work_dir=folder, cpu_weight_prepack=True
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metaschedule", description="Against MetaSchedule.")
    parser.add_argument("--network", default="resnet18", help="default %(default)s")
    parser.add_argument("--zoo", type=Path, default=networks.ZOO, help="folder of the zoo, default %(default)s")
    parser.add_argument("--minutes", type=float, default=20.0, help="of TVM's search, default %(default)s")
    parser.add_argument("--minutes-of-ours", type=float, default=5.0, help="default %(default)s")
    add_terms(parser, seconds=4.0)
    parser.set_defaults(threads=[1])
    return parser.parse_args(arguments)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--tune"]:
        _search(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        main()
