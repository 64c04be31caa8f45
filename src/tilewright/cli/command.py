"""Selects the verb, parses its arguments, runs it, and turns errors into messages and an exit status."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from rich.console import Console

from tilewright import __version__
from tilewright.base.errors import MOST_CHARACTERS, InternalError, OutOfMemory, TilewrightError, Unsupported
from tilewright.base.garbage import seldom_collecting
from tilewright.base.linux import require_linux
from tilewright.base.memory import out_of_memory
from tilewright.base.names import bounded, printable
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console

VERBS: Mapping[str, str] = {
    "compile": "compile a model and save it as an artifact",
    "run": "compile a model and run it once",
    "bench": "compare speed and results with another engine",
    "explain": "show what can be compiled, and how each node was compiled",
    "tune": "search for faster schedules by measuring on this machine",
    "optimize": "search for an equivalent graph that takes less time",
    "quantize": "quantize a model to int8 within a bound of accuracy",
    "report": "write tuning results as an HTML page",
    "fleet": "share devices: serve, join, status, certs, agent, doctor",
    "doctor": "show this machine's capabilities and configuration problems",
    "repro": "pack a model or one kernel into a bundle that reproduces a run",
    "rerun": "run a bundle that repro packed",
    "sign": "sign an artifact; generate or show keys",
    "rules": "generate, prune or verify rewrite rules",
    "profile": "show the time of each kernel",
    "service": "compile models for others, over HTTP",
    "accelerator": "configurations of the accelerator: area, synthesize, search",
}

PIPED = 160
"""Columns of output that goes to a pipe or a file."""


class Verb(Protocol):
    """The interface of a verb's module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""
        ...

    def execute(self, options: argparse.Namespace, console: "Console") -> int:
        """Run the verb and return its exit status. Raises ``TilewrightError``."""
        ...


def _console() -> "Console":
    """A console on standard output; a pipe has no width, so it gets ``PIPED`` columns."""
    console = plain_console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED
    return console


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status. Raises ``SystemExit`` for ``--help`` and for malformed arguments."""
    reconfigure: Callable[..., None] | None = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # names of files and of values in models may not be encodable
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = _parser().parse_args(given[:1])
    try:
        require_linux(f"tilewright {chosen.verb}")
    except Unsupported as error:
        return _report(error)
    with seldom_collecting():
        verb = cast(Verb, importlib.import_module(f"tilewright.cli.{chosen.verb}"))
    parser = argparse.ArgumentParser(
        prog=f"tilewright {chosen.verb}", description=VERBS[chosen.verb].capitalize() + "."
    )
    parser.add_argument("--debug", action="store_true", help="show where in Tilewright an error was raised")
    try:
        verb.add_arguments(parser)
        status = verb.execute(parser.parse_args(given[1:]), _console())
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    except BrokenPipeError:  # the reader closed the pipe: avoid a second error at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.BROKEN_PIPE
    except MemoryError as error:
        if "--debug" in given:
            raise
        return _report(
            error if isinstance(error, OutOfMemory) else out_of_memory(f"tilewright {chosen.verb} ran", error)
        )
    except Exception as error:  # any other exception is an internal error
        if "--debug" in given:
            raise
        return _report(error)


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {verb:8} {does}" for verb, does in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="tilewright",
        description="A deep-learning compiler: ONNX models to native code.",
        epilog=f"verbs:\n{listed}\n\n`tilewright VERB --help` lists the options of a verb.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    parser.add_argument("verb", choices=VERBS, metavar="VERB", help=" or ".join(VERBS))
    return parser


def _report(error: Exception) -> Status:
    """Print the error on standard error, and return the status of its kind."""
    console = plain_console(stderr=True)
    if isinstance(error, TilewrightError) and not isinstance(error, InternalError):
        console.print(f"error: {error}", style="red", soft_wrap=True)
        return Status.UNSUPPORTED if isinstance(error, Unsupported) else Status.BAD_INPUT
    console.print("a fault of Tilewright, please report it with the output of --debug:", style="red", soft_wrap=True)
    for line in (f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())):
        console.print(printable(bounded(line, MOST_CHARACTERS)), style="red", soft_wrap=True)
    return Status.INTERNAL
