"""``tilewright fleet agent``: the program that runs on a board without Python, and runs there what it is sent."""

import argparse
from pathlib import Path

from rich.console import Console

from tilewright.base.outputs import output
from tilewright.cli.output import emit
from tilewright.cli.status import Status
from tilewright.target.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """For which board, and where to."""
    said = "of the board: x86_64, aarch64 or riscv64; what follows the architecture does not matter"
    parser.add_argument("--target", required=True, metavar="TARGET", help=said)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the file to write")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Write it."""
    from tilewright.backend.shipping.board import agent_program

    path: Path = options.output
    made = agent_program(Target.parse(options.target))
    with output(path, mode=0o777) as file:
        file.write(made)
    if options.json:
        emit({"action": "agent", "file": str(path), "bytes": len(made)})
    else:
        console.print(f"{path}: {len(made)} bytes; copy it to the board", highlight=False, soft_wrap=True)
    return Status.DONE
