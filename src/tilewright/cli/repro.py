"""``tilewright repro``: pack a model or one kernel, with versions and settings, to reproduce a run elsewhere."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tilewright.base.errors import BadInput
from tilewright.cli.options import add_compile_arguments, bounds, compiled, file_path, refuse_for, seed, shapes
from tilewright.cli.output import emit
from tilewright.cli.status import Status

if TYPE_CHECKING:
    from tilewright.passes.scheduled import ScheduledKernel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``options``, what to pack, and where to."""
    add_compile_arguments(parser)
    parser.add_argument("--kernel", metavar="NAME", help="pack only this kernel (`tilewright explain` lists them)")
    parser.add_argument("--random-seed", type=seed, default=0, metavar="N", help="seed of the inputs (default: 0)")
    parser.add_argument(
        "-o",
        "--output",
        type=file_path,
        metavar="FILE.zip",
        help="a zip, or a folder if the name has no .zip (default: MODEL.repro.zip in the current folder)",
    )


def execute(options: argparse.Namespace, console: Console) -> int:
    """Pack, report."""
    from tilewright.base.settings import Settings
    from tilewright.frontend.opening import opened
    from tilewright.insight.repro import Request, pack_kernel, pack_model
    from tilewright.target.target import Target

    path: Path = options.output or Path(options.model.name).with_suffix(".repro.zip")
    if options.kernel is None:
        if options.operators:
            raise BadInput("a bundle of a model holds no operators: leave --operators out, or give --kernel")
        if options.rules:
            raise BadInput("a bundle of a model holds no rules: leave --rules out, or give --kernel")
        refuse_for(options, "a bundle of a model holds no device and no library", ("accelerator", "library"))
        request = Request(
            str(Target.parse(options.target)),
            options.threads,
            shapes(options.shapes),
            bounds(options.bounds),
            Settings.from_environment().bounds_check,
            options.math,
            options.memory_limit,
            options.superopt,
            options.checks,
            options.random_seed,
            options.backend,
        )
        files = pack_model(path, opened(options.model), request)
    else:
        model = compiled(options)
        kernel = _named(options.kernel, model.compiled.kernels)
        files = pack_kernel(path, kernel, model.compiled.options, options.random_seed, opened(options.model).files())
    if options.json:
        kind = "model" if options.kernel is None else "kernel"
        emit({"model": str(options.model), "output": str(path), "kind": kind, "files": files})
    else:
        how = (
            "unpack it and run tilewright rerun on the folder" if path.suffix == ".zip" else f"tilewright rerun {path}"
        )
        text = f"{path}: {', '.join(files)}; {how}"
        console.print(text, soft_wrap=True)
    return Status.DONE


def _named(name: str, kernels: "tuple[ScheduledKernel, ...]") -> "ScheduledKernel":
    known = {kernel.program.name: kernel for kernel in kernels}
    if name not in known:
        raise BadInput(f"--kernel {name}: there is no such kernel; there are {', '.join(known)}")
    return known[name]
