"""Versions of the packages on which results may depend."""

import platform
from importlib.metadata import PackageNotFoundError, version

import llvmlite.binding as llvm

_PACKAGES = ("tilewright", "numpy", "ml-dtypes", "llvmlite", "onnx", "rich", "onnxruntime")


def versions() -> dict[str, str]:
    """Versions of Python, the system, LLVM, and of the packages that are installed, by name."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    found["llvm"] = ".".join(map(str, llvm.llvm_version_info))
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
