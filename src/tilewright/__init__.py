"""Tilewright: a deep-learning compiler, from models of ONNX and PyTorch to native code.

    model = tilewright.compile("model.onnx")
    outputs = model.run(None, {"input": x})
    model.save("model.tw")

    model = tilewright.load("model.tw")  # needs no compiler

``docs/architecture.md`` describes the pipeline and the folders. Importing this package does not import the compiler:
names are loaded at first use.
"""

from importlib import import_module

from tilewright.base import errors
from tilewright.base.garbage import seldom_collecting
from tilewright.base.linux import require_linux

__version__ = "0.1.0"

_ERRORS = {
    name: kind.__module__
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.TilewrightError)
}
_HOMES = _ERRORS | {
    "compile": "tilewright.api",
    "BoundModel": "tilewright.runtime.bound",
    "Checks": "tilewright.base.checks",
    "CompiledModel": "tilewright.model",
    "Dynamic": "tilewright.specialize",
    "Isolation": "tilewright.isolation",
    "load": "tilewright.runtime.loading",
    "Math": "tilewright.base.numerics",
    "Precision": "tilewright.base.numerics",
    "quantize": "tilewright.quantization.quantizer",
    "QuantizedModel": "tilewright.quantization.quantizer",
    "RunnableModel": "tilewright.runtime.runnable",
    "Settings": "tilewright.base.settings",
    "SpecializingModel": "tilewright.specialize",
    "Superopt": "tilewright.base.superopt",
    "Target": "tilewright.target.target",
    "TunedKernel": "tilewright.tune.kernel",
    "tune_kernel": "tilewright.tune.kernel",
    "tune_models": "tilewright.networks.models",
}
__all__ = [*_HOMES, "te"]  # the types are in __init__.pyi  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name != "te" and name not in _HOMES:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    place = _HOMES.get(name, "tilewright.te")
    if not place.startswith(("tilewright.base.", "tilewright.runtime.")):
        require_linux(f"tilewright.{name}")
    try:
        with seldom_collecting():  # modules stay: looking for garbage among them takes an eighth of an import
            home = import_module(place)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("tilewright."):
            raise
        raise ImportError(
            f"tilewright.{name} is not part of tilewright-runtime, which only runs compiled models: "
            "pip uninstall tilewright-runtime, and pip install tilewright"
        ) from error
    return home if name == "te" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *_HOMES, "te"])
