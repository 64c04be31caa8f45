"""Arguments that several verbs share."""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tilewright.api import CompiledModel
from tilewright.api import compile as compile_model
from tilewright.base.errors import BadInput

Item = TypeVar("Item")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the shapes it is compiled for, its inputs, threads, and the form of the output."""
    parser.add_argument("model", type=Path, help="an ONNX file")
    parser.add_argument(
        "--shape",
        dest="shapes",
        action="append",
        default=[],
        metavar="NAME=1,128",
        help="the shape of an input; a dimension that is given holds for all inputs that share its name",
    )
    parser.add_argument(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="the value of an input; what is not given is random: normal floats, integers from 0 to 1",
    )
    parser.add_argument("--random-seed", type=int, default=0, metavar="N", help="of the random inputs (default: 0)")
    parser.add_argument(
        "--threads",
        type=_positive,
        default=available_threads(),
        metavar="N",
        help="default: all, %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def available_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compiled(options: argparse.Namespace) -> CompiledModel:
    """The model that the arguments of ``add_model_arguments`` ask for."""
    return compile_model(options.model, shapes=shapes(options.shapes), threads=options.threads)


def shapes(texts: list[str]) -> dict[str, tuple[int | str, ...]]:
    """``ids=1,128`` as ``{"ids": (1, 128)}``; a word is a dimension known at run time. Raises ``BadInput``."""
    return _pairs("--shape", texts, _shape)


def files(texts: list[str]) -> Mapping[str, Path]:
    """``ids=a.npy`` as ``{"ids": Path("a.npy")}``. Raises ``BadInput``."""
    return _pairs("--input", texts, Path)


def _pairs(option: str, texts: list[str], convert: Callable[[str], Item]) -> dict[str, Item]:
    """``NAME=VALUE`` texts; names may contain ``=``, so the last one separates."""
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
    extents = [extent.strip() for extent in text.split(",")] if text.strip() else []
    for extent in extents:
        if not extent.isdecimal() and not extent.isidentifier():
            raise BadInput(f"--shape ...={text}: `{extent}` is neither a number nor the name of a dimension")
    return tuple(int(extent) if extent.isdecimal() else extent for extent in extents)
