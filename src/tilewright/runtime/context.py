"""The memory of one call: the ABI's context block, pointers, extents, arena and scratch.

A model keeps unused contexts in a free list, so that a call allocates nothing, and several threads may call at once.
Their memory is bounded by the use of recent calls (``Kept``).
"""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Final

from tilewright.base.arrays import Bytes
from tilewright.runtime import abi
from tilewright.runtime.memory import address_of, aligned, round_up

KEPT_CONTEXTS: Final = 16
"""Maximum free contexts of a model; further concurrent calls allocate new ones."""
KEPT_BYTES: Final = 64 << 20
"""Bytes of workspace that a model may always keep between calls."""
REMEMBERED_CALLS: Final = 64
SMALL: Final = KEPT_BYTES // KEPT_CONTEXTS
"""Bytes up to which a workspace is kept in every context."""
_WORD = 8
_ERROR = struct.Struct("<qqqq")
_EXCEPTION = struct.Struct("<3Q")


class Context:
    """Memory for calls to one image, one call at a time.

    ``leading``: number of pointers that change with each call (inputs and outputs); ``constants``: the addresses after
    them; ``symbols``: number of run-time extents.
    """

    def __init__(
        self, main: int, leading: int, constants: Sequence[int], symbols: int, workspace: int, scratch: int
    ) -> None:
        self._block: Bytes = aligned(abi.CONTEXT_BYTES + _WORD * (leading + len(constants) + symbols))
        self._block.fill(0)
        self.address = address_of(self._block)
        self._memory = self._block.data
        self._arena = aligned(workspace, "the workspace of a run")
        self.needed = workspace
        """Bytes of workspace that the last call needed."""
        self._stride = round_up(scratch, abi.ALIGNMENT)
        self._scratch = aligned(0)
        self._threads = 0
        buffers = self.address + abi.CONTEXT_BYTES
        dims = buffers + _WORD * (leading + len(constants))
        self._pointers = struct.Struct(f"<{leading}Q")
        self._extents = struct.Struct(f"<{symbols}q")
        self._dims_at = dims - self.address
        struct.pack_into("<4Q", self._memory, abi.CONTEXT_MAIN, main, buffers, dims, address_of(self._arena))
        struct.pack_into(f"<{len(constants)}Q", self._memory, abi.CONTEXT_BYTES + _WORD * leading, *constants)

    def staff(self, pool: int, threads: int) -> None:
        """Let calls use ``threads`` threads of the pool at address ``pool``."""
        if threads == self._threads:
            return
        if threads * self._stride > self._scratch.nbytes:
            self._scratch = aligned(threads * self._stride, f"the scratch memory of {threads} threads")
        self._threads = threads
        scratch = address_of(self._scratch) if self._stride else 0
        struct.pack_into("<QqQq", self._memory, abi.CONTEXT_POOL, pool, threads, scratch, self._stride)

    def fill(self, pointers: Sequence[int]) -> None:
        """Set the pointers of the inputs and outputs."""
        self._pointers.pack_into(self._memory, abi.CONTEXT_BYTES, *pointers)

    def set_extents(self, extents: Sequence[int]) -> None:
        """Set the run-time extents."""
        self._extents.pack_into(self._memory, self._dims_at, *extents)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of this context's workspace."""
        return self._arena.nbytes

    def reserve(self, workspace: int) -> None:
        """Ensure at least ``workspace`` bytes of workspace, also for later calls. Raises ``OutOfMemory``."""
        self.needed = workspace
        if workspace > self._arena.nbytes:
            self._arena = aligned(workspace, "the workspace for inputs of these sizes")
            struct.pack_into("<Q", self._memory, abi.CONTEXT_WORKSPACE, address_of(self._arena))

    def record_times(self, array: int) -> None:
        """Let calls add to the times in the array at that address; 0: disabled."""
        struct.pack_into("<Q", self._memory, abi.CONTEXT_TIMES, array)

    def record_chunks(self, array: int) -> None:
        """Let calls list their chunks in the array at that address; 0: disabled."""
        struct.pack_into("<Q", self._memory, abi.CONTEXT_CHUNKS, array)

    def error(self) -> tuple[int, int, int, int]:
        """Code, site, value and bound of the last call's error."""
        return _ERROR.unpack_from(self._memory, abi.CONTEXT_CODE)

    def take_exception(self) -> tuple[int, int, int]:
        """The exception of a signal handler in the last call: owned pointers (``interrupts``)."""
        return _EXCEPTION.unpack_from(self._memory, abi.CONTEXT_EXCEPTION)

    def set_deadline(self, nanoseconds: int) -> None:
        """Set the deadline of the next call, on the clock of ``time.perf_counter_ns``; later calls have none."""
        struct.pack_into("<q", self._memory, abi.CONTEXT_DEADLINE, nanoseconds)


class Kept:
    """The unused contexts of a model, the most recently used at the right of ``free``.

    Their workspace takes at most ``KEPT_BYTES`` plus the sum of the last ``REMEMBERED_CALLS`` calls' needs without the
    largest. So memory of a single large call is freed at its end, memory of repeated calls is kept, and freed after
    that many smaller calls. The least recently used are freed first.
    """

    def __init__(self) -> None:
        self.free: deque[Context] = deque(maxlen=KEPT_CONTEXTS)
        self._needs: deque[int] = deque(maxlen=REMEMBERED_CALLS)
        self._are_small = True

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace kept now."""
        return sum(context.workspace_bytes for context in tuple(self.free))

    def give(self, context: Context) -> None:
        """Store ``context``, whose call has ended, and free others. Models with little workspace need no bound."""
        if self._are_small and context.workspace_bytes <= SMALL:
            self.free.append(context)
            return
        self._are_small = False
        self._needs.append(context.needed)
        self.free.append(context)
        needs = tuple(self._needs)
        surplus = self.workspace_bytes - (KEPT_BYTES + sum(needs) - max(needs))
        while surplus > 0 and self.free:
            surplus -= self.free.popleft().workspace_bytes
