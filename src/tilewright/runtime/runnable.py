"""``RunnableModel``: the public class of models, compiled in this process or loaded from an artifact."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Self, cast, overload

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.checks import Checks
from tilewright.base.errors import BadFeed, OutOfMemory, Unsupported
from tilewright.base.memory import memory_guarded, out_of_memory
from tilewright.base.names import readable, shown
from tilewright.base.numerics import Math, Precision
from tilewright.runtime.bound import BoundModel
from tilewright.runtime.callers import Callers
from tilewright.runtime.executable import Executable
from tilewright.runtime.feeds import given_feeds, given_names
from tilewright.runtime.manifest import TensorSpec
from tilewright.runtime.sizing import default_threads
from tilewright.runtime.tensors import TensorType, is_tensor, tensors_of

Outputs = Mapping[str, Array] | Sequence[Array]
"""Preallocated outputs: by name, or in the order of the outputs that a run returns."""


class Pickled(ABC):
    """What is pickled of a model."""

    @abstractmethod
    def model(self) -> "RunnableModel":
        """The model again, perhaps in another process."""


class RunnableModel:
    """A model as native code. Any number of threads may call it at once.

    It is never changed: ``copy.copy`` and ``copy.deepcopy`` return the model itself. It can be pickled (``load``).
    """

    def __init__(
        self, executable: Executable, signer: str | None = None, pickled: Callable[[], Pickled] | None = None
    ) -> None:
        """``pickled`` makes what is pickled; None: it can't be."""
        self._executable = executable
        self._pickled = pickled
        self.signer = signer
        """For an artifact: the public key, or "this user", whose signature was verified; None: none was verified."""

    @property
    def executable(self) -> Executable:
        """The native code and its manifest."""
        return self._executable

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every input."""
        return self._executable.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every output."""
        return self._executable.manifest.outputs

    @property
    def math(self) -> Math:
        """The numerics policy with which it was compiled."""
        return self._executable.manifest.math

    @property
    def precision(self) -> Precision:
        """The precision that it was compiled with."""
        return self._executable.manifest.precision

    @property
    def checks(self) -> Checks:
        """The policy for out-of-range indices in input data."""
        return self._executable.manifest.checks

    def run(
        self,
        names: Sequence[str] | None,
        feeds: Mapping[str, object],
        *,
        out: Outputs | None = None,
        timeout: float | None = None,
    ) -> list[Array]:
        """The outputs called ``names`` (None: all, in the model's order) for inputs by name, as in ONNX Runtime.

        ``out``: arrays for results: a mapping by name, of some or all outputs, or a sequence with one for each returned
        output. They are written without a copy, and returned. So they must be writable, C-contiguous, of the output's
        dtype and of its shape for these inputs, and share no memory with inputs or each other. If the run raises, their
        contents are undefined.

        ``timeout``: maximum seconds of the native code, to about 10 ms. Signal handlers run meanwhile on the main
        thread, so Ctrl-C stops a run. After a stop, the model can be run again at once.

        Raises ``BadFeed`` if an input is missing, unknown, or of another dtype or shape, an output is unknown, or an
        array of ``out`` does not fit, ``OutOfMemory`` if there is not enough for outputs, workspace and copies of
        inputs, ``Timeout`` if it takes longer than ``timeout``, and exceptions of handlers.
        """
        feeds = given_feeds(feeds)
        executable = self._executable_for(feeds)
        if names is None and out is None:
            return _run(executable, feeds, None, timeout)
        known = [spec.name for spec in executable.manifest.outputs]
        wanted = known if names is None else _known(given_names(names), known)
        results = _run(executable, feeds, None if out is None else _by_name(out, wanted), timeout)
        return [results[known.index(name)] for name in wanted]

    def run_async(
        self,
        names: Sequence[str] | None,
        feeds: Mapping[str, object],
        *,
        out: Outputs | None = None,
        timeout: float | None = None,
    ) -> Future[list[Array]]:
        """``run`` in another thread: a future of its results, or of what it raises.

        The model has as many threads for this as the process may use processors; further runs wait for these, in order.
        Of the runs at one time, one has the worker threads to help it, and the others run on one thread each. Inputs
        and ``out`` are used until the future is done. A run that has not begun can be cancelled; one that has ends by
        itself, or by its ``timeout``, as handlers of signals stop runs of the main thread only. The process does not
        exit before all have ended.
        """
        return self._callers.submit(lambda: self.run(names, feeds, out=out, timeout=timeout))

    @cached_property
    def _callers(self) -> Callers:
        return Callers(default_threads())

    @memory_guarded("a model was bound")
    def bind(self, inputs: Mapping[str, object], outputs: Mapping[str, Array] | None = None) -> BoundModel:
        """The model with fixed arrays, for many runs without checks, copies and allocations.

        ``inputs``: C-contiguous arrays for all inputs by name (NumPy, or with DLPack), whose contents are read in each
        run; their shapes fix all run-time extents. ``outputs``: arrays for some or all outputs, as ``out`` of ``run``;
        the others are allocated. Raises ``BadFeed`` for an array that does not fit, or would be copied,
        ``OutOfMemory``.
        """
        feeds = given_feeds(inputs)
        executable = self._executable_for(feeds)
        names = [spec.name for spec in executable.manifest.outputs]
        given = None if outputs is None else _by_name(outputs, names)
        return BoundModel(executable.manifest, executable.bind(feeds, given))

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] # a tensor is an object, too
        self, *arrays: TensorType
    ) -> TensorType | tuple[TensorType, ...]: ...
    @overload
    def __call__(self, *arrays: object) -> Array | tuple[Array, ...]: ...
    def __call__(self, *arrays: object) -> object:
        """The outputs for inputs by position; a single output is returned without a tuple.

        If an input is a tensor of PyTorch, the outputs are tensors. They have no gradient: a backward pass through them
        raises ``BadInput``.
        """
        feeds = self.by_name(arrays)
        results = _run(self._executable_for(feeds), feeds)
        outputs = tensors_of(results, arrays) if any(map(is_tensor, arrays)) else results
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _executable_for(self, feeds: Mapping[str, object]) -> Executable:
        """The executable for ``feeds``."""
        return self._executable

    def by_name(self, arrays: Sequence[object]) -> dict[str, object]:
        """Inputs by position as inputs by name. Raises ``BadFeed`` for a wrong number."""
        if len(arrays) != len(self.inputs):
            expected = ", ".join(map(str, self.inputs))
            raise BadFeed(f"the model takes {len(self.inputs)} inputs ({expected}), not {len(arrays)}")
        return {spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)}

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[[Pickled], "RunnableModel"], tuple[Pickled]]:
        """Raises ``Unsupported`` if the model can't be pickled."""
        if self._pickled is None:
            raise Unsupported("this model can't be pickled: save it, and load it in the other process")
        return unpickled, (self._pickled(),)


def unpickled(pickled: Pickled) -> RunnableModel:
    """The model of which ``pickled`` was pickled."""
    return pickled.model()


def _run(
    executable: Executable,
    feeds: Mapping[str, object],
    out: Mapping[str, Array] | None = None,
    timeout: float | None = None,
) -> list[Array]:
    try:
        return executable.run(feeds, out, timeout=timeout)
    except OutOfMemory:
        raise
    except MemoryError as error:
        raise out_of_memory("the model was run", error) from error


def _known(names: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """``names``, which must be of outputs. Raises ``BadFeed``."""
    unknown = [name for name in names if name not in known]
    if unknown:
        there = ", ".join(map(readable, known))
        raise BadFeed(f"there is no output {', '.join(map(readable, unknown))}; the outputs are {there}")
    return names


def _by_name(out: Outputs, wanted: Sequence[str]) -> Mapping[str, Array]:
    """Preallocated outputs by name. Raises ``BadFeed``; the arrays themselves are not checked."""
    if isinstance(out, Mapping):
        return out
    if isinstance(out, np.ndarray) or not isinstance(cast(object, out), Sequence):
        raise BadFeed(f"out={shown(out)}: give a mapping by name, or a sequence with an array for each output")
    if len(set(wanted)) != len(wanted):
        raise BadFeed("out= is a sequence, and an output is named twice: give a mapping by name")
    if len(out) != len(wanted):
        raise BadFeed(
            f"out has {len(out)} arrays, and the outputs are {len(wanted)}: {', '.join(map(readable, wanted))}"
        )
    return dict(zip(wanted, out, strict=True))
