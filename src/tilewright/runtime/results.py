"""Memory of large results, which is used again once nothing refers to them.

The C library maps blocks above 32 MiB anew each time, so that the run that writes them waits for the system to clear
their pages: 12 of the 49 ms of a convolution whose results take 51 MB.
"""

import ctypes
import math
import weakref
from collections import deque

import numpy as np

from tilewright.base.arrays import Array, Bytes, new_bytes
from tilewright.runtime.abi import ALIGNMENT
from tilewright.runtime.feeds import new_output

LARGE = 32 << 20
"""Bytes from which results have such memory: glibc keeps smaller blocks itself (its ``M_MMAP_THRESHOLD``)."""
REMEMBERED = 64
"""How many of the last large results decide which sizes are kept."""


class Results:
    """Allocates the results of a model, of ``outputs`` in a run.

    At most one run's large results are kept while nobody uses them, and only of sizes that several of the last ones
    had: the memory of a single large run is freed with its results.
    """

    def __init__(self, outputs: int) -> None:
        self._free: deque[Bytes] = deque(maxlen=outputs)
        self._sizes: deque[int] = deque(maxlen=REMEMBERED)

    @property
    def kept_bytes(self) -> int:
        """Bytes that no result uses now."""
        return sum(block.nbytes for block in tuple(self._free))

    def new(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> tuple[Array, int]:
        """An uninitialized array that starts on a multiple of ``ALIGNMENT``, and its address.

        Raises ``OutOfMemory``.
        """
        size = math.prod(shape) * dtype.itemsize
        return new_output(shape, dtype) if size < LARGE else self._large(shape, dtype, size)

    def _large(self, shape: tuple[int, ...], dtype: np.dtype[np.generic], size: int) -> tuple[Array, int]:
        self._sizes.append(size)
        block = self._taken(size)
        address = block.ctypes.data
        # NumPy's views refer to this object, not to the array that they were made from.
        memory = (ctypes.c_ubyte * size).from_address(address)
        weakref.finalize(memory, self._give, block).atexit = False
        return np.ndarray(shape, dtype, memoryview(memory)), address

    def _taken(self, size: int) -> Bytes:
        """A free block of that size, or a new one; blocks of sizes that are not asked for any more are freed."""
        for _ in range(len(self._free)):
            try:
                block = self._free.popleft()
            except IndexError:  # another thread took it
                break
            if block.nbytes == size:
                return block
            if block.nbytes in self._sizes:
                self._free.append(block)
        return new_bytes(size, "an output", ALIGNMENT)

    def _give(self, block: Bytes) -> None:
        if self._sizes.count(block.nbytes) > 1:
            self._free.append(block)
