"""oneDNN's C interface: the only place that knows the names, signatures and numbers of it.

These are of version 3, whose interface is stable. What a function creates is a ``Handle``, which destroys it. All
functions release Python's global lock.
"""

import ctypes
import os
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Final, cast

from tilewright.base.errors import InternalError, Unsupported

NAME: Final = "onednn"
_WHEELS: Final = ("onednn-cpu-gomp", "onednn-cpu-iomp")
"""Wheels whose threads are those of OpenMP: their number can be set for a call."""
_MAJOR: Final = 3
_OPENMP: Final = 2
_REMEDY: Final = "pip install 'tilewright[onednn]'"

_word, _int, _float = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
_FUNCTIONS: Final[Mapping[str, Sequence[type]]] = {
    "dnnl_engine_create": (_word, _int, ctypes.c_size_t),
    "dnnl_engine_destroy": (_word,),
    "dnnl_stream_create": (_word, _word, ctypes.c_uint),
    "dnnl_stream_destroy": (_word,),
    "dnnl_stream_wait": (_word,),
    "dnnl_memory_desc_create_with_tag": (_word, _int, _word, _int, _int),
    "dnnl_memory_desc_create_with_strides": (_word, _int, _word, _int, _word),
    "dnnl_memory_desc_clone": (_word, _word),
    "dnnl_memory_desc_destroy": (_word,),
    "dnnl_memory_create": (_word, _word, _word, _word),
    "dnnl_memory_set_data_handle": (_word, _word),
    "dnnl_memory_destroy": (_word,),
    "dnnl_post_ops_create": (_word,),
    "dnnl_post_ops_append_eltwise": (_word, _int, _float, _float),
    "dnnl_post_ops_destroy": (_word,),
    "dnnl_primitive_attr_create": (_word,),
    "dnnl_primitive_attr_set_scratchpad_mode": (_word, _int),
    "dnnl_primitive_attr_set_post_ops": (_word, _word),
    "dnnl_primitive_attr_destroy": (_word,),
    "dnnl_convolution_forward_primitive_desc_create": (_word, _word, _int, _int, *[_word] * 9),
    "dnnl_matmul_primitive_desc_create": (_word, _word, *[_word] * 5),
    "dnnl_reorder_primitive_desc_create": (_word, *[_word] * 5),
    "dnnl_primitive_desc_destroy": (_word,),
    "dnnl_primitive_create": (_word, _word),
    "dnnl_primitive_execute": (_word, _word, _int, _word),
    "dnnl_primitive_destroy": (_word,),
}
"""All functions that return a status, with the types of their arguments."""


class Number(IntEnum):
    """Constants of the interface."""

    CPU = 1
    F32 = 3
    ANY_LAYOUT = 1
    IN_ORDER = 1
    INFERENCE = 96
    DIRECT = 1
    RELU = 0x20
    CLIP = 0x2E
    OWN_SCRATCHPAD = 1
    UNIMPLEMENTED = 3


class Query(IntEnum):
    """What a primitive's description is asked for: the layout of an argument."""

    SOURCE = 129
    WEIGHTS = 131
    RESULT = 133
    SCRATCHPAD = 136


class Argument(IntEnum):
    """What an array is to a primitive."""

    SOURCE = 1
    RESULT = 17
    WEIGHTS = 33
    BIAS = 41
    SCRATCHPAD = 80


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", _int),
        ("minor", _int),
        ("patch", _int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


class _ExecutionArgument(ctypes.Structure):
    _fields_ = (("argument", _int), ("memory", _word))


class Handle:
    """What a function of the library created; destroyed with this object."""

    def __init__(self, address: int, destroy: Callable[[int], object]) -> None:
        self.address = address
        weakref.finalize(self, destroy, address)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arrays that a primitive is called with, as the library takes them."""

    count: int
    array: ctypes.Array[_ExecutionArgument]
    kept: tuple[Handle, ...]

    @staticmethod
    def of(given: Mapping[Argument, Handle]) -> "Arguments":
        """``given``: memories, by what they are."""
        pairs = [_ExecutionArgument(int(argument), memory.address) for argument, memory in given.items()]
        return Arguments(len(pairs), (_ExecutionArgument * len(pairs))(*pairs), tuple(given.values()))


class Library:
    """The library, with an engine: the CPU."""

    def __init__(self, path: Path) -> None:
        """Raises ``Unsupported`` if it can't be loaded, or is another one than expected."""
        try:
            self._library = ctypes.CDLL(str(path))
            version = self._version()
            self._functions = {name: self._function(name, types) for name, types in _FUNCTIONS.items()}
            self._size_of = ctypes.CFUNCTYPE(ctypes.c_size_t, _word)(("dnnl_memory_desc_get_size", self._library))
            equal = ("dnnl_memory_desc_equal", self._library)
            self._are_equal = ctypes.CFUNCTYPE(_int, _word, _word)(equal)
            query = ("dnnl_primitive_desc_query_md", self._library)
            self._query = ctypes.CFUNCTYPE(_word, _word, _int, _int)(query)
            self._set_threads = ctypes.CFUNCTYPE(None, _int)(("omp_set_num_threads", self._library))
            self._get_threads = ctypes.CFUNCTYPE(_int)(("omp_get_max_threads", self._library))
        except (OSError, AttributeError) as error:
            raise Unsupported(
                f"oneDNN of {path} can't be used ({error}); it needs the system's libgomp: {_REMEDY}"
            ) from error
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        if version.major != _MAJOR or version.cpu_runtime != _OPENMP:
            raise Unsupported(
                f"{path} is oneDNN {self.version}, with threads of kind {version.cpu_runtime}; version "
                f"{_MAJOR} with threads of OpenMP is needed: {_REMEDY}"
            )
        self._process: int | None = None
        """The process that first called with several threads."""
        self.engine = self.create("dnnl_engine_create", "dnnl_engine_destroy", int(Number.CPU), 0)

    def _version(self) -> _Version:
        function = ctypes.CFUNCTYPE(ctypes.POINTER(_Version))(("dnnl_version", self._library))
        return cast(_Version, function().contents)

    def _function(self, name: str, types: Sequence[type]) -> Callable[..., int]:
        return ctypes.CFUNCTYPE(_int, *types)((name, self._library))

    def call(self, name: str, *given: object) -> None:
        """Call a function. Raises ``Unsupported`` for what this library does not implement on this processor."""
        status = self._functions[name](*given)
        if status == Number.UNIMPLEMENTED:
            raise Unsupported(f"oneDNN {self.version} does not implement it on this processor")
        if status != 0:
            raise InternalError(f"{name} of oneDNN {self.version} returned the status {status}")

    def create(self, name: str, destroy: str, *given: object) -> Handle:
        """What a function creates. Raises as ``call``."""
        made = ctypes.c_void_p()
        self.call(name, ctypes.addressof(made), *given)
        return Handle(made.value or 0, self._functions[destroy])

    @property
    def threads(self) -> int:
        """The number of threads for calls of this thread."""
        return cast(int, self._get_threads())

    @contextmanager
    def limited(self, threads: int) -> Generator[None]:
        """Calls of this thread in a ``with`` run on so many threads."""
        before = self.threads
        self._set_threads(threads)
        try:
            yield
        finally:
            self._set_threads(before)

    def usable(self, threads: int) -> int:
        """The number of threads for a call: 1 in a child of a process whose calls had several, as OpenMP's threads do
        not survive a fork, and waiting for them would have no end."""
        if threads == 1:
            return 1
        if self._process is None:
            self._process = os.getpid()
        return threads if self._process == os.getpid() else 1

    def place(self, memory: Handle, address: int) -> None:
        """Move an array to another address."""
        self.call("dnnl_memory_set_data_handle", memory.address, address)

    def wait(self, stream: Handle) -> None:
        """Wait until all calls on a queue have been done."""
        self.call("dnnl_stream_wait", stream.address)

    def stream(self) -> Handle:
        """A queue; calls on it run one after another."""
        return self.create("dnnl_stream_create", "dnnl_stream_destroy", self.engine.address, int(Number.IN_ORDER))

    def any_layout(self, shape: Sequence[int]) -> Handle:
        """The description of an array of floats whose layout the primitive chooses."""
        given = (len(shape), _extents(shape), int(Number.F32), int(Number.ANY_LAYOUT))
        return self.create("dnnl_memory_desc_create_with_tag", "dnnl_memory_desc_destroy", *given)

    def strided(self, shape: Sequence[int], strides: Sequence[int]) -> Handle:
        """The description of an array of floats with strides, in elements."""
        given = (len(shape), _extents(shape), int(Number.F32), _extents(strides))
        return self.create("dnnl_memory_desc_create_with_strides", "dnnl_memory_desc_destroy", *given)

    def described(self, primitive: Handle, what: Query) -> Handle:
        """The description of an argument of the primitive that ``primitive`` describes."""
        found = cast(int | None, self._query(primitive.address, int(what), 0))
        return self.create("dnnl_memory_desc_clone", "dnnl_memory_desc_destroy", found)

    def bytes_of(self, description: Handle) -> int:
        """Bytes of an array."""
        return cast(int, self._size_of(description.address))

    def equal(self, first: Handle, second: Handle) -> bool:
        """Whether two descriptions are of one layout."""
        return bool(self._are_equal(first.address, second.address))

    def memory(self, description: Handle, address: int) -> Handle:
        """An array at an address, which must outlive it."""
        given = (description.address, self.engine.address, address)
        return self.create("dnnl_memory_create", "dnnl_memory_destroy", *given)

    def attributes(self, low: float | None, high: float | None) -> Handle:
        """Attributes of a primitive: its scratchpad is given with each call, and results are at least ``low``, and at
        most ``high``."""
        made = self.create("dnnl_primitive_attr_create", "dnnl_primitive_attr_destroy")
        self.call("dnnl_primitive_attr_set_scratchpad_mode", made.address, int(Number.OWN_SCRATCHPAD))
        if low is not None:
            after = self.create("dnnl_post_ops_create", "dnnl_post_ops_destroy")
            kind, limits = (Number.RELU, (0.0, 0.0)) if high is None else (Number.CLIP, (low, high))
            self.call("dnnl_post_ops_append_eltwise", after.address, int(kind), *limits)
            self.call("dnnl_primitive_attr_set_post_ops", made.address, after.address)
        return made

    def convolution(self, operands: Sequence[Handle | None], window: Sequence[Sequence[int]], attr: Handle) -> Handle:
        """Describes a convolution. ``operands``: source, weights, bias and result; ``window``: strides, dilations less
        one, padding before and after, of each dimension in space."""
        given = (*map(_address, operands), *map(_extents, window), attr.address)
        kind = (int(Number.INFERENCE), int(Number.DIRECT))
        name = "dnnl_convolution_forward_primitive_desc_create"
        return self.create(name, "dnnl_primitive_desc_destroy", self.engine.address, *kind, *given)

    def product(self, operands: Sequence[Handle | None], attr: Handle) -> Handle:
        """Describes a product of matrices. ``operands``: source, weights, bias and result."""
        given = (*map(_address, operands), attr.address)
        name = "dnnl_matmul_primitive_desc_create"
        return self.create(name, "dnnl_primitive_desc_destroy", self.engine.address, *given)

    def reorder(self, source: Handle, result: Handle) -> Handle:
        """Describes a copy from one layout to another."""
        attr, engine = self.attributes(None, None), self.engine.address
        given = (source.address, engine, result.address, engine, attr.address)
        return self.create("dnnl_reorder_primitive_desc_create", "dnnl_primitive_desc_destroy", *given)

    def primitive(self, description: Handle) -> Handle:
        """What is called."""
        return self.create("dnnl_primitive_create", "dnnl_primitive_destroy", description.address)

    def execute(self, primitive: Handle, stream: Handle, arguments: Arguments) -> None:
        """Call a primitive."""
        given = (arguments.count, ctypes.addressof(arguments.array))
        self.call("dnnl_primitive_execute", primitive.address, stream.address, *given)


def _extents(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(numbers))(*numbers)


def _address(handle: Handle | None) -> int | None:
    return None if handle is None else handle.address


@cache
def library() -> Library:
    """The installed library, loaded once. Raises ``Unsupported``, with the remedy, if there is none."""
    for wheel in _WHEELS:
        try:
            listed = files(wheel) or []
        except PackageNotFoundError:
            continue
        found = next((file for file in listed if file.name.startswith("libdnnl.so")), None)
        if found is not None:
            return Library(Path(str(found.locate())).resolve())
    raise Unsupported(f"oneDNN is not installed: {_REMEDY} (or one of {', '.join(_WHEELS)})")
