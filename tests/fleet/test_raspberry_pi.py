"""The commands of docs/raspberry-pi.md, run in order by a shell. The Pi is an emulator behind a script called ssh."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("capstone")
pytest.importorskip("unicorn")

import tilewright
from tests.backend.shipping.networks import lenet, sample
from tests.fleet.fleets import ROOT, free_port

PAGE = ROOT / "docs" / "raspberry-pi.md"
BOARD = Path(__file__).with_name("emulated_board.py")
_COMMANDS = re.compile(
    r"^<!-- not run: (?:needs a Pi; tests/fleet/test_raspberry_pi|as above)[^\n]*\n```sh\n(.*?)^```$", re.M | re.S
)
_TILEWRIGHT = """\
import sys
from tilewright.cli import fleet_options, main
fleet_options.LOCAL = "tcp://127.0.0.1:{port}"
raise SystemExit(main(sys.argv[1:]))
"""
_JOINED = "until tilewright fleet status | grep -q cortex-a72; do sleep 0.2; done\n"


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    onnx.save(lenet(), tmp_path / "net.onnx")
    x = sample((1, 1, 28, 28))
    x.tofile(tmp_path / "x.bin")
    (tmp_path / "pi").mkdir()
    (tmp_path / "tilewright.py").write_text(_TILEWRIGHT.format(port=free_port()))
    programs = tmp_path / "bin"
    programs.mkdir()
    emulated = f"{sys.executable} {BOARD} ./"
    for name, script in (
        ("tilewright", f'exec {sys.executable} -P {tmp_path}/tilewright.py "$@"'),
        ("scp", 'cp "$1" pi/'),
        ("ssh", f'shift; cd {tmp_path}/pi; exec sh -c "$(echo "$*" | sed "s#[.]/#{emulated}#")"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    commands = "\n".join(_COMMANDS.findall(PAGE.read_text()))
    commands = re.sub(r"^(tilewright fleet join .* &\n)", rf"\1{_JOINED}", commands, flags=re.MULTILINE)
    commands = commands.replace("--minutes 5", "--minutes 0.05 --quiet").replace(
        "bench net.onnx", "bench net.onnx --rounds 1"
    )
    script = f"set -e\ntrap 'kill $(jobs -p) 2> /dev/null' EXIT\n{commands}"
    variables = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "input float32 1x1x28x28 3136 x" in done.stdout
    assert done.stdout.count("they agree") == 2
    assert "millions of simulated cycles" in done.stdout
    found = np.fromfile(tmp_path / "y.bin", np.float32)
    wanted = np.concatenate([output.ravel() for output in tilewright.compile(lenet())(x)])
    np.testing.assert_allclose(found, wanted, atol=1e-5)
