"""Inputs for a compiled model: read from files, or random."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from tilewright.base.arrays import Array, random_array
from tilewright.base.errors import BadFeed
from tilewright.base.input_files import open_regular
from tilewright.runtime.manifest import TensorSpec


def make_feeds(inputs: Sequence[TensorSpec], files: Mapping[str, Path], seed: int) -> dict[str, Array]:
    """An array for every input: from its file, or random.

    Raises ``BadFeed`` for a file that can't be read, an unknown name, or a random input without a fixed shape.
    """
    names = [spec.name for spec in inputs]
    unknown = [name for name in files if name not in names]
    if unknown:
        raise BadFeed(f"--input names {', '.join(unknown)}; the inputs are {', '.join(names) or 'none'}")
    generator = np.random.default_rng(seed)
    return {
        spec.name: _loaded(spec.name, files[spec.name]) if spec.name in files else _drawn(spec, generator)
        for spec in inputs
    }


def _loaded(name: str, path: Path) -> Array:
    try:
        with open_regular(path) as file:
            loaded: object = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadFeed(f"--input {name}: {path} can't be read as an array: {error}") from error
    if not isinstance(loaded, np.ndarray):
        raise BadFeed(f"--input {name}: {path} holds several arrays; save one by numpy.save")
    return cast(Array, loaded)


def _drawn(spec: TensorSpec, generator: np.random.Generator) -> Array:
    if spec.static_shape is None:
        raise BadFeed(f"input {spec} has dimensions that are known at run time only; give --shape or --input")
    return random_array(spec.dtype, spec.static_shape, generator)
