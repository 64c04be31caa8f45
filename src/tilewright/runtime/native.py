"""A compiled model as native code: NumPy arrays in, NumPy arrays out, one native call between.

``run`` is optimized for speed, as for a small model Python takes most of the time. The rare cases (an array that needs
a copy, a wrong feed, an error) are in ``executable`` and ``feeds``.
"""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.errors import (
    BadArtifact,
    BadInput,
    IndexOutOfRange,
    InternalError,
    OutOfBounds,
    ResourceLimit,
    TilewrightError,
    Timeout,
)
from tilewright.runtime import abi
from tilewright.runtime.context import SMALL, Context, Kept
from tilewright.runtime.entry import Entry
from tilewright.runtime.executable import BoundRun, Executable, checked_threads
from tilewright.runtime.interrupts import raise_fetched
from tilewright.runtime.loader import LoadedImage, load_image
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.memory import address_of
from tilewright.runtime.pool import shared_pool
from tilewright.runtime.results import Results
from tilewright.runtime.timeline import Timeline, new_list, timeline

_LONGEST_SECONDS = 1e9
"""The maximum timeout in seconds; longer ones are reduced to it. In nanoseconds it fits in 64 bits."""


class NativeExecutable(Executable):
    """An image with its manifest and constants.

    ``objects``: relocatable objects of the image; ``constants``: the arrays of the manifest's constants, in its order.
    ``threads``: maximum per call; by default the cores that this process may use (``sizing``). Raises ``BadArtifact``
    if the parts do not fit each other or this machine.
    """

    def __init__(
        self,
        manifest: Manifest,
        objects: Sequence[bytes],
        constants: Sequence[Array] = (),
        *,
        threads: int | None = None,
        imports: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(manifest, constants, threads)
        self._image = load_image(objects, imports)
        _check_version(self._image)
        _check_threads(self._image)
        self._entry = Entry(self._image.symbol(abi.ENTER))
        self._main = self._image.symbol(abi.MAIN)
        self._pool = shared_pool()
        names = [symbol.name for symbol in manifest.symbols]
        self._workspace_at = names.index(manifest.workspace) if isinstance(manifest.workspace, str) else None
        self._results = Results(len(manifest.outputs))
        self._kept = Kept()
        self._free = self._kept.free
        is_small = isinstance(manifest.workspace, int) and manifest.workspace <= SMALL
        self._give = self._free.append if is_small else self._kept.give

    def run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, Array] | None = None,
        *,
        threads: int | None = None,
        timeout: float | None = None,
    ) -> list[Array]:
        arrays = self._accept(feeds)
        pointers = [address_of(array) for array in arrays]
        extents, shapes = self._shapes(arrays) if self.manifest.symbols else ((), self._static_shapes)
        wanted = self.threads if threads is None else checked_threads(threads)
        if out:
            results = self._outputs(out, arrays, shapes)
            pointers += [address_of(array) for array in results]
            self._call(pointers, extents, wanted, timeout)
            return results
        results = list[Array]()
        for shape, dtype in shapes:
            result, address = self._results.new(shape, dtype)
            results.append(result)
            pointers.append(address)
        self._call(pointers, extents, wanted, timeout)
        return results

    @property
    def kept_bytes(self) -> int:
        """Bytes of workspace and of large results kept for later calls (bounded by ``Kept`` and ``Results``)."""
        return self._kept.workspace_bytes + self._results.kept_bytes

    def _run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, Array],
        threads: int | None,
        timeout: float | None,
        runs: int,
        /,
    ) -> tuple[list[Array], list[float]]:
        """The clock is in the native code."""
        times = self._new_times()
        arrays = self._accept(feeds)
        extents, shapes = self._shapes(arrays) if self.manifest.symbols else ((), self._static_shapes)
        results = self._outputs(out, arrays, shapes)
        pointers = [address_of(array) for array in (*arrays, *results)]
        wanted = self.threads if threads is None else checked_threads(threads)
        for _ in range(runs):
            self._call(pointers, extents, wanted, timeout, times)
        return results, [float(passed) * 1e-9 for passed in times[1:]]

    def _new_times(self) -> Array:
        """Zero for the clock, and for each call."""
        return np.zeros(1 + len(self.manifest.calls), np.int64)

    def timeline(self, feeds: Mapping[str, object]) -> Timeline:
        """When the kernels of one run, and their chunks on each thread, began and ended. Raises as ``run``."""
        times, listed = self._new_times(), new_list()
        arrays = self._accept(feeds)
        extents, shapes = self._shapes(arrays)
        results = self._outputs({}, arrays, shapes)
        context = self._context_for((*arrays, *results), extents)
        context.record_chunks(address_of(listed))
        failure = self._enter(context, self.threads, None, times)
        if failure is not None:
            raise failure
        return timeline(times, listed)

    def _bound(
        self, inputs: Sequence[Array], outputs: Sequence[Array], extents: Sequence[int], threads: int, /
    ) -> BoundRun:
        idle = deque([self._context_for((*inputs, *outputs), extents)])  # empty during a run

        def run(timeout: float | None) -> None:
            try:
                taken = idle.pop()
            except IndexError:
                raise BadInput("these arrays are in use by another run: bind others for each thread") from None
            try:
                failure = self._enter(taken, threads, timeout)
            finally:
                if timeout is not None:
                    taken.set_deadline(0)  # in case that an exception came before the native code
                idle.append(taken)
            if failure is not None:
                raise failure

        return run

    def _call(
        self,
        pointers: Sequence[int],
        extents: Sequence[int],
        threads: int,
        timeout: float | None,
        times: Array | None = None,
    ) -> None:
        try:
            context = self._free.pop()
        except IndexError:
            context = self._new_context()
        context.fill(pointers)
        if extents:
            self._size(context, extents)
        failure = self._enter(context, threads, timeout, times)
        # A context whose call was aborted (by Ctrl-C just before or after it) is in an unknown state, and is dropped.
        self._give(context)
        if failure is not None:
            raise failure

    def _context_for(self, arrays: Sequence[Array], extents: Sequence[int]) -> Context:
        """A new context for runs on these inputs and outputs."""
        context = self._new_context()
        context.fill([address_of(array) for array in arrays])
        self._size(context, extents)
        return context

    def _size(self, context: Context, extents: Sequence[int]) -> None:
        """Set the run-time extents of the next calls, and provide their workspace."""
        context.set_extents(extents)
        if self._workspace_at is not None:
            context.reserve(extents[self._workspace_at])

    def _enter(
        self, context: Context, threads: int, timeout: float | None, times: Array | None = None
    ) -> TilewrightError | None:
        """One native call, with what is in ``context``; its error."""
        usable = self._pool.ensure(threads, self._image) if threads > 1 else 1
        context.staff(self._pool.address, usable)
        if times is not None:
            context.record_times(address_of(times))
        if timeout is not None:
            context.set_deadline(time.perf_counter_ns() + nanoseconds(timeout))
        code = self._entry.call(context.address)
        if times is not None:
            context.record_times(0)
        return self._failure(context, code) if code else None

    def _new_context(self) -> Context:
        self._pool.watch(self._image)
        manifest = self.manifest
        return Context(
            main=self._main,
            leading=len(manifest.inputs) + len(manifest.outputs),
            constants=[address_of(array) for array in self.constants],
            symbols=len(manifest.symbols),
            workspace=manifest.workspace if isinstance(manifest.workspace, int) else 0,
            scratch=manifest.scratch,
        )

    def _failure(self, context: Context, code: int) -> TilewrightError:
        """The error in the context's record. Raises the exception of a signal handler."""
        if code == abi.ErrorCode.INTERRUPTED:
            raise_fetched(context.take_exception())
        recorded, site, value, bound = context.error()
        sites = self.manifest.sites
        where = sites[site] if recorded and 0 <= site < len(sites) else "the model"
        return _error(code, where, value, bound)


def _error(code: int, where: str, value: int, bound: int) -> TilewrightError:
    match code:
        case abi.ErrorCode.OUT_OF_BOUNDS:
            return OutOfBounds(f"{where}: index {value} is outside 0..{bound - 1}")
        case abi.ErrorCode.CANCELLED:
            return Timeout(f"{where} was stopped: the run took longer than its timeout")
        case abi.ErrorCode.LIMIT:
            return ResourceLimit(f"{where}: a loop reached {value} iterations; the limit is {bound}")
        case abi.ErrorCode.INDEX | abi.ErrorCode.INDEX_FROM_END:
            return IndexOutOfRange(where, value, bound, from_end=code == abi.ErrorCode.INDEX_FROM_END)
        case _:
            return InternalError(f"{where}: native code ended with the unknown error code {code}")


def nanoseconds(seconds: object) -> int:
    """A timeout in nanoseconds. Raises ``BadInput`` if it is not a number, or below 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not float(seconds) >= 0:
        raise BadInput(f"timeout={seconds!r}: give seconds, 0 or more, or None for no limit")
    return math.ceil(min(float(seconds), _LONGEST_SECONDS) * 1e9)


def _check_threads(image: LoadedImage) -> None:
    """Raise ``BadArtifact`` if the threads' functions are not code, or threads can be started but not ended."""
    if abi.WORKER in image:
        image.symbol(abi.WORKER)
        image.symbol(abi.STOP)
    if abi.TICKER in image:
        image.symbol(abi.TICKER)


def _check_version(image: LoadedImage) -> None:
    version = int.from_bytes(image.constant(abi.VERSION_SYMBOL, 4), "little", signed=True)
    if version != abi.VERSION:
        raise BadArtifact(
            f"the image was compiled for version {version} of the runtime's interface, and this is {abi.VERSION}; "
            "compile the model again with this Tilewright"
        )
