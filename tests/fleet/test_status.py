"""The table of ``tilewright fleet status``."""

import io

from rich.console import Console

from tilewright.cli.fleet_status import table_of

MEMBER: dict[str, object] = {
    "device": {
        "name": "pi",
        "key": "cortex-a72",
        "target": "aarch64,cortex-a72",
        "simulated": "cortex-a72",
        "cores": 4,
        "memory_bytes": 1 << 32,
        "governor": "performance",
        "machine": {"celsius": 51.0},
    },
    "user": None,
    "seconds_left": None,
    "suspect_seconds": None,
    "finished": 3,
    "lost": 0,
    "seen_seconds": 0.5,
}


def test_names_and_keys_are_whole_on_a_narrow_terminal() -> None:
    """They are what ``--device`` takes."""
    written = io.StringIO()
    Console(file=written, width=80).print(table_of([MEMBER]))
    assert " pi " in written.getvalue() and " cortex-a72 " in written.getvalue()
    assert "…" not in written.getvalue()
