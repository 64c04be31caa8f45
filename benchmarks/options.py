"""Command-line options that benchmarks of peers share: how a contest is held."""

import argparse
from pathlib import Path

from .contest import PEERS, Terms
from .harness import Plan

ROUNDS = 8


def add_terms(parser: argparse.ArgumentParser, seconds: float) -> None:
    """Add the options; `seconds` is the default time for a peer on a case."""
    parser.add_argument("--peers", type=names, default=list(PEERS), help=f"default {','.join(PEERS)}")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="numbers of threads, default 1,2")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="of timing per peer and case, default %(default)s"
    )
    parser.add_argument("--build-limit", type=float, default=600.0, help="seconds to build, default %(default)s")
    parser.add_argument("--lock", type=Path, help="hold an exclusive lock on this file while timing")


def terms_of(options: argparse.Namespace) -> Terms:
    """What the options say: eight slots, each with a quarter of its length as warm-up before it."""
    slot = options.seconds / ROUNDS
    return Terms(Plan(ROUNDS, slot, warm_up=slot / 4), options.peers, options.build_limit, options.lock)


def numbers(text: str) -> list[int]:
    """ "1,2" -> [1, 2]"""
    return [int(part) for part in text.split(",")]


def names(text: str) -> list[str]:
    """ "a,b" -> ["a", "b"]"""
    return text.split(",")
