"""Linux. Any of its pages can become code; on AArch64 the kernel cleans the caches when they first do."""

import ctypes
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from tilewright.base.errors import MeasureError
from tilewright.runtime.system.api import INT, SIZE, WORD, Find, bound
from tilewright.runtime.system.posix import PRIVATE, READ, WRITE, Posix

_ANONYMOUS: Final = 0x20
_MASK_BYTES: Final = 1024
"""Of an affinity mask (glibc's ``cpu_set_t``): up to 8192 processors."""


class Linux(Posix):
    """The interface by functions of the C library."""

    imports = frozenset(("syscall", "clock_gettime"))

    def __init__(self, find: Find) -> None:
        super().__init__(find)
        self.function = find
        self._self = bound(find, "pthread_self", WORD)
        self._get_mask = bound(find, "pthread_getaffinity_np", INT, WORD, SIZE, WORD)
        self._put_mask = bound(find, "pthread_setaffinity_np", INT, WORD, SIZE, WORD)

    def map(self, size: int, *, for_code: bool) -> int:
        """As in ``OperatingSystem``."""
        del for_code
        return self.mapped(size, READ | WRITE, PRIVATE | _ANONYMOUS)

    def writing(self) -> AbstractContextManager[None]:
        """As in ``OperatingSystem``."""
        return nullcontext()

    @contextmanager
    def pinned(self, threads: Sequence[int], processors: Sequence[int]) -> Generator[None]:
        """As in ``OperatingSystem``. Affinity masks are restored at the end."""
        kept = [self._self(), *threads][: len(processors)]
        masks = [_mask_of(self._get_mask, thread) for thread in kept]
        try:
            for thread, processor in zip(kept, processors, strict=False):
                _set_mask(self._put_mask, thread, (1 << processor).to_bytes(_MASK_BYTES, "little"))
            yield
        finally:
            for thread, mask in zip(kept, masks, strict=True):
                _set_mask(self._put_mask, thread, mask)


def _mask_of(get: Callable[..., int], thread: int) -> bytes:
    """A bit for each processor that the thread may run on."""
    mask = ctypes.create_string_buffer(_MASK_BYTES)
    error = get(thread, _MASK_BYTES, mask)
    if error:
        raise MeasureError(f"the processors of a thread are unknown ({os.strerror(error)})")
    return mask.raw


def _set_mask(put: Callable[..., int], thread: int, mask: bytes) -> None:
    error = put(thread, _MASK_BYTES, mask)
    if error:
        raise MeasureError(f"a thread can't be kept on one processor ({os.strerror(error)})")
