"""The part of llvmlite's API that Tilewright uses, typed (llvmlite ships no stubs)."""

__version__: str
