"""A model as one HTML file that runs it: the module, its loader and a form, without anything from elsewhere."""

import base64
import html
import re
from importlib.resources import files

from tilewright.backend.shipping.wasm_module import loader_text


def page_text(module: bytes, name: str) -> str:
    """The page for a WebAssembly module without threads. ``name``: its title."""
    parts = {"NAME": html.escape(name), "MODULE": base64.b64encode(module).decode(), "LOADER": loader_text()}
    page = files("tilewright.backend.shipping").joinpath("page.html").read_text()
    return re.sub(r"@([A-Z]+)@", lambda found: parts[found[1]], page)
