"""``Executable``: a compiled model of any back end: NumPy arrays in, NumPy arrays out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.errors import BadArtifact, BadFeed, BadInput
from tilewright.base.names import readable, shown
from tilewright.runtime import abi
from tilewright.runtime.feeds import Feed, check_output, given_feeds, new_output, wrong_names
from tilewright.runtime.manifest import Manifest, evaluate
from tilewright.runtime.memory import aligned_copy
from tilewright.runtime.sizing import default_threads

_Shapes = Sequence[tuple[tuple[int, ...], np.dtype[np.generic]]]

BoundRun = Callable[[float | None], None]
"""Runs a model once on bound arrays, within a timeout in seconds (None: without one)."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The arrays of a model's inputs and outputs, in the manifest's order, and what runs it on them."""

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    run: BoundRun


class Executable(ABC):
    """A manifest, the arrays of its constants, and the code. Any number of threads may call ``run`` at once.

    ``threads``: maximum per call; by default the cores that this process may use (``sizing``). Raises ``BadArtifact``
    if the constants are not those of the manifest.
    """

    def __init__(self, manifest: Manifest, constants: Sequence[Array], threads: int | None) -> None:
        self.manifest = manifest
        self.threads = checked_threads(default_threads() if threads is None else threads)
        self.constants = checked_constants(manifest, constants)
        self._feeds = tuple(Feed(spec) for spec in manifest.inputs)
        self._static_shapes = [(spec.static_shape or (), spec.dtype.numpy) for spec in manifest.outputs]

    def run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, Array] | None = None,
        *,
        threads: int | None = None,
        timeout: float | None = None,
    ) -> list[Array]:
        """Run the model on ``feeds`` (input name -> array) and return its outputs in the manifest's order.

        ``out``: arrays for some or all outputs, which are then returned. They are written in place, so they are
        C-contiguous, and share no memory with inputs or each other. ``threads`` overrides the model's number for this
        call. ``timeout``: seconds for the native code, which checks the clock about every 10 ms. A stopped run leaves
        arrays of ``out`` undefined.

        Raises ``BadFeed`` for an input or output that does not fit, ``IndexOutOfRange`` for an out-of-range index in
        input data (``out`` is undefined then), ``OutOfBounds`` for an access that the bounds-checked mode refused,
        ``Timeout`` for a run that takes longer than ``timeout``, ``ResourceLimit`` after a loop's trip limit, and
        exceptions of signal handlers (``KeyboardInterrupt``), on the main thread.
        """
        return self._run(feeds, out or {}, threads, timeout, 1)[0]

    def timed_run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, Array] | None = None,
        *,
        threads: int | None = None,
        runs: int = 1,
    ) -> tuple[list[Array], list[float]]:
        """``run`` ``runs`` times; also the seconds of each of the manifest's ``calls``, summed over the runs.

        The time between two calls counts for the second.
        """
        return self._run(feeds, out or {}, threads, None, runs)

    def bind(
        self, feeds: Mapping[str, object], out: Mapping[str, Array] | None = None, *, threads: int | None = None
    ) -> Binding:
        """Fix the arrays of all inputs and outputs, for many runs without checks; ``out`` as in ``run``.

        Inputs are read in place in each run, so they are NumPy arrays or have ``__dlpack__``, and need no copy. Raises
        ``BadFeed`` for an input or output that does not fit.
        """
        if set(feeds) != {feed.name for feed in self._feeds}:
            raise self._wrong_names(feeds)
        inputs = [feed.in_place(feeds[feed.name]) for feed in self._feeds]
        extents, shapes = self._shapes(inputs)
        outputs = self._outputs(out or {}, inputs, shapes)
        wanted = self.threads if threads is None else checked_threads(threads)
        return Binding(tuple(inputs), tuple(outputs), self._bound(inputs, outputs, extents, wanted))

    def _bound(
        self, inputs: Sequence[Array], outputs: Sequence[Array], extents: Sequence[int], threads: int, /
    ) -> BoundRun:
        """What runs the model on these arrays, which fit it; ``extents``: the values of all symbols."""
        feeds = {spec.name: array for spec, array in zip(self.manifest.inputs, inputs, strict=True)}
        out = {spec.name: array for spec, array in zip(self.manifest.outputs, outputs, strict=True)}

        def run(timeout: float | None) -> None:
            self._run(feeds, out, threads, timeout, 1)

        return run

    @abstractmethod
    def _run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, Array],
        threads: int | None,
        timeout: float | None,
        runs: int,
        /,
    ) -> tuple[list[Array], list[float]]:
        """See ``timed_run``; a ``timeout``, in seconds, is for one run."""

    @property
    def kept_bytes(self) -> int:
        """Bytes of workspace and of large results kept for later calls."""
        return 0

    def _accept(self, feeds: Mapping[str, object]) -> list[Array]:
        """The inputs in order, each in the form for native code."""
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

    def output_shapes(self, feeds: Mapping[str, object]) -> list[tuple[int, ...]]:
        """The shapes of the outputs for these inputs, without a run. Raises ``BadFeed`` for inputs that do not fit."""
        return [shape for shape, _ in self._shapes(self._accept(feeds))[1]]

    def _shapes(self, arrays: Sequence[Array]) -> tuple[Sequence[int], _Shapes]:
        """The values of all symbols, and the resulting shapes of outputs."""
        found = self._extents(arrays)
        shapes = [(spec.concrete(found), spec.dtype.numpy) for spec in self.manifest.outputs]
        return [found[symbol.name] for symbol in self.manifest.symbols], shapes

    def _extents(self, arrays: Sequence[Array]) -> dict[str, int]:
        """The values of all symbols. Raises ``BadFeed`` if inputs do not fit each other."""
        found: dict[str, int] = {}
        for feed, array in zip(self._feeds, arrays, strict=True):
            feed.bind(array, found)
        for symbol in self.manifest.symbols:
            if symbol.value is None:
                symbol.check(found[symbol.name], "inputs")
            else:
                value = evaluate(symbol.value, found)
                symbol.check(value, "computed from the inputs' shapes")
                if found.setdefault(symbol.name, value) != value:  # it is an extent of an input, too
                    raise BadFeed(
                        f"inputs: extent {symbol.name!r} is {found[symbol.name]}, and has to be {value} for the other "
                        "inputs; give arrays of such sizes"
                    )
        return found

    def _outputs(self, out: Mapping[str, Array], inputs: Sequence[Array], shapes: _Shapes) -> list[Array]:
        """The arrays to compute into: those of ``out``, and new ones. Raises ``BadFeed``."""
        names = [spec.name for spec in self.manifest.outputs]
        if not out.keys() <= set(names):
            raise wrong_names(names, out, "output")
        taken = [(f"input {readable(feed.name)}", array) for feed, array in zip(self._feeds, inputs, strict=True)]
        results: list[Array] = []
        for spec, (shape, dtype) in zip(self.manifest.outputs, shapes, strict=True):
            if spec.name not in out:
                results.append(new_output(shape, dtype)[0])
                continue
            given = check_output(spec, shape, out[spec.name])
            for whose, other in taken:
                if np.may_share_memory(given, other):  # exact, as both are contiguous
                    raise BadFeed(f"output {spec}: its array shares memory with {whose}; give it memory of its own")
            taken.append((f"output {readable(spec.name)}", given))
            results.append(given)
        return results


def checked_threads(threads: int) -> int:
    """The number of threads. Raises ``BadInput`` if it is invalid."""
    if type(threads) is not int or not 1 <= threads <= abi.MAX_THREADS:
        raise BadInput(f"threads={shown(threads)}: the number of threads must be in 1..{abi.MAX_THREADS}")
    return threads


def checked_constants(manifest: Manifest, constants: Sequence[Array]) -> tuple[Array, ...]:
    """The constants, aligned. Raises ``BadArtifact`` if they are not those of the manifest."""
    if len(constants) != len(manifest.constants):
        raise BadArtifact(f"{len(constants)} constants were given; the manifest lists {len(manifest.constants)}")
    for spec, array in zip(manifest.constants, constants, strict=True):
        if array.dtype != spec.dtype.numpy or array.shape != spec.static_shape:
            raise BadArtifact(f"constant {spec} was given {array.dtype}{list(array.shape)}")
    return tuple(aligned_copy(array) for array in constants)
