"""Converts input values of users to arrays for native code; allocates arrays for outputs.

It accepts NumPy arrays; objects with ``__dlpack__`` (in host memory) or ``__array__``, without a copy if the layout
fits; Python numbers and nested lists, which get the input's dtype if their kind fits. Arrays that are not C-contiguous,
not aligned, or in the other byte order are copied. Dtypes are never converted: an array of another dtype is usually a
mistake, and the message says how to convert it.
"""

import ctypes
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeGuard, cast

import numpy as np

from tilewright.base.arguments import checked
from tilewright.base.arrays import Array, new_array
from tilewright.base.errors import BadFeed, TilewrightError
from tilewright.base.memory import out_of_memory
from tilewright.base.names import nearest, readable, shown
from tilewright.runtime.abi import ALIGNMENT
from tilewright.runtime.manifest import TensorSpec
from tilewright.runtime.tensors import array_of, is_tensor

_DLPACK_HOST: Final = (1, 3, 11, 13)
"""DLPack device types in host memory: CPU, and pinned or managed memory of a GPU driver."""

_array_of_dlpack = cast(Callable[[object], Array], np.from_dlpack)
"""The interface of ``__dlpack__``; only Python 3.13 has it in types."""

_byte_at = cast(Callable[[Array], ctypes.c_char], ctypes.c_char.from_buffer)


class Feed:
    """One input of a model: converts the values given for it."""

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.dtype = spec.dtype.numpy
        self.shape = spec.static_shape
        """None if the shape has symbols."""

    def fits(self, value: object) -> TypeGuard[Array]:
        """Whether native code can read ``value`` unchanged. False does not mean that it is invalid. (This is a hot
        path.)"""
        return (
            type(value) is np.ndarray
            and value.dtype == self.dtype
            and value.shape == self.shape
            and (flags := value.flags).c_contiguous
            and flags.aligned
        )

    def accept(self, value: object) -> Array:
        """A C-contiguous, aligned array of native byte order with this input's dtype and shape.

        Raises ``BadFeed`` with the input, what was expected, what was given, and a remedy.
        """
        array = self._read(value)
        if array.dtype != self.dtype:
            if array.dtype.newbyteorder("=") != self.dtype:
                raise self._bad(array, f"convert it: feeds[{self.name!r}].astype({self.dtype.name!r})")
            array = array.astype(self.dtype)
        self._check_shape(array)
        if not (array.flags.c_contiguous and array.flags.aligned):
            array = self._copied(array)
        return array

    def in_place(self, value: object) -> Array:
        """An array of the memory of ``value``, which native code reads in place. Raises ``BadFeed``."""
        if not issubclass(type(value), np.ndarray) and not hasattr(value, "__dlpack__"):
            raise BadFeed(f"input {self.spec}: {_describe(value)} has no memory to bind; give a NumPy array")
        array = self._read(value)
        if array.dtype != self.dtype:
            raise self._bad(array, f"convert it: feeds[{self.name!r}].astype({self.dtype.name!r})")
        self._check_shape(array)
        if not array.flags.c_contiguous or not array.flags.aligned:
            raise self._bad(
                array, "it is not C-contiguous and aligned, so it would be copied; bind np.array(it, order='C')"
            )
        return array

    def _copied(self, array: Array) -> Array:
        """A C-contiguous copy. Raises ``OutOfMemory``."""
        try:
            return np.array(array, order="C", copy=True)
        except MemoryError as error:
            raise out_of_memory(f"input {self.spec} was copied", error) from error

    def bind(self, array: Array, extents: dict[str, int]) -> None:
        """Add the values of this input's symbols to ``extents``. Raises ``BadFeed`` if another input has others."""
        for extent, given in zip(self.spec.shape, array.shape, strict=True):
            if isinstance(extent, str) and extents.setdefault(extent, given) != given:
                raise BadFeed(
                    f"input {self.spec}: extent {extent!r} is {given} here and {extents[extent]} in another input; "
                    "extents of the same name must be equal"
                )

    def _read(self, value: object) -> Array:
        """An array of the elements of ``value``, whose methods may raise anything."""
        try:
            return self._as_array(value)
        except (TilewrightError, MemoryError):
            raise
        except Exception as error:
            raise BadFeed(
                f"input {self.spec}: {_describe(value)} can't be read as an array ({type(error).__name__}: "
                f"{shown(str(error))}); give a NumPy array"
            ) from error

    def _as_array(self, value: object) -> Array:
        if isinstance(value, np.ma.MaskedArray):
            raise BadFeed(f"input {self.spec}: a masked array was given; use .filled(value) to say what the holes are")
        if isinstance(value, (np.ndarray, np.generic)):
            return np.asarray(cast(Array, value))
        if isinstance(value, (bool, int, float, list, tuple)):
            return self._from_python(cast(object, value))
        if hasattr(value, "__dlpack__"):
            return self._from_dlpack(value)
        if hasattr(value, "__array__"):
            return np.asarray(value)
        raise BadFeed(f"input {self.spec}: {_describe(value)} is no array; give a NumPy array")

    def _from_python(self, value: object) -> Array:
        """Python numbers get the input's dtype, unless a fraction or a sign would be lost."""
        try:
            array = np.asarray(value)
            if array.size and not np.can_cast(array.dtype, self.dtype, "same_kind") and not self._holds(array):
                raise self._bad(array, f"give numbers that {self.spec.dtype} can hold")
            with np.errstate(over="ignore"):
                return np.asarray(value, dtype=self.dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise BadFeed(f"input {self.spec}: {_describe(value)} makes no such array ({error})") from error

    def _holds(self, array: Array) -> bool:
        """Whether Python ints fit this input: NumPy makes them i64, which is of another kind than unsigned types."""
        return array.dtype.kind in "iu" and self.dtype.kind == "u" and array.min() >= 0

    def _from_dlpack(self, value: object) -> Array:
        detach: object = getattr(value, "detach", None)
        if getattr(value, "requires_grad", False) is True and callable(detach):
            value = detach()  # PyTorch refuses to export a tensor that records its history
        device = getattr(value, "__dlpack_device__", None)
        if device is not None and device()[0] not in _DLPACK_HOST:
            raise BadFeed(f"input {self.spec}: {_describe(value)} is not in host memory; move it, e.g. with .cpu()")
        try:
            return array_of(value) if is_tensor(value) else _array_of_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise BadFeed(
                f"input {self.spec}: {_describe(value)} can't be read through DLPack ({error}); give a NumPy array"
            ) from error

    def _check_shape(self, array: Array) -> None:
        expected = self.spec.shape
        fits = len(array.shape) == len(expected) and all(
            isinstance(e, str) or e == given for e, given in zip(expected, array.shape, strict=True)
        )
        if not fits:
            raise self._bad(array, _shape_remedy(self.name, self.shape, array))

    def _bad(self, array: Array, remedy: str) -> BadFeed:
        given = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
        return BadFeed(f"input {self.spec} was given {given}; {remedy}")


@checked(BadFeed, "run")
def _arguments_of_run(
    names: Sequence[str] | None, feeds: Mapping[str, object]
) -> tuple[Sequence[str] | None, Mapping[str, object]]:
    """The arguments of ``run``, normalized."""
    return names, feeds


def given_feeds(feeds: Mapping[str, object]) -> Mapping[str, object]:
    """The inputs of ``run``, by name. Raises ``BadFeed`` if they are not a mapping by name."""
    return feeds if type(cast(object, feeds)) is dict else _arguments_of_run(None, feeds)[1]


def accepted(specs: Sequence[TensorSpec], feeds: Mapping[str, object]) -> dict[str, Array]:
    """An array for each input. Raises ``BadFeed`` for names and values that do not fit."""
    given = given_feeds(feeds)
    names = [spec.name for spec in specs]
    if set(given) != set(names):
        raise wrong_names(names, given)
    return {spec.name: Feed(spec).accept(given[spec.name]) for spec in specs}


def given_names(names: Sequence[str]) -> Sequence[str]:
    """The requested outputs of ``run``. Raises ``BadFeed`` for values that are not names."""
    return _arguments_of_run(names, {})[0] or ()


def wrong_names(expected: Collection[str], given: Mapping[str, object], what: str = "input") -> BadFeed:
    """The error for missing or unknown names; it suggests a similar one."""
    missing = [name for name in expected if name not in given]
    unknown = [name for name in given if name not in expected]
    if unknown:
        other = cast(object, unknown[0])  # names from the user may be any objects
        near = nearest(other, missing or expected, 1) if isinstance(other, str) else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        there = ", ".join(map(readable, expected)) or "none"
        return BadFeed(f"the model has no {what} {shown(other)}{hint}; its {what}s are {there}")
    there = ", ".join(map(readable, expected))
    return BadFeed(f"{what} {', '.join(map(shown, missing))} is missing; the {what}s are {there}")


def new_output(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> tuple[Array, int]:
    """An uninitialized array that starts on a multiple of ``ALIGNMENT``, and its address. Raises ``OutOfMemory``."""
    raw = new_array(math.prod(shape) * dtype.itemsize + ALIGNMENT, "an output")
    address = ctypes.addressof(_byte_at(raw))
    start = -address % ALIGNMENT
    return np.ndarray(shape, dtype, raw, start), address + start


def check_output(spec: TensorSpec, shape: tuple[int, ...], array: object) -> Array:
    """A preallocated output, if it fits. Raises ``BadFeed``."""
    if not isinstance(array, np.ndarray):
        raise BadFeed(f"output {spec}: {_describe(array)} is no NumPy array; preallocated outputs must be")
    found = cast(Array, array)
    if found.dtype != spec.dtype.numpy or found.shape != shape:
        raise BadFeed(
            f"output {spec} was given {found.dtype}{list(found.shape)}; "
            f"allocate it as np.empty({shape}, {spec.dtype.numpy.name!r})"
        )
    if not found.flags.writeable:
        raise BadFeed(f"output {spec}: the array given is read-only; give a writable one")
    if not found.flags.carray:
        raise BadFeed(
            f"output {spec}: the array given is not C-contiguous and aligned, so results would be copied into it; "
            f"allocate it as np.empty({shape}, {spec.dtype.numpy.name!r})"
        )
    return found


def _shape_remedy(name: str, shape: tuple[int, ...] | None, array: Array) -> str:
    if shape is not None and math.prod(shape) == array.size:
        return f"reshape it: feeds[{name!r}].reshape{shape}"
    return "give an array of that shape"


def _describe(value: object) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"
