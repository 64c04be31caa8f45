"""``tilewright rules``: generate, prune and verify rewrite rules."""

import argparse

from rich.console import Console

from tilewright.cli import rules_generate, rules_prune, rules_verify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", help="generate, prune or verify")
    rules_generate.add_arguments(actions.add_parser("generate", help="find rules by enumeration"))
    rules_prune.add_arguments(actions.add_parser("prune", help="drop rules that other rules imply"))
    rules_verify.add_arguments(actions.add_parser("verify", help="prove rules, or find counterexamples"))


def execute(options: argparse.Namespace, console: Console) -> int:
    """Run the action."""
    verbs = {"generate": rules_generate, "prune": rules_prune, "verify": rules_verify}
    return verbs[options.action].execute(options, console)
