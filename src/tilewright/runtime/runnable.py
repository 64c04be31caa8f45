"""``RunnableModel``: the public class of models, compiled in this process or loaded from an artifact."""

from collections.abc import Mapping, Sequence
from typing import Annotated, overload

from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.arrays import Array
from tilewright.base.checks import Checks
from tilewright.base.errors import BadArtifact, BadFeed, BadInput, OutOfMemory
from tilewright.base.memory import memory_guarded, out_of_memory
from tilewright.base.names import readable
from tilewright.base.numerics import Math, Precision
from tilewright.base.settings import Settings
from tilewright.runtime import artifact
from tilewright.runtime.abi import MAX_THREADS
from tilewright.runtime.executable import Executable
from tilewright.runtime.feeds import given_feeds, given_names
from tilewright.runtime.manifest import TensorSpec
from tilewright.runtime.native import NativeExecutable
from tilewright.runtime.tensors import TensorType, is_tensor, tensors_of


class RunnableModel:
    """A model as native code. Any number of threads may call it at once."""

    def __init__(self, executable: Executable, signer: str | None = None) -> None:
        self._executable = executable
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
        self, names: Sequence[str] | None, feeds: Mapping[str, object], *, timeout: float | None = None
    ) -> list[Array]:
        """The outputs called ``names`` (None: all, in the model's order) for inputs by name, as in ONNX Runtime.

        ``timeout``: maximum seconds of the native code, to about 10 ms. Signal handlers run meanwhile on the main
        thread, so Ctrl-C stops a run. After a stop, the model can be run again at once.

        Raises ``BadFeed`` if an input is missing, unknown, or of another dtype or shape, or an output is unknown,
        ``OutOfMemory`` if there is not enough for outputs, workspace and copies of inputs, ``Timeout`` if it takes
        longer than ``timeout``, and exceptions of handlers.
        """
        feeds = given_feeds(feeds)
        wanted = None if names is None else given_names(names)
        executable = self._executable_for(feeds)
        results = _run(executable, feeds, timeout)
        if wanted is None:
            return results
        known = {spec.name: result for spec, result in zip(executable.manifest.outputs, results, strict=True)}
        unknown = [name for name in wanted if name not in known]
        if unknown:
            there = ", ".join(map(readable, known))
            raise BadFeed(f"there is no output {', '.join(map(readable, unknown))}; the outputs are {there}")
        return [known[name] for name in wanted]

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


class MappedModel(RunnableModel):
    """A model whose weights are mapped from its artifact."""

    def __init__(self, executable: Executable, file: artifact.Mapped, signer: str | None = None) -> None:
        super().__init__(executable, signer)
        self._file = file

    def _executable_for(self, feeds: Mapping[str, object]) -> Executable:
        """The code. Raises ``CorruptArtifact`` if the file was written to since it was loaded."""
        self._file.check()
        return super()._executable_for(feeds)


def _run(executable: Executable, feeds: Mapping[str, object], timeout: float | None = None) -> list[Array]:
    try:
        return executable.run(feeds, timeout=timeout)
    except OutOfMemory:
        raise
    except MemoryError as error:
        raise out_of_memory("the model was run", error) from error


@checked(BadInput)
@memory_guarded("an artifact was loaded")
def load(
    path: FilePath,
    *,
    trust: bool | FilePath = False,
    mmap: bool = False,
    threads: Annotated[int, Within(1, MAX_THREADS)] | None = None,
    settings: Settings | None = None,
) -> RunnableModel:
    """Load a model that ``CompiledModel.save`` wrote. Requires NumPy, but no part of the compiler.

    An artifact is machine code, so one that this user did not save is refused unless ``trust`` is given: a public key
    (``ed25519:...``, or the path of a file with such lines), whose owner must have signed it (``tilewright sign``), or
    True, for any file: only its hashes are checked then, and its code has all rights of this process. ``threads``:
    maximum per call; by default all that this process may use.

    The weights are read into memory, so the file may be replaced, overwritten or removed while the model is in use; a
    process that forks after loading shares them with its children. ``mmap``: the weights are mapped from the file, and
    all processes that load it share them. The file must not be written to meanwhile (saving to the same path, or
    renaming over it, is safe). A change before a run raises ``CorruptArtifact``; a change during a run gives wrong
    numbers or ends the process.

    Raises ``BadInput`` if there is no such file, key or number of threads, ``UntrustedData`` if no trusted key
    has signed it, ``Unsupported`` if a key is given and the library that checks it is missing (extra ``[sign]``),
    ``CorruptArtifact`` if it is damaged, altered, or made for another processor or version, ``OutOfMemory``.
    """
    chosen = settings or Settings.from_environment()
    mapped = artifact.Mapped(path) if mmap else None
    found = artifact.read(path, chosen.key_dir, trust=artifact.trusted(trust), mapped=mapped)
    wanted = chosen.num_threads if threads is None else threads
    try:
        executable = NativeExecutable(found.manifest, found.objects, found.constants, threads=wanted)
    except BadArtifact as error:
        raise artifact.unusable(path, error) from error
    if mapped is None:
        return RunnableModel(executable, found.signer)
    return MappedModel(executable, mapped, found.signer)
