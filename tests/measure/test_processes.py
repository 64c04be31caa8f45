"""What processes ask of the system."""

import subprocess
import sys
from pathlib import Path

import pytest

AUTOGROUP = Path("/proc/self/autogroup")
PROGRAM = """
import os
from pathlib import Path
from tilewright.measure.processes import give_way
before = os.nice(0)
give_way(3)
give_way(4)
print(os.nice(0) - before, Path("/proc/self/autogroup").read_text().split()[-1] == str(os.nice(0)))
"""


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this system ranks no sessions")
def test_a_session_gives_way_to_others() -> None:
    """Nice values count within a session only; also twice in a row, which the system refuses at first."""
    for leads in (True, False):
        command = [sys.executable, "-P", "-c", PROGRAM]
        done = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=leads)
        assert done.stdout.split() == ["7", str(leads)]
