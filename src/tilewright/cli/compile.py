"""``tilewright compile``: compile a model and save it as an artifact, or as what runs without Python."""

import argparse
import time
from pathlib import Path

from rich.console import Console

from tilewright.base.form import Form
from tilewright.base.outputs import check_output
from tilewright.base.sizes import format_size
from tilewright.cli.exported import program_of
from tilewright.cli.options import add_compile_arguments, compiled, file_path
from tilewright.cli.output import emit
from tilewright.cli.progress import reporting
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``options``, and where to save."""
    add_compile_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=file_path,
        metavar="FILE",
        help="the file to write (default: MODEL.tw in the current folder, or for --emit MODEL, .o, .h, .wasm or .html)",
    )
    parser.add_argument(
        "--emit",
        choices=[form.value for form in Form],
        help="instead of an artifact, what runs without Python: a program for Linux, an object with a C header beside "
        "it, the header alone, a WebAssembly module with a JavaScript loader beside it, or an HTML page that runs it "
        "(targets wasm32, wasm64)",
    )
    parser.add_argument(
        "--trust", action="store_true", help="read a .pt2 file of torch.export, which can run code in it"
    )
    parser.add_argument("--quiet", action="store_true", help="do not show progress")


_SUFFIXES = {Form.PROGRAM: "", Form.OBJECT: ".o", Form.HEADER: ".h", Form.WASM: ".wasm", Form.PAGE: ".html"}


def execute(options: argparse.Namespace, console: Console) -> int:
    """Compile, save, report."""
    from tilewright.frontend.opening import opened

    form = None if options.emit is None else Form(options.emit)
    suffix = ".tw" if form is None else _SUFFIXES[form]
    path: Path = options.output or Path(options.model.name).with_suffix(suffix)
    check_output(path, opened(options.model).files())
    if form in (Form.WASM, Form.PAGE) and options.target == "host":
        options.target = "wasm32"
    begin = time.perf_counter()
    errors = plain_console(stderr=True, quiet=options.quiet)
    with reporting(f"compiling {options.model}", errors) as listener:
        model = compiled(options, listener, program=program_of(options.model, trusted=options.trust))
    made = time.perf_counter()
    if form is None:
        model.save(path)
        files: tuple[Path, ...] = (path,)
    else:
        files = model.emit(path, form)
    workspace = model.executable.manifest.workspace
    report = {
        "model": str(options.model),
        "output": str(path),
        "files": [str(file) for file in files],
        "bytes": path.stat().st_size,
        "cached": model.is_cached,
        "target": str(model.options.target),
        "math": model.math.value,
        "precision": model.precision.value,
        "checks": model.checks.value,
        "kernels": len(set(model.executable.manifest.calls)),
        "calls": len(model.executable.manifest.calls),
        "weight_bytes": sum(array.nbytes for array in model.executable.constants),
        "workspace_bytes": workspace if isinstance(workspace, int) else None,
        "seconds": {"compile": made - begin, "save": time.perf_counter() - made},
    }
    if options.json:
        emit(report)
    else:
        names, size = ", ".join(map(str, files)), format_size(path.stat().st_size)
        console.print(
            f"{names}: {size} bytes, {report['kernels']} kernels in {report['calls']} calls; {made - begin:.2f} s",
            soft_wrap=True,
        )
    return Status.DONE
