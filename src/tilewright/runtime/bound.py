"""``BoundModel``: a model with its inputs and outputs in fixed arrays, for many runs without checks or allocations."""

from collections.abc import Mapping

from tilewright.base.arrays import Array
from tilewright.runtime.executable import Binding
from tilewright.runtime.manifest import Manifest


class BoundModel:
    """A model and the arrays of its inputs and outputs; ``RunnableModel.bind`` makes it.

    Each call runs the model on what is in ``inputs`` then, and writes ``outputs``. It has memory of its own, so several
    of one model run at once; one runs once at a time. The arrays must not be resized.
    """

    def __init__(self, manifest: Manifest, binding: Binding) -> None:
        self._inputs = {spec.name: array for spec, array in zip(manifest.inputs, binding.inputs, strict=True)}
        self._outputs = {spec.name: array for spec, array in zip(manifest.outputs, binding.outputs, strict=True)}
        self._results = binding.outputs
        self._run = binding.run

    @property
    def inputs(self) -> Mapping[str, Array]:
        """The arrays that are read, by name; they share the memory of those that were bound."""
        return dict(self._inputs)

    @property
    def outputs(self) -> Mapping[str, Array]:
        """The arrays that are written, by name."""
        return dict(self._outputs)

    def __call__(self, *, timeout: float | None = None) -> tuple[Array, ...]:
        """Run the model; returns the arrays of ``outputs``, the same ones each time, in the model's order.

        ``timeout`` as in ``RunnableModel.run``. Raises ``BadInput`` if another thread is running it, ``Timeout``,
        ``IndexOutOfRange``, and exceptions of signal handlers; outputs are undefined then.
        """
        self._run(timeout)
        return self._results
