"""Inputs for a compiled model: from files, and random."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from tilewright.base.dtypes import boolean
from tilewright.base.errors import BadFeed
from tilewright.graph import Array
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
        spec.name: _loaded(spec.name, files[spec.name]) if spec.name in files else random_array(spec, generator)
        for spec in inputs
    }


def _loaded(name: str, path: Path) -> Array:
    try:
        loaded: object = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadFeed(f"--input {name}: {path} can't be read as an array: {error}") from error
    if not isinstance(loaded, np.ndarray):
        raise BadFeed(f"--input {name}: {path} holds several arrays; save one by numpy.save")
    return cast(Array, loaded)


def random_array(spec: TensorSpec, generator: np.random.Generator) -> Array:
    """Normal floats, integers from 0 to 1 (they are often indices or masks), booleans."""
    shape = spec.static_shape
    if shape is None:
        raise BadFeed(f"input {spec} has dimensions that are known at run time only; give --shape or --input")
    if spec.dtype.is_float:
        return generator.standard_normal(shape).astype(spec.dtype.numpy)
    if spec.dtype == boolean:
        return generator.integers(0, 2, shape).astype(np.bool_)
    return generator.integers(0, 2, shape).astype(spec.dtype.numpy)
