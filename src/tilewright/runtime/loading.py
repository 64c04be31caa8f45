"""``load``: models from artifacts, and models that are pickled.

A pickled model is where its artifact is, with the artifact's identity, if it was loaded from a file; else it is the
bytes of its artifact. Unpickling loads it, without the compiler. As unpickling runs any code anyway, it verifies no
signature, but a file must still hold the very artifact that was loaded.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.errors import BadArtifact, BadInput, Unsupported
from tilewright.base.input_files import BinaryFile, all_bytes
from tilewright.base.memory import memory_guarded
from tilewright.base.settings import Settings
from tilewright.runtime import artifact
from tilewright.runtime.abi import MAX_THREADS
from tilewright.runtime.devices import Openers
from tilewright.runtime.executable import Executable
from tilewright.runtime.native import NativeExecutable
from tilewright.runtime.runnable import Pickled, RunnableModel
from tilewright.runtime.stages import Stage, StagedExecutable
from tilewright.runtime.versioned import VersionedModel

_UNNAMED = "in memory"

Found: TypeAlias = artifact.Artifact | artifact.Versions | artifact.Stages
"""What a file may hold."""


@checked(BadInput)
@memory_guarded("an artifact was loaded")
def load(
    path: FilePath | bytes | bytearray | memoryview | BinaryFile,
    *,
    trust: bool | FilePath = False,
    mmap: bool = False,
    threads: Annotated[int, Within(1, MAX_THREADS)] | None = None,
    accelerator: object = None,
    settings: Settings | None = None,
) -> RunnableModel:
    """Load a model that ``CompiledModel.save`` wrote. Requires NumPy, but no part of the compiler.

    ``path``: a file, its bytes, or a file that is open for reading bytes (``io.BytesIO``). An artifact is machine code,
    so one that this user did not save is refused unless ``trust`` is given: a public key (``ed25519:...``, or the path
    of a file with such lines), whose owner must have signed it (``tilewright sign``), or True, for any file: only its
    hashes are checked then, and its code has all rights of this process. ``threads``: maximum per call; by default all
    that this process may use.

    The weights are read into memory, so the file may be replaced, overwritten or removed while the model is in use; a
    process that forks after loading shares them with its children. ``mmap``: the weights are mapped from the file, and
    all processes that load it share them. The file must not be written to meanwhile (saving to the same path, or
    renaming over it, is safe). A change before a run raises ``CorruptArtifact``; a change during a run gives wrong
    numbers or ends the process.

    ``accelerator``: runs the programs of a model that was split between two devices, as for ``compile``; by default the
    one that the artifact names. Only such a model needs more than NumPy: the simulators, or what drives the device.

    The model can be pickled: by the file's path if it came from a file, which must be there unchanged when it is
    unpickled; else by its bytes.

    Raises ``BadInput`` if there is no such file, key or number of threads, or for an accelerator that the model is not
    for, ``UntrustedData`` if no trusted key has signed it, ``Unsupported`` if a key is given and the library that
    checks it is missing (extra ``[sign]``), or if the artifact names a device of its user's own,
    ``CorruptArtifact`` if it is damaged, altered, or made for another processor or version, ``OutOfMemory``.
    """
    chosen = settings or Settings.from_environment()
    wanted = chosen.num_threads if threads is None else threads
    trusted = artifact.trusted(trust)
    if isinstance(path, str | os.PathLike):
        return _from_file(path, chosen, trusted, wanted, mmap, accelerator)
    if mmap:
        raise BadInput("mmap=True maps a file, and the artifact is given as bytes: give its path, or leave mmap out")
    content = artifact.in_memory(all_bytes(path, "the artifact"))
    found = _read(_UNNAMED, content, chosen.key_dir, trusted)
    openers = Openers(accelerator)
    return _model(found, _UNNAMED, wanted, found.signer, lambda: InMemory.of(found, wanted, accelerator), None, openers)


class MappedModel(RunnableModel):
    """A model whose weights are mapped from its artifact."""

    def __init__(
        self, executable: Executable, file: artifact.Mapped, signer: str | None, pickled: Callable[[], Pickled]
    ) -> None:
        super().__init__(executable, signer, pickled)
        self._file = file

    def _executable_for(self, feeds: object) -> Executable:
        """The code. Raises ``CorruptArtifact`` if the file was written to since it was loaded."""
        self._file.check()
        return self._executable


def _from_file(
    path: str | os.PathLike[str],
    chosen: Settings,
    trusted: artifact.Trust,
    threads: int | None,
    is_mapped: bool,
    accelerator: object,
) -> RunnableModel:
    mapped = artifact.Mapped(path) if is_mapped else None
    content = artifact.own_bytes(path) if mapped is None else mapped.data
    found = _read(path, content, chosen.key_dir, trusted)
    pickled = InFile(os.path.abspath(path), found.identity, found.signer, threads, is_mapped, accelerator)
    return _model(found, pickled.path, threads, found.signer, lambda: pickled, mapped, Openers(accelerator))


def _read(
    path: str | os.PathLike[str],
    content: memoryview,
    key_dir: Path | None,
    trusted: artifact.Trust,
    identity: str | None = None,
) -> Found:
    if artifact.holds_stages(content):
        return artifact.read_stages(path, key_dir, content, trust=trusted, identity=identity)
    if artifact.holds_versions(content):
        return artifact.read_versions(path, key_dir, content, trust=trusted, identity=identity)
    return artifact.read(path, key_dir, trust=trusted, identity=identity, content=content)


def _model(
    found: Found,
    path: str,
    threads: int | None,
    signer: str | None,
    pickled: Callable[[], Pickled],
    mapped: artifact.Mapped | None,
    openers: Openers,
) -> RunnableModel:
    if isinstance(found, artifact.Versions):
        versions = {sizes: _native(parts, path, threads) for sizes, parts in found.artifacts.items()}
        openers.require_used()
        return VersionedModel(found.inputs, versions, signer, pickled, mapped)
    executable = _executable(found, path, threads, openers)
    openers.require_used()
    if mapped is None:
        return RunnableModel(executable, signer, pickled)
    return MappedModel(executable, mapped, signer, pickled)


def _executable(
    found: artifact.Artifact | artifact.Stages, path: str, threads: int | None, openers: Openers
) -> Executable:
    try:
        if isinstance(found, artifact.Artifact):
            is_native = found.build.architecture not in artifact.DEVICES
            return _native(found, path, threads) if is_native else openers.executable(found)
        bodies = iter([_executable(body, path, threads, openers) for body in found.bodies])
        stages = [Stage(plan, [next(bodies) for _ in range(plan.bodies)]) for plan in found.plans]
        return StagedExecutable(found.manifest, found.constants, stages, threads)
    except BadArtifact as error:
        raise artifact.unusable(path, error) from error


def _native(found: artifact.Artifact, path: str, threads: int | None) -> Executable:
    try:
        return NativeExecutable(found.manifest, found.objects, found.constants, threads=threads)
    except BadArtifact as error:
        raise artifact.unusable(path, error) from error


@dataclass(frozen=True, slots=True)
class InFile(Pickled):
    """A model that was loaded from the file ``path``; ``identity``: that of the artifact in it."""

    path: str
    identity: str
    signer: str | None
    threads: int | None
    is_mapped: bool
    accelerator: object = None

    def model(self) -> RunnableModel:
        mapped = artifact.Mapped(self.path) if self.is_mapped else None
        content = artifact.own_bytes(self.path) if mapped is None else mapped.data
        found = _read(self.path, content, None, True, self.identity)
        return _model(found, self.path, self.threads, self.signer, lambda: self, mapped, Openers(self.accelerator))


@dataclass(frozen=True, slots=True)
class InMemory(Pickled):
    """A model that is in no file that is known: the bytes of its artifact."""

    content: bytes
    signer: str | None
    threads: int | None
    accelerator: object = None

    @staticmethod
    def of(parts: Found, threads: int | None, accelerator: object = None) -> "InMemory":
        """Raises ``Unsupported`` if there is no code to save."""
        if isinstance(parts, artifact.Versions):
            return InMemory(b"".join(artifact.pack_versions(parts, None, signed=False)), parts.signer, threads)
        if isinstance(parts, artifact.Stages):
            return InMemory(
                b"".join(artifact.pack_stages(parts, None, signed=False)), parts.signer, threads, accelerator
            )
        if not parts.objects:
            raise Unsupported("the back end of this model makes nothing that can be pickled; compile it for the cpu")
        return InMemory(b"".join(artifact.packed(parts, None, signed=False).parts), parts.signer, threads)

    def model(self) -> RunnableModel:
        content = artifact.in_memory(self.content)
        found = _read(_UNNAMED, content, None, True)
        return _model(found, _UNNAMED, self.threads, self.signer, lambda: self, None, Openers(self.accelerator))
