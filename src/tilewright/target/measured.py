"""Reads and writes the file of machine parameters measured on this machine, which replace the built-in ones.

    {"form": 1, "processor": "AMD EPYC 9655 (znver5)", "figures": {"fma_latency": 4.0, "near_bytes": 27.0}}

``tilewright doctor --measure`` writes it, ``Target.host`` reads it. A malformed file, or one of another processor, is
ignored with a warning.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from tilewright.base import fields
from tilewright.base.errors import BadInput
from tilewright.base.events import Listener, Warned
from tilewright.base.files import own_folder, reason
from tilewright.base.input_files import read_regular_text
from tilewright.base.names import shown
from tilewright.base.outputs import output
from tilewright.target.machine import FIGURES, figure

_FORM = 1
_MOST_BYTES = 1 << 16
_REMEDY = "run tilewright doctor --measure, or set TILEWRIGHT_MACHINE=off"


def read_figures(path: Path | None, processor: str, listener: Listener) -> dict[str, float]:
    """The parameters measured on ``processor``, by name; empty without a valid file."""
    if path is None:
        return {}
    try:
        return _parsed(read_regular_text(path, _MOST_BYTES), processor)
    except FileNotFoundError:
        return {}
    except OSError as error:
        fault = reason(error)
    except (TypeError, ValueError, RecursionError) as error:
        fault = str(error)
    listener(Warned(f"the measured figures of this machine in {path} are not used: {fault}; {_REMEDY}"))
    return {}


def write_figures(path: Path, processor: str, figures: Mapping[str, float]) -> None:
    """Store ``figures`` of ``processor``, readable by this user only. Raises ``BadInput`` if they can't be written."""
    try:
        fault = own_folder(path.parent)
    except OSError as error:
        fault = reason(error)
    if fault is not None:
        raise BadInput(f"measured figures can't be kept in {path.parent}: {fault}; set TILEWRIGHT_MACHINE")
    content = {"form": _FORM, "processor": processor, "figures": dict(figures)}
    with output(path, mode=0o600) as file:
        file.write(json.dumps(content, indent=1).encode() + b"\n")


def _parsed(text: str, processor: str) -> dict[str, float]:
    """Raises ``ValueError`` or ``TypeError`` if the file is not one that ``write_figures`` writes for ``processor``."""
    content = fields.mapping(json.loads(text))
    if content.get("form") != _FORM:
        raise ValueError("it is no file of figures")
    name, figures = fields.text(content.get("processor")), fields.mapping(content.get("figures"))
    if name != processor:
        raise ValueError(f"they are of {shown(name)}, and this is {shown(processor)}")
    unknown = next((name for name in figures if name not in FIGURES), None)
    if unknown is not None:
        raise ValueError(f"there is no figure {shown(unknown)}")
    return {name: figure(name, str(value)) for name, value in figures.items()}
