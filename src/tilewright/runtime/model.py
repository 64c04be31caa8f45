"""A compiled model, ready to run: NumPy arrays in, NumPy arrays out, one native call between.

``run`` is on the path of every inference and written for speed: for a small model Python's part is most of the time.
The rare cases (an array that needs a copy, a wrong feed, an error) are in methods of their own and in ``feeds``.
"""

import math
import time
from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.errors import (
    BadArtifact,
    BadFeed,
    BadInput,
    IndexOutOfRange,
    InternalError,
    OutOfBounds,
    ResourceLimit,
    TilewrightError,
    Timeout,
)
from tilewright.base.names import shown
from tilewright.runtime import abi
from tilewright.runtime.context import SMALL, Context, Kept
from tilewright.runtime.entry import Entry
from tilewright.runtime.feeds import Feed, check_output, given_feeds, new_output, wrong_names
from tilewright.runtime.interrupts import raise_fetched
from tilewright.runtime.loader import LoadedImage, load_image
from tilewright.runtime.manifest import Manifest, evaluate
from tilewright.runtime.memory import address_of, aligned_copy
from tilewright.runtime.pool import shared_pool
from tilewright.runtime.sizing import default_threads

_Shapes = Sequence[tuple[tuple[int, ...], np.dtype[np.generic]]]

_LONGEST_SECONDS = 1e9
"""What is longer, or infinite, is as long as this: 31 years fit into 64 bits of nanoseconds."""


class Executable:
    """An image with its manifest and constants. Any number of threads may call ``run`` at once.

    ``objects`` are relocatable objects that together make the image; ``constants`` the arrays of the manifest's
    constants, in its order. ``threads`` is the most that a call uses; by default what the machine lends to this process
    (``sizing``). Raises ``BadArtifact`` if the parts do not fit each other or this machine.
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
        self.manifest = manifest
        self.threads = checked_threads(default_threads() if threads is None else threads)
        self.constants = checked_constants(manifest, constants)
        self._image = load_image(objects, imports)
        _check_version(self._image)
        _check_threads(self._image)
        self._entry = Entry(self._image.symbol(abi.ENTER))
        self._main = self._image.symbol(abi.MAIN)
        self._pool = shared_pool()
        self._feeds = tuple(Feed(spec) for spec in manifest.inputs)
        self._static_shapes = [(spec.static_shape or (), spec.dtype.numpy) for spec in manifest.outputs]
        names = [symbol.name for symbol in manifest.symbols]
        self._workspace_at = names.index(manifest.workspace) if isinstance(manifest.workspace, str) else None
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
        """Run the model on ``feeds`` (input name -> array) and return its outputs in the manifest's order.

        ``out`` has arrays to write some or all outputs to; those are the ones returned. They are written directly where
        they are C-contiguous and share no memory with inputs. ``threads`` overrides the model's number for this call.
        ``timeout`` is in seconds, for the native code, which looks at the clock about each 10 ms. A run that is stopped
        leaves arrays of ``out`` with any content.

        Raises ``BadFeed`` for an input or output that does not fit, ``IndexOutOfRange`` for an index among the data
        that lies outside (what is in ``out`` is undefined then), ``OutOfBounds`` for an access that the bounds-checked
        mode refused, ``Timeout`` for a run that takes longer than ``timeout``, ``ResourceLimit`` after a loop's trip
        limit, and what a signal's handler raises in the meantime (``KeyboardInterrupt``), on the main thread.
        """
        arrays = self._accept(feeds)
        pointers = [address_of(array) for array in arrays]
        extents, shapes = self._shapes(arrays) if self.manifest.symbols else ((), self._static_shapes)
        wanted = self.threads if threads is None else checked_threads(threads)
        if out:
            results, computed = self._place(out, arrays, shapes)
            pointers += [address_of(array) for array in computed]
            self._call(pointers, extents, wanted, timeout)
            _copy_back(results, computed)
            return results
        results = list[Array]()
        for shape, dtype in shapes:
            result, address = new_output(shape, dtype)
            results.append(result)
            pointers.append(address)
        self._call(pointers, extents, wanted, timeout)
        return results

    @property
    def kept_bytes(self) -> int:
        """Bytes of workspace that are kept for later calls now (``context.Kept`` says how many at most)."""
        return self._kept.workspace_bytes

    def timed_run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, Array] | None = None,
        *,
        threads: int | None = None,
        runs: int = 1,
    ) -> tuple[list[Array], list[float]]:
        """``run`` so many times, and the seconds that each of the manifest's ``calls`` took, all runs together.

        The clock is in the native code; the time between two calls counts for the second.
        """
        times = np.zeros(1 + len(self.manifest.calls), np.int64)
        arrays = self._accept(feeds)
        pointers = [address_of(array) for array in arrays]
        extents, shapes = self._shapes(arrays) if self.manifest.symbols else ((), self._static_shapes)
        results, computed = self._place(out or {}, arrays, shapes)
        pointers += [address_of(array) for array in computed]
        wanted = self.threads if threads is None else checked_threads(threads)
        for _ in range(runs):
            self._call(pointers, extents, wanted, None, times)
        _copy_back(results, computed)
        return results, [float(passed) * 1e-9 for passed in times[1:]]

    def _accept(self, feeds: Mapping[str, object]) -> list[Array]:
        """The inputs in order, each in the form that native code reads."""
        arrays: list[Array] = []
        kind: type = type(feeds)
        if kind is not dict:
            feeds = given_feeds(feeds)
        for feed in self._feeds:
            try:
                value = feeds[feed.name]
            except KeyError:
                raise self._wrong_names(feeds) from None
            arrays.append(value if feed.fits(value) else feed.accept(value))
        if len(feeds) != len(arrays):
            raise self._wrong_names(feeds)
        return arrays

    def _wrong_names(self, feeds: Mapping[str, object]) -> BadFeed:
        return wrong_names([feed.name for feed in self._feeds], feeds)

    def _shapes(self, arrays: Sequence[Array]) -> tuple[Sequence[int], _Shapes]:
        """The values of all symbols, and the outputs' shapes that follow."""
        found: dict[str, int] = {}
        for feed, array in zip(self._feeds, arrays, strict=True):
            feed.bind(array, found)
        for symbol in self.manifest.symbols:
            if symbol.value is None:
                symbol.check(found[symbol.name], "inputs")
            else:
                found[symbol.name] = evaluate(symbol.value, found)
                symbol.check(found[symbol.name], "computed from the inputs' shapes")
        shapes = [(spec.concrete(found), spec.dtype.numpy) for spec in self.manifest.outputs]
        return [found[symbol.name] for symbol in self.manifest.symbols], shapes

    def _place(
        self, out: Mapping[str, Array], inputs: Sequence[Array], shapes: _Shapes
    ) -> tuple[list[Array], list[Array]]:
        """The arrays to return, and those to compute into: others where the given ones can't be written directly."""
        names = [spec.name for spec in self.manifest.outputs]
        if not out.keys() <= set(names):
            raise wrong_names(names, out, "output")
        results: list[Array] = []
        computed: list[Array] = []
        for spec, (shape, dtype) in zip(self.manifest.outputs, shapes, strict=True):
            if spec.name not in out:
                given = target = new_output(shape, dtype)[0]
            else:
                given = check_output(spec, shape, out[spec.name])
                taken = any(np.may_share_memory(given, other) for other in (*inputs, *computed))
                target = given if given.flags.carray and not taken else new_output(shape, dtype)[0]
            results.append(given)
            computed.append(target)
        return results, computed

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
        usable = self._pool.ensure(threads, self._image) if threads > 1 else 1
        context.staff(self._pool.address, usable)
        context.fill(pointers)
        if extents:
            context.set_extents(extents)
            if self._workspace_at is not None:
                context.reserve(extents[self._workspace_at])
        if times is not None:
            context.record_times(address_of(times))
        if timeout is not None:
            context.set_deadline(time.monotonic_ns() + nanoseconds(timeout))
        code = self._entry.call(context.address)
        if times is not None:
            context.record_times(0)
        failure = self._failure(context, code) if code else None
        # A context whose call ended otherwise (by Ctrl-C just before or after it) is in an unknown state, and goes.
        self._give(context)
        if failure is not None:
            raise failure

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
        """What the context's error record says. Raises what a signal's handler has raised."""
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


def _copy_back(results: Sequence[Array], computed: Sequence[Array]) -> None:
    for given, source in zip(results, computed, strict=True):
        if given is not source:
            given[...] = source


def checked_threads(threads: int) -> int:
    """The number itself. Raises ``BadInput`` if it is none or too many."""
    if type(threads) is not int or not 1 <= threads <= abi.MAX_THREADS:
        raise BadInput(f"threads={shown(threads)}: the number of threads must be in 1..{abi.MAX_THREADS}")
    return threads


def nanoseconds(seconds: object) -> int:
    """A timeout in nanoseconds. Raises ``BadInput`` if it is no time, or below 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not float(seconds) >= 0:
        raise BadInput(f"timeout={seconds!r}: give seconds, 0 or more, or None for no limit")
    return math.ceil(min(float(seconds), _LONGEST_SECONDS) * 1e9)


def checked_constants(manifest: Manifest, constants: Sequence[Array]) -> tuple[Array, ...]:
    """The constants, aligned. Raises ``BadArtifact`` if they are not those of the manifest."""
    if len(constants) != len(manifest.constants):
        raise BadArtifact(f"{len(constants)} constants were given; the manifest lists {len(manifest.constants)}")
    for spec, array in zip(manifest.constants, constants, strict=True):
        if array.dtype != spec.dtype.numpy or array.shape != spec.static_shape:
            raise BadArtifact(f"constant {spec} was given {array.dtype}{list(array.shape)}")
    return tuple(aligned_copy(array) for array in constants)


def _check_threads(image: LoadedImage) -> None:
    """Raise ``BadArtifact`` if what threads run is no code, or if they can be started and not ended."""
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
