"""The interface to an operating system, and functions of its libraries."""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from enum import Enum
from typing import Protocol, TypeAlias

from tilewright.base.errors import MeasureError, UnsupportedTarget

STACK_BYTES = 8 << 20
"""Of a thread, where the system's default may be less: that of Linux."""


Find: TypeAlias = Callable[[str], int | None]
"""The address of a function by its name; None if there is none."""


class Access(Enum):
    """What may be done with pages; never writing and executing."""

    NONE = "none"
    READ = "read"
    WRITE = "read, write"
    EXECUTE = "read, execute"


class OperatingSystem(Protocol):
    """What the runtime asks of the system. All methods raise ``OSError`` if the system refuses.

    The order for code: ``map``; write within ``writing``; ``protect`` each part. Addresses and sizes of whole pages.
    """

    @property
    def imports(self) -> frozenset[str]:
        """The system's functions that images may import, beside those of the C library."""
        ...

    @property
    def function(self) -> Find:
        """Finds functions of the C library, and of the system."""
        ...

    def map(self, size: int, *, for_code: bool) -> int:
        """New private pages, zeroed, readable and writable; some of them can become code with ``for_code``."""
        ...

    def unmap(self, address: int, size: int) -> None:
        """Give the pages of one ``map`` back, all of them."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """While this thread writes into pages ``for_code``, before they are protected; it runs no images then."""
        ...

    def protect(self, address: int, size: int, access: Access) -> None:
        """Set what may be done with pages. Code is made visible to all processors."""
        ...

    def create_thread(self, function: int, argument: int) -> int:
        """Start a thread that calls native code with one pointer; handlers of signals never run on it."""
        ...

    def join_thread(self, thread: int) -> None:
        """Wait for the end of a thread that was created, once."""
        ...

    def pinned(self, threads: Sequence[int], processors: Sequence[int]) -> AbstractContextManager[None]:
        """Keep the caller on the first processor, and each of ``threads`` on one of the next ones.

        Raises ``MeasureError`` if the system has no such thing, or refuses a processor.
        """
        ...


def in_libraries(*names: str | None) -> Find:
    """Looks into libraries in turn, those that are there; None: all that the process has loaded."""
    libraries: list[ctypes.CDLL] = []
    for name in names:
        with suppress(OSError):
            libraries.append(ctypes.CDLL(name))

    def find(name: str) -> int | None:
        for library in libraries:
            function = getattr(library, name, None)
            if function is not None:
                return ctypes.cast(function, ctypes.c_void_p).value
        return None

    return find


WORD = ctypes.c_void_p
SIZE = ctypes.c_size_t
INT = ctypes.c_int
_Type: TypeAlias = type[ctypes.c_void_p] | type[ctypes.c_size_t] | type[ctypes.c_int] | type[ctypes.c_long]


def bound(find: Find, name: str, result: _Type | None, *arguments: _Type) -> Callable[..., int]:
    """The function ``name``, callable. Raises ``UnsupportedTarget`` if the system has none."""
    address = find(name)
    if address is None:
        raise UnsupportedTarget(f"this system is too old to load code: its libraries have no function {name}")
    return ctypes.CFUNCTYPE(result, *arguments, use_errno=True)(address)


def refuse_pinning(system: str, processors: Sequence[int]) -> None:
    """Raise ``MeasureError`` if threads are to be kept on processors."""
    if processors:
        raise MeasureError(f"a thread can't be kept on one processor: {system} has no such thing, or it is not used")
