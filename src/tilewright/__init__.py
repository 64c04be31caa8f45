"""Tilewright: a deep-learning compiler, from ONNX models to native code.

    model = tilewright.compile("model.onnx")
    outputs = model.run(None, {"input": x})
    model.save("model.tw")

    model = tilewright.load("model.tw")  # needs no compiler

``docs/architecture.md`` has the way that a model goes and the floors of the house. Importing this package imports no
compiler: what is named here is loaded when it is first used.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "compile": "tilewright.api",
    "CompiledModel": "tilewright.model",
    "Dynamic": "tilewright.specialize",
    "Isolation": "tilewright.isolation",
    "Settings": "tilewright.base.settings",
    "SpecializingModel": "tilewright.specialize",
    "Target": "tilewright.target.target",
    "load": "tilewright.runtime.runnable",
    "TunedKernel": "tilewright.tune.kernel",
    "tune_kernel": "tilewright.tune.kernel",
    "RunnableModel": "tilewright.runtime.runnable",
    # The kinds of errors; tilewright.base.errors has their subclasses.
    "TilewrightError": "tilewright.base.errors",
    "BadInput": "tilewright.base.errors",
    "Unsupported": "tilewright.base.errors",
    "ScheduleError": "tilewright.base.errors",
    "MeasureError": "tilewright.base.errors",
    "OutOfBounds": "tilewright.base.errors",
    "InternalError": "tilewright.base.errors",
}


def __getattr__(name: str) -> object:
    if name == "te":
        return import_module("tilewright.te")
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *_HOMES, "te"])
