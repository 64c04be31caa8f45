"""``tilewright quantize``: a model with int8 weights and 8-bit activations, within a bound of accuracy, as ONNX."""

import argparse
import time
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from tilewright.base.names import shown
from tilewright.base.outputs import check_output
from tilewright.base.quantization import Activations, Method, Metric
from tilewright.cli.operator_names import operators_of
from tilewright.cli.options import add_choice, add_operators, add_shapes, add_threads, file_path, shapes
from tilewright.cli.output import emit
from tilewright.cli.progress import reporting
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the data, the bound, and the ways."""
    parser.add_argument("model", type=file_path, help="an ONNX file")
    said = "calibration data: an array for each input, whose first dimension counts samples"
    parser.add_argument("--data", type=file_path, required=True, metavar="FILE.npz", help=said)
    said = "largest error on these data, such as 0.5%% or 0.005 (default: 1%% for top1, 5%% for l2)"
    parser.add_argument("--accuracy", type=_part, metavar="BOUND", help=said)
    said = "the error: relative difference of the outputs, or part of the samples with another class"
    add_choice(parser, "--metric", Metric.AUTO, said)
    add_choice(parser, "--method", Method.AUTO, "how ranges of activations are chosen; auto measures all")
    add_choice(parser, "--activations", Activations.U8, "integer type of activations")
    parser.add_argument("--no-bias-correction", action="store_true", help="do not correct biases")
    said = "do not search for smaller ranges of weights"
    parser.add_argument("--no-weight-range", action="store_true", help=said)
    parser.add_argument("--power-of-two", action="store_true", help="all scales are powers of two")
    parser.add_argument("--speed", action="store_true", help="report the time of each layer before and after, too")
    add_shapes(parser)
    add_threads(parser)
    add_operators(parser)
    said = "the quantized model (default: MODEL.quantized.onnx in the current folder)"
    parser.add_argument("-o", "--output", type=file_path, metavar="FILE.onnx", help=said)
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _part(text: str) -> float:
    """A part of a whole, as a number or in percent."""
    number, percent = text.removesuffix("%"), text.endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = float("nan")
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no part of a whole, such as 0.5% or 0.005")
    return value


def execute(options: argparse.Namespace, console: Console) -> int:
    """Quantize, write, report."""
    from tilewright.frontend.opening import opened
    from tilewright.quantization.quantizer import quantize

    path: Path = options.output or Path(options.model.name).with_suffix(".quantized.onnx")
    given = opened(options.model).files()
    check_output(path, [*given, options.data])
    begin = time.perf_counter()
    with reporting(f"quantizing {options.model}", plain_console(stderr=True, quiet=options.quiet)) as listener:
        made = quantize(
            options.model,
            options.data,
            accuracy=options.accuracy,
            metric=options.metric,
            method=options.method,
            activations=options.activations,
            bias_correction=not options.no_bias_correction,
            weight_range=not options.no_weight_range,
            power_of_two=options.power_of_two,
            speed=options.speed,
            shapes=shapes(options.shapes),
            threads=options.threads,
            operators=operators_of(options.operators),
            listener=listener,
        )
    made.save(path)
    seconds = time.perf_counter() - begin
    sizes = {"before": _bytes(given), "after": _bytes([path, path.with_name(f"{path.name}.data")])}
    if options.json:
        told = {"model": str(options.model), "output": str(path), "file_bytes": sizes, "seconds": seconds}
        emit({**told, **made.report.to_json()})
    else:
        made.report.show(console)
        files = f"{sizes['before']} bytes before, {sizes['after']} after"
        console.print(f"{path}: {files}; {seconds:.1f} s", soft_wrap=True)
    return Status.DONE


def _bytes(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())
