"""What ``tilewright`` itself offers: all of it is listed, typed for users, and loaded when it is first used."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from tilewright.base import errors

STUB = Path(tilewright.__file__).with_suffix(".pyi")
USER = """
import tilewright
import numpy as np
from numpy.typing import NDArray
from typing import TypeAlias, assert_type
from tilewright import BadFeed, CompiledModel, TilewrightError, compile, load, te

Array: TypeAlias = NDArray[np.generic]
assert_type(compile("m.onnx"), CompiledModel)
assert_type(load("m.tw"), tilewright.RunnableModel)
assert_type(compile("m.onnx")(np.ones(3)), Array | tuple[Array, ...])


class Tensor:
    requires_grad = False

    def detach(self) -> "Tensor":
        return self


assert_type(compile(object(), example_inputs=Tensor())(Tensor()), Tensor | tuple[Tensor, ...])
assert_type(te.placeholder((4,), name="A"), te.Tensor)
error: TilewrightError = BadFeed("x")
tilewright.compile("m.onnx", threads="two")  # pyright: ignore[reportArgumentType]
"""


def test_all_names_are_listed_and_there() -> None:
    kinds = {n for n, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    assert {"compile", "load", "te", "Target", "Settings", *kinds} <= set(tilewright.__all__) <= set(dir(tilewright))
    for name in tilewright.__all__:
        assert getattr(tilewright, name).__name__.rpartition(".")[2] == name
    with pytest.raises(AttributeError, match="no attribute 'compiel'"):
        _ = tilewright.compiel


def test_importing_loads_no_compiler() -> None:
    code = "import sys, tilewright; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "onnx", "llvmlite", "rich"} & set(ast.literal_eval(loaded))


@pytest.mark.slow
def test_users_get_types(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    chosen = {"typeCheckingMode": "strict", "include": ["user.py"], "reportUnnecessaryTypeIgnoreComment": "error"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({**chosen, "extraPaths": [str(STUB.parent.parent)]}))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_users_of_mypy_get_them_too(tmp_path: Path) -> None:
    """As a package with types that is installed; mypy reads ``.pth`` files of the interpreter that it is given."""
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER.replace("pyright: ignore[reportArgumentType]", "type: ignore[arg-type]"))
    options = ["--strict", "--cache-dir", str(tmp_path / "cache"), "--python-executable", sys.executable]
    command = [sys.executable, "-m", "mypy", *options, "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
