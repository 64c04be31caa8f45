"""Finds the verb, reads its arguments, runs it, and turns errors into messages and an exit status."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

from rich.console import Console

from tilewright import __version__
from tilewright.base.errors import MOST_CHARACTERS, InternalError, OutOfMemory, TilewrightError, Unsupported
from tilewright.base.memory import out_of_memory
from tilewright.base.names import bounded, printable
from tilewright.cli.status import Status

VERBS: Mapping[str, str] = {
    "compile": "compile a model and save it as an artifact",
    "run": "compile a model and run it once",
    "bench": "compare the speed and the results with those of another engine",
    "explain": "say what of a model can be compiled, and what was made of it",
    "tune": "search for faster schedules, by measuring them here",
    "optimize": "look for a graph that computes the same in less time",
    "report": "show what was tuned, as a page",
    "doctor": "show what this machine can do, and what stands in the way",
    "repro": "pack a model or one kernel, to be run again elsewhere",
    "rerun": "run again what repro has packed",
    "sign": "vouch for an artifact with a key, make keys, show them",
    "rules": "find rules of algebra, or prove them",
    "profile": "show where the time of a model goes, kernel by kernel",
}

PIPED = 160
"""Columns of what is written to a pipe or a file."""


class Verb(Protocol):
    """A module of this folder."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""
        ...

    def execute(self, options: argparse.Namespace, console: Console) -> int:
        """Do it; the exit status. Raises ``TilewrightError``."""
        ...


def _console() -> Console:
    """Standard output; what reads from a pipe has no width, and gets all columns of a table."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=PIPED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status. Leaves by ``SystemExit`` for ``--help`` and for malformed arguments."""
    reconfigure: Callable[..., None] | None = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # names of files, and those in models, may be no text
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = _parser().parse_args(given[:1])
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
    except BrokenPipeError:  # whoever read our output has seen enough; nothing is to be written at exit, either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.BROKEN_PIPE
    except MemoryError as error:
        if "--debug" in given:
            raise
        return _report(
            error if isinstance(error, OutOfMemory) else out_of_memory(f"tilewright {chosen.verb} ran", error)
        )
    except Exception as error:  # what is no TilewrightError is a fault, too
        if "--debug" in given:
            raise
        return _report(error)


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {verb:8} {does}" for verb, does in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="tilewright",
        description="A deep-learning compiler: ONNX models to native code.",
        epilog=f"verbs:\n{listed}\n\n`tilewright VERB --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    parser.add_argument("verb", choices=VERBS, metavar="VERB", help=" or ".join(VERBS))
    return parser


def _report(error: Exception) -> Status:
    """Say what is wrong on standard error; whose fault it is decides the status."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if isinstance(error, TilewrightError) and not isinstance(error, InternalError):
        console.print(f"error: {error}", style="red", markup=False)
        return Status.UNSUPPORTED if isinstance(error, Unsupported) else Status.BAD_INPUT
    console.print("a fault of Tilewright, please report it with the output of --debug:", style="red", markup=False)
    for line in (f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())):
        console.print(printable(bounded(line, MOST_CHARACTERS)), style="red", markup=False)
    return Status.INTERNAL
