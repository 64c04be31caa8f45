"""The worker pool of this process: its block of memory, its threads, the thread that counts ticks, fork and exit.

The threads run native code (``backend.cpu.pool_text``; protocol: ``abi``); this file only starts and ends them. They
are the system's, not Python's, as they never use the interpreter. They run the ``tw_worker`` of the first image that
requested threads; that image stays mapped forever.

Fork: a child has its parent's memory and none of its threads. It clears the block in place, so that contexts still
point to it, starts new workers when a model next requests them, and a ticker at once if its parent had one.
"""

import atexit
import ctypes
import threading
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager

from tilewright.base.files import reason
from tilewright.base.forks import ForkLock, at_fork
from tilewright.runtime import abi
from tilewright.runtime.interrupts import hooks
from tilewright.runtime.loader import LoadedImage
from tilewright.runtime.memory import Pages
from tilewright.runtime.system import here
from tilewright.runtime.system.api import OperatingSystem

_Stop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

# Objects that threads may still use after their pool's last Python reference is gone.
_forever: list[tuple[Pages, LoadedImage]] = []


class Pool:
    """Threads and their block shared with native callers. Use the process's one: ``shared_pool``."""

    def __init__(self, spins: int = abi.DEFAULT_SPINS, system: OperatingSystem | None = None) -> None:
        self._system = system or here()
        self._pages = Pages(abi.POOL_BYTES, system=self._system)
        self._spins = spins
        self._image: LoadedImage | None = None
        self._hooks = hooks()
        self._reset()

    @property
    def address(self) -> int:
        """Address of the block, for ``abi.CONTEXT_POOL``. It never changes."""
        return self._pages.address

    def ensure(self, threads: int, image: LoadedImage) -> int:
        """Ensure ``threads - 1`` workers, if the system permits; returns the number of threads that a call can use.

        Cheap if they exist already. An image compiled without a pool gets one thread.
        """
        if len(self._threads) < threads - 1 and not self._full:
            with self._lock:
                self._start(min(threads, abi.MAX_THREADS), image)
        return min(threads, len(self._threads) + 1)

    def watch(self, image: LoadedImage) -> None:
        """Count ticks, by which calls notice deadlines and signals. Cheap if the ticker runs already."""
        if self._ticker is None and not self._stopped:
            with self._lock:
                self._start_ticker(image)

    def pinned(self, processors: Sequence[int]) -> AbstractContextManager[None]:
        """Keep each thread of a call on one processor: the caller on the first, running workers on the next ones.

        They may move again at the end. Raises ``MeasureError`` if the system refuses a processor.
        """
        return self._system.pinned(self._threads, processors)

    def stop(self) -> None:
        """End the workers when they have no chunk, and wait for them. Later calls run on their own thread."""
        with self._lock:
            self._full = self._stopped = True
            if self._image is not None and (self._threads or self._ticker):
                _Stop(self._image.symbol(abi.STOP))(self.address)
            while self._threads:
                self._system.join_thread(self._threads.pop())
            self._put(abi.POOL_WORKERS, 0)
            if self._ticker:
                self._system.join_thread(self._ticker)
                self._ticker = 0

    def after_fork(self) -> None:
        """In a forked child: reset the state of the parent's threads."""
        had_ticker = self._ticker is not None
        ctypes.memset(self.address, 0, abi.POOL_BYTES)
        self._reset()
        if had_ticker and self._image is not None:
            self._start_ticker(self._image)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[int] = []
        self._full = False
        """No more workers: the system refused one, or the pool was stopped."""
        self._stopped = False
        self._ticker: int | None = None
        """The thread; 0 if it has ended, or the system refused it."""
        self._put(abi.POOL_SPINS, self._spins)
        for position, function in enumerate(self._hooks):
            ctypes.c_uint64.from_address(self.address + abi.POOL_HOOKS + 8 * position).value = function

    def _start(self, threads: int, image: LoadedImage) -> None:
        """Start workers until there are ``threads - 1``. The caller holds the lock."""
        if self._full or abi.WORKER not in image:
            return
        worker = self._kept(image).symbol(abi.WORKER)
        while len(self._threads) < threads - 1 and self._start_one(worker):
            pass

    def _start_ticker(self, image: LoadedImage) -> None:
        """Start the ticker, if there is none. The caller holds the lock."""
        if self._ticker is not None or abi.TICKER not in image:
            return
        ticker = self._kept(image).symbol(abi.TICKER)
        self._put(abi.POOL_AWAKE, 2)
        try:
            self._ticker = self._system.create_thread(ticker, self.address)
        except OSError as error:
            self._ticker = 0
            told = "runs notice timeouts and signals at their end only: the system refused a thread"
            warnings.warn(f"{told} ({reason(error)})", stacklevel=2)

    def _kept(self, image: LoadedImage) -> LoadedImage:
        """The image whose code the threads run: the first one, which is never unmapped."""
        if self._image is None:
            self._image = image
            _forever.append((self._pages, image))
        return self._image

    def _start_one(self, worker: int) -> bool:
        """Start the next worker; false, with a warning, if the system refuses."""
        number = len(self._threads) + 1
        slot = self.address + abi.POOL_SLOTS + number * abi.SLOT_BYTES
        ctypes.c_uint64.from_address(slot).value = self.address
        ctypes.c_int64.from_address(slot + 8).value = number
        try:
            self._threads.append(self._system.create_thread(worker, slot))
        except OSError as error:
            self._full = True
            warnings.warn(f"only {number} threads: the system refused another ({reason(error)})", stacklevel=2)
            return False
        self._put(abi.POOL_WORKERS, number)
        return True

    def _put(self, offset: int, value: int) -> None:
        ctypes.c_int32.from_address(self.address + offset).value = value


_MAKING = ForkLock()
_shared: list[Pool] = []
"""The pool, once it was asked for."""


def shared_pool() -> Pool:
    """The only pool of this process; it starts without workers. Ends with the process, and survives a fork."""
    with _MAKING.lock:
        if not _shared:
            pool = Pool()
            atexit.register(pool.stop)
            at_fork(after_in_child=pool.after_fork)
            _shared.append(pool)
        return _shared[0]
