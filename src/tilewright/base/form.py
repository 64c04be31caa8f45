"""``Form``: what a compiled model is made into, besides an artifact (``backend.shipping``)."""

from tilewright.base.choices import Choice


class Form(Choice):
    """A form that needs neither Python nor Tilewright to run."""

    PROGRAM = "program"
    """A static executable for Linux, which reads inputs and writes outputs."""
    OBJECT = "object"
    """A relocatable object to be linked into other programs, and its C header."""
    HEADER = "header"
    """The C header alone."""
    WASM = "wasm"
    """A WebAssembly module, and a JavaScript module that loads it."""
    PAGE = "page"
    """An HTML file that has the module, and runs it in a browser."""
