"""``tilewright rules``: rules of algebra, generated."""

import argparse

from rich.console import Console

from tilewright.cli import rules_generate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do with rules, and the options of that."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", help="generate")
    rules_generate.add_arguments(actions.add_parser("generate", help="find rules by enumeration"))


def execute(options: argparse.Namespace, console: Console) -> int:
    """Do it."""
    return rules_generate.execute(options, console)
