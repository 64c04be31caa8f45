"""What ``tilewright`` itself offers: all of it is listed, typed for users, and loaded when it is first used."""

import inspect
import json
import subprocess
import sys
from importlib.util import find_spec
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


COMPILER = {"tilewright.api", "llvmlite", "onnx", "rich"}
"""What stands for the compiler: all of it is slow to import."""
SELDOM = {
    "rich",  # where a report is shown
    "tilewright.backend.shipping.ship",  # emit
    "tilewright.networks",  # tune_models
    "tilewright.offload.splitting",  # accelerator=, library=
    "tilewright.offload.forms",
    "tilewright.superopt.prove.verification",  # rules=
    "tilewright.superopt.search.optimization",  # superopt=
    "tilewright.superoptimizer",
    "tilewright.measure.pool",  # tune_kernel
    "torch",
}
"""What few compilations need, by what asks for it."""


@pytest.mark.parametrize(
    ("code", "never"),
    [
        ("import tilewright", {"numpy", *COMPILER}),
        ("import tilewright.cli", {"numpy", *COMPILER}),
        ("import tilewright; tilewright.load", COMPILER),
        ("import tilewright; tilewright.compile", SELDOM),
    ],
)
def test_importing_loads_nothing_that_is_seldom_used(code: str, never: set[str]) -> None:
    """``--help``, runs of artifacts and compilations would wait for it."""
    code = f"import sys; {code}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert sorted(never & set(loaded.split())) == []


def test_what_is_not_loaded_is_there() -> None:
    """Else the test above would pass for a module that has another name by now."""
    own = {name for name in COMPILER | SELDOM if name.startswith("tilewright.")}
    assert all(find_spec(name) is not None for name in own)


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
