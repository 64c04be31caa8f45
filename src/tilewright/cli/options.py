"""Arguments that several verbs share. Imports the compiler only when a model is compiled, so that help is fast."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tilewright.base.checks import Checks
from tilewright.base.errors import BadInput
from tilewright.base.events import Listener, ignore
from tilewright.base.input_files import open_regular
from tilewright.base.names import shown
from tilewright.base.numerics import Math, Precision
from tilewright.base.settings import Settings
from tilewright.base.sizes import parse_size
from tilewright.base.superopt import Superopt
from tilewright.cli.operator_names import operators_of
from tilewright.cli.rule_files import rule_paths
from tilewright.runtime.sizing import default_threads

if TYPE_CHECKING:
    from tilewright.api import CompiledModel
    from tilewright.runtime.artifact import PublicKey
    from tilewright.runtime.runnable import RunnableModel

Item = TypeVar("Item")

_ZIP = b"PK\x03\x04"


def add_compile_arguments(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Declare the model (or ``several``: ``models``), and the compile options."""
    if several:
        parser.add_argument("models", type=file_path, nargs="+", metavar="model", help="an ONNX file, or several")
    else:
        parser.add_argument("model", type=file_path, help="an ONNX file")
    add_shapes(parser)
    parser.add_argument(
        "--bound",
        dest="bounds",
        action="append",
        default=[],
        metavar="NAME=512",
        help="upper bound of a dimension known only at run time",
    )
    parser.add_argument(
        "--dynamic",
        choices=["auto", "symbolic", "specialize"],
        default="auto",
        help="one model for all sizes of run-time dimensions, or a version for each size (default: %(default)s)",
    )
    parser.add_argument(
        "--target",
        default="host",
        help="target, such as x86_64,znver5, or the name of an installed target (default: this machine)",
    )
    parser.add_argument(
        "--backend",
        default="cpu",
        metavar="NAME",
        help="back end: cpu, reference, vta or an installed one (default: cpu)",
    )
    parser.add_argument(
        "--accelerator",
        metavar="vta[,WORDS]",
        help="give parts of a quantized model to an accelerator; words: a configuration (osdi, vta, large, clip, or "
        "FILE.json), what it gets (cost, measured, always), and what runs its programs (functional, cycles, rtl)",
    )
    parser.add_argument(
        "--library",
        metavar="onednn[,WORD]",
        help="let a library compute convolutions and products; the word says which: measured, where it is faster (the "
        "default), or always",
    )
    add_threads(parser)
    add_choice(parser, "--math", Math.DEFAULT, "rounding errors allowed, which decide what algorithms may be used")
    add_choice(parser, "--precision", Precision.FP32, "type in which values pass from kernel to kernel, and of weights")
    parser.add_argument(
        "--memory-limit",
        type=size,
        metavar="SIZE",
        help="maximum memory for packed weights and workspace together, such as 512MiB",
    )
    add_choice(parser, "--superopt", Superopt.OFF, "effort of the search for an equivalent, faster graph")
    checked = "out-of-range indices in input data: on raises an error, off takes the nearest valid index"
    add_choice(parser, "--checks", Checks.ON, checked)
    parser.add_argument(
        "--records",
        type=Path,
        metavar="FILE.db",
        help="tuning records (default: TILEWRIGHT_RECORDS, or a file in the home directory)",
    )
    parser.add_argument(
        "--rules",
        type=file_path,
        nargs="+",
        metavar="FILE",
        help="rule files to apply besides the built-in rules; optimize uses only these, or with +FILE both",
    )
    add_operators(parser)
    parser.add_argument(
        "--isolate",
        action="store_true",
        help="compile in a separate process with time and memory limits: for untrusted models",
    )
    parser.add_argument(
        "--isolate-memory", type=size, metavar="SIZE", help="memory limit of that process (default: all memory)"
    )
    parser.add_argument("--isolate-timeout", type=some_time, metavar="SECONDS", help="its time limit (default: 600)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Declare the shapes of inputs."""
    parser.add_argument(
        "--shape",
        dest="shapes",
        action="append",
        default=[],
        metavar="NAME=1x3x224x224",
        help="shape of an input, separated by x or commas; a given dimension applies wherever its name occurs",
    )


def add_operators(parser: argparse.ArgumentParser) -> None:
    """Declare operators of other domains than ONNX's."""
    parser.add_argument(
        "--operators",
        nargs="+",
        default=[],
        metavar="MODULE:NAME",
        help="definitions of operators that ONNX does not have, in Python modules (docs/own-operators.md)",
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Declare the number of threads."""
    parser.add_argument(
        "--threads",
        type=positive,
        default=default_threads(),
        metavar="N",
        help="maximum number of threads of a run (default: %(default)s)",
    )


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the compile options, trust options (``model`` may be an artifact), and inputs."""
    add_compile_arguments(parser)
    add_trust_arguments(parser)
    parser.add_argument(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="value of an input; others are random: normal floats, integers 0 or 1",
    )
    parser.add_argument("--random-seed", type=seed, default=0, metavar="N", help="seed of random inputs (default: 0)")


_MOST = 1 << 62


def add_choice(parser: argparse.ArgumentParser, name: str, usual: Enum, meaning: str) -> None:
    """Declare an argument whose values are the members of an ``Enum``."""
    words = [member.value for member in type(usual)]
    parser.add_argument(name, choices=words, default=usual.value, help=f"{meaning} (default: %(default)s)")


def file_path(text: str) -> Path:
    """A path with a file name."""
    path = Path(text)
    if not path.name:
        raise argparse.ArgumentTypeError(f"{shown(text)} names no file")
    return path


def add_trust_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which artifacts of other users may be loaded; artifacts are machine code."""
    trust = parser.add_mutually_exclusive_group()
    trust.add_argument(
        "--trust",
        action="store_true",
        help="load an artifact that another user saved (it runs as machine code)",
    )
    trust.add_argument(
        "--trust-key",
        metavar="KEY",
        help="load an artifact signed with this public key: ed25519:..., or a file of such keys",
    )


def trust_of(options: argparse.Namespace) -> "bool | tuple[PublicKey, ...]":
    """The trusted keys that the arguments of ``add_trust_arguments`` name. Raises ``BadInput``."""
    from tilewright.runtime.artifact import trusted

    return trusted(options.trust if options.trust_key is None else options.trust_key)


def positive(text: str) -> int:
    """An integer of at least 1."""
    return _whole(text, 1)


def seed(text: str) -> int:
    """A seed of random numbers: an integer of at least 0."""
    return _whole(text, 0)


def duration(text: str) -> float:
    """Seconds or minutes: a finite number of at least 0."""
    return _number(text, 86_400.0 * 366)


def some_time(text: str) -> float:
    """Seconds or minutes: a finite number above 0."""
    return _number(text, 86_400.0 * 366, sys.float_info.min)


def tolerance(text: str) -> float:
    """A relative tolerance, at least -1."""
    return _number(text, float("inf"), -1.0)


def _whole(text: str, least: int) -> int:
    value = int(text) if text.isdecimal() and len(text) < 20 else -1
    if not least <= value <= _MOST:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no whole number of at least {least}")
    return value


def _number(text: str, most: float, least: float = 0.0) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        begin = "above 0" if least == sys.float_info.min else f"from {least:g}"
        raise argparse.ArgumentTypeError(f"{shown(text)} is no number {begin} to {most:g}")
    return value


def size(text: str) -> int:
    """A size in bytes."""
    count = parse_size(text)
    if count is None:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no size; give bytes, or such as 512MiB")
    return count


def loaded(options: argparse.Namespace, listener: Listener = ignore) -> "RunnableModel":
    """The model that the arguments of ``add_model_arguments`` name: compiled, or loaded from an artifact."""
    if not is_artifact(options.model):
        return compiled(options, listener)
    names = ("shapes", "bounds", "dynamic", "target", "backend", "math", "precision")
    names = (*names, "memory_limit", "superopt", "checks", "records", "rules", "operators", "library", *ISOLATION)
    refuse_for(options, f"{options.model} is compiled already", names)
    from tilewright.runtime.loading import load

    trust = options.trust if options.trust_key is None else options.trust_key
    return load(options.model, trust=trust, threads=options.threads, accelerator=options.accelerator)


ISOLATION = ("isolate", "isolate_memory", "isolate_timeout")
_USUAL = {
    "target": "host",
    "backend": "cpu",
    "dynamic": "auto",
    "math": Math.DEFAULT.value,
    "precision": Precision.FP32.value,
    "superopt": Superopt.OFF.value,
    "checks": Checks.ON.value,
}


def refuse_for(options: argparse.Namespace, reason: str, names: Sequence[str]) -> None:
    """Raise ``BadInput`` if one of these arguments of ``add_compile_arguments`` does not have its default value."""
    given = [name for name in names if (value := getattr(options, name)) and value != _USUAL.get(name)]
    if given:
        said = ", ".join(f"--{name.rstrip('s') if name in ('shapes', 'bounds') else name}" for name in given)
        raise BadInput(f"{reason}: leave {said.replace('_', '-')} out")


def is_artifact(path: Path) -> bool:
    """Whether the file is an artifact (a zip), not an ONNX model."""
    try:
        with open_regular(path) as file:
            return file.read(len(_ZIP)) == _ZIP
    except OSError:
        return path.suffix == ".tw"


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings of the environment, with ``--records`` in place of theirs. Raises ``BadInput`` if it is missing."""
    settings = Settings.from_environment()
    if options.records is None:
        return settings
    if not os.path.lexists(options.records):
        raise BadInput(f"--records: there is no file {options.records}; tilewright tune makes it")
    return replace(settings, records=options.records.absolute())


def compiled(
    options: argparse.Namespace,
    listener: Listener = ignore,
    settings: Settings | None = None,
    program: object = None,
) -> "CompiledModel":
    """Compile the model that the arguments of ``add_compile_arguments`` name, or ``program`` in its place."""
    from tilewright.api import compile as compile_model
    from tilewright.isolation import Isolation

    given = {"memory": options.isolate_memory, "timeout": options.isolate_timeout}
    limits = {name: value for name, value in given.items() if value is not None}
    return compile_model(
        options.model if program is None else program,
        shapes=shapes(options.shapes),
        bounds=bounds(options.bounds),
        dynamic=options.dynamic,
        math=options.math,
        precision=options.precision,
        memory_limit=options.memory_limit,
        superopt=options.superopt,
        checks=options.checks,
        target=options.target,
        backend=options.backend,
        accelerator=options.accelerator,
        library=options.library,
        threads=options.threads,
        operators=operators_of(options.operators),
        rules=rule_paths(options.rules or ())[0],
        isolate=Isolation(**limits) if limits or options.isolate else False,
        settings=settings or settings_of(options),
        listener=listener,
    )


def shapes(texts: list[str]) -> dict[str, tuple[int | str, ...]]:
    """``ids=1,128`` as ``{"ids": (1, 128)}``; a word names a dimension known only at run time. Raises ``BadInput``."""
    return pairs("--shape", texts, _shape)


def bounds(texts: list[str]) -> dict[str, int]:
    """``sequence=512`` as ``{"sequence": 512}``. Raises ``BadInput``."""
    return pairs("--bound", texts, _bound)


def files(texts: list[str]) -> Mapping[str, Path]:
    """``ids=a.npy`` as ``{"ids": Path("a.npy")}``. Raises ``BadInput``."""
    return pairs("--input", texts, Path)


def pairs(option: str, texts: list[str], convert: Callable[[str], Item]) -> dict[str, Item]:
    """``NAME=VALUE`` texts as a dictionary. Names may contain ``=``: the last one separates. Raises ``BadInput``."""
    found: dict[str, Item] = {}
    for text in texts:
        name, separator, value = text.rpartition("=")
        if not separator or not name:
            raise BadInput(f"{option} {text}: write NAME=VALUE")
        if name in found:
            raise BadInput(f"{option} gives {name} twice")
        found[name] = convert(value)
    return found


def _shape(text: str) -> tuple[int | str, ...]:
    separator = "," if "," in text or not text.replace("x", "").isdecimal() else "x"
    extents = [extent.strip() for extent in text.split(separator)] if text.strip() else []
    for extent in extents:
        if not extent.isdecimal() and not extent.isidentifier():
            raise BadInput(f"--shape ...={text}: `{extent}` is neither a number nor the name of a dimension")
    return tuple(_count("--shape", extent) if extent.isdecimal() else extent for extent in extents)


def _bound(text: str) -> int:
    return _count("--bound", text)


def _count(option: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise BadInput(f"{option} ...={shown(text)}: write a whole number of at most 18 digits")
    return int(text)
