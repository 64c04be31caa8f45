"""Processes that are started to talk: their socket, their last words, and that nothing is left open."""

import os
import sys
from pathlib import Path

import pytest

from tilewright.measure.messages import receive_blocking
from tilewright.measure.spawn import Spawned, spawn
from tilewright.measure.verdicts import MAX_DETAIL

HEAD = """
import argparse, json, os, socket, sys
parser = argparse.ArgumentParser()
parser.add_argument("--socket", type=int)
parser.add_argument("--color")
parser.add_argument("rest", nargs="*")
given = parser.parse_args()
"""


def start(body: str) -> Spawned:
    return spawn((sys.executable, "-c", HEAD + body), {"color": "red"}, ("--", "a", "b"))


def test_it_gets_a_socket_options_and_the_rest() -> None:
    said = '{"color": given.color, "rest": given.rest, "leads": os.getsid(0) == os.getpgid(0) == os.getpid()}'
    made = start(
        f"text = json.dumps({said}).encode()\n"
        "socket.socket(fileno=given.socket).sendall(len(text).to_bytes(4, 'big') + text)"
    )
    with made.socket:
        made.socket.settimeout(30.0)
        assert receive_blocking(made.socket, 1 << 10) == {"color": "red", "rest": ["a", "b"], "leads": True}
        assert made.socket.recv(1) == b"", "its end is open in no other process"
    assert (made.process.wait(), made.last_words()) == (0, "")


def test_the_end_of_what_it_wrote_to_standard_error_is_kept() -> None:
    made = start(f"sys.stderr.write('begin' + 'x' * {MAX_DETAIL} + 'end\\n')")
    made.socket.close()
    made.process.wait()
    words = made.last_words()
    assert len(words) == MAX_DETAIL - 1, "the last line's end is left out"
    assert words.startswith("x")
    assert words.endswith("xend")
    assert made.errors.closed


def test_what_cant_be_started_leaves_nothing_open() -> None:
    def opened() -> set[str]:
        return {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}

    before = opened()
    with pytest.raises(FileNotFoundError):
        spawn(("no such command",), {})
    assert opened() - before == set()
