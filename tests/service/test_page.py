"""The commands of docs/service.md, run in order by a shell."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.models import model

_COMMANDS = re.compile(
    r"^<!-- not run: (?:tests/service/test_page|as above)[^\n]*\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
PAGE = Path(__file__).parent.parent.parent / "docs" / "service.md"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_the_page_runs(tmp_path: Path) -> None:
    ids = np.ones((1, 4), np.int64)
    table = np.ones((50, 16), np.float32)
    proto = model(
        [helper.make_node("Gather", ["table", "input_ids"], ["y"])], {"input_ids": ids}, ["y"], {"table": table}
    )
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "sequence"
    onnx.save(proto, tmp_path / "model.onnx")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in (("tilewright", f"{sys.executable} -m tilewright"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    script = "\n".join(_COMMANDS.findall(PAGE.read_text()))
    script = "set -e\ntrap 'kill $(jobs -p)' EXIT\n" + script.replace("8123", port)
    variables = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"state": "done"' in done.stdout
    assert "model.tw: OK" in done.stdout
