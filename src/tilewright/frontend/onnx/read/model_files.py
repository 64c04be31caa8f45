"""The files that a model is in: nothing that is made from it may be written over them (``base.outputs``)."""

import os
from pathlib import Path

import onnx

from tilewright.base.errors import TilewrightError
from tilewright.frontend.onnx.read import external_data


def files_of(model: str | os.PathLike[str] | onnx.ModelProto) -> tuple[Path, ...]:
    """The model's file and those of its external data; of a model that can't be read, its path alone."""
    if isinstance(model, onnx.ModelProto):
        return ()
    path = Path(model)
    try:
        locations = external_data.locations(path) if path.is_file() else ()
    except (OSError, ValueError, TilewrightError):  # importing it says what is wrong
        locations = ()
    return (path, *(path.parent / location for location in locations))
