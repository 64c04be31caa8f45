"""Calibration data: samples of a model's inputs, read from an ``.npz`` file, checked, and cut into batches.

An array of a model's input has one of two forms:

- one dimension more than the input: a stack of whole feeds, one for each sample;
- as many dimensions: the first one counts samples, and a batch has as many of them as the model's input, or up to
  ``MOST_AT_ONCE`` if that extent is open.
"""

import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed
from tilewright.base.input_files import open_regular
from tilewright.base.memory import Budget
from tilewright.base.names import readable, shown
from tilewright.graph import Value
from tilewright.runtime.feeds import wrong_names
from tilewright.symbolic.expr import Const, Extent

MOST_AT_ONCE = 4
"""Samples in a batch, where the model leaves that open."""


def read_samples(path: Path) -> dict[str, Array]:
    """The arrays of an ``.npz`` file, by name. Raises ``BadFeed`` if it is none, ``ResourceLimit`` if it is too large.

    Sizes are counted before anything is unpacked: few bytes can be packed zeros for all memory.
    """
    try:
        with open_regular(path) as file:
            loaded: object = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise BadFeed(
                    f"{path} holds one array without a name; save all inputs by numpy.savez(path, name=array)"
                )
            budget = Budget(remedy="give fewer samples")
            for member in () if loaded.zip is None else loaded.zip.infolist():
                budget.take(member.file_size, f"{path}: array {readable(member.filename)}")
            return {name: cast(Array, loaded[name]) for name in loaded.files}
    except (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise BadFeed(f"{path} can't be read as an .npz file of arrays: {error}") from error


@dataclass(frozen=True, slots=True)
class Samples:
    """Checked samples. ``batches``: feeds of equal shapes; ``count``: how many samples they hold together.

    ``sizes``: the open extents of the inputs, as the data have them.
    """

    batches: tuple[Mapping[str, Array], ...]
    count: int
    sizes: Mapping[Extent, int]

    @property
    def per_batch(self) -> int:
        """Samples in each batch."""
        return self.count // len(self.batches)

    def first(self, most: int) -> "Samples":
        """About ``most`` samples at the beginning, and at least one batch."""
        kept = self.batches[: max(1, most // self.per_batch)]
        return Samples(kept, self.per_batch * len(kept), self.sizes)


def checked_samples(inputs: Sequence[Value], data: Mapping[str, object]) -> Samples:
    """The samples of ``data``, arrays by the names of ``inputs``.

    Raises ``BadFeed`` for names, types and shapes that do not fit, for no samples, and for NaN and infinities.
    """
    names = [value.name for value in inputs]
    if set(data) != set(names):
        raise wrong_names(names, data)
    if not inputs:
        raise BadFeed("the model has no inputs: there is nothing to calibrate")
    arrays = {value: _array(value, data[value.name]) for value in inputs}
    counts = {value: len(array) for value, array in arrays.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{readable(value.name)}: {count}" for value, count in counts.items())
        raise BadFeed(f"the inputs have different numbers of samples ({told}); give each input for every sample")
    count = next(iter(counts.values()))
    if not count:
        raise BadFeed("the calibration data have no samples; a few dozen typical ones are usual")
    size = _batch_size(arrays, count)
    sizes = _sizes(arrays, size)
    return Samples(tuple(_batch(arrays, start, size) for start in range(0, count, size)), count, sizes)


def _array(value: Value, given: object) -> Array:
    """The samples of one input."""
    name, rank = readable(value.name), len(value.shape)
    if not isinstance(given, np.ndarray):
        raise BadFeed(f"calibration data of input {name}: {shown(given)} is no NumPy array")
    array = cast(Array, given)
    told = f"calibration data of input {value!r} are {array.dtype}{list(array.shape)}"
    if array.dtype != value.dtype.numpy:
        raise BadFeed(f"{told}; convert them by .astype({value.dtype.numpy.name!r})")
    if array.ndim not in (rank, rank + 1) or not array.ndim:
        raise BadFeed(f"{told}; give {rank or 1} dimensions, of which the first counts samples, or a stack of feeds")
    extents = array.shape[1:]
    wanted = value.shape if array.ndim == rank + 1 else value.shape[1:]
    if any(isinstance(e, Const) and e.value != n for e, n in zip(wanted, extents, strict=True)):
        raise BadFeed(f"{told}; after the first dimension, the shape must be {list(map(str, wanted))}")
    if array.dtype.kind not in "biu":
        _refuse_not_finite(array, name)
    return array


def _refuse_not_finite(array: Array, name: str) -> None:
    for number, sample in enumerate(array):
        if not np.isfinite(sample if sample.dtype.kind == "f" else sample.astype(np.float32)).all():
            raise BadFeed(f"calibration data of input {name}: sample {number} has NaN or infinity; leave it out")


def _batch_size(arrays: Mapping[Value, Array], count: int) -> int:
    """Samples in a batch. Raises ``BadFeed`` if inputs or the number of samples do not agree with it."""
    counted = [value for value, array in arrays.items() if array.ndim == len(value.shape)]
    if len(counted) < len(arrays):
        if counted:
            names = ", ".join(readable(value.name) for value in counted)
            raise BadFeed(f"some inputs are stacks of feeds, and others not ({names}); give all in one form")
        return 1
    fixed = {int(value.shape[0].value) for value in counted if isinstance(value.shape[0], Const)}
    if len(fixed) > 1 or 0 in fixed:
        raise BadFeed(
            f"the inputs have batches of {', '.join(map(str, sorted(fixed)))}; give a stack of feeds for each input"
        )
    if not fixed:
        return max(size for size in range(1, MOST_AT_ONCE + 1) if count % size == 0)
    (size,) = fixed
    if count % size:
        raise BadFeed(f"there are {count} samples, and the model takes batches of {size}; give a multiple of that")
    return size


def _batch(arrays: Mapping[Value, Array], start: int, size: int) -> dict[str, Array]:
    return {
        value.name: np.asarray(
            array[start] if array.ndim > len(value.shape) else array[start : start + size], order="C"
        )
        for value, array in arrays.items()
    }


def _sizes(arrays: Mapping[Value, Array], size: int) -> dict[Extent, int]:
    """The open extents. Raises ``BadFeed`` if two inputs have different ones."""
    found: dict[Extent, int] = {}
    for value, array in arrays.items():
        shape = array.shape[1:] if array.ndim > len(value.shape) else (size, *array.shape[1:])
        for extent, given in zip(value.shape, shape, strict=True):
            if isinstance(extent, Extent) and found.setdefault(extent, given) != given:
                raise BadFeed(
                    f"calibration data of input {value!r}: extent {extent.given} is {given} here and {found[extent]} "
                    "in another input"
                )
    if math.prod(found.values()) == 0:
        raise BadFeed("the calibration data have a dimension of extent 0")
    return found
