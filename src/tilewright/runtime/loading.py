"""``load``: models from artifacts, and models that are pickled.

A pickled model is where its artifact is, with the artifact's identity, if it was loaded from a file; else it is the
bytes of its artifact. Unpickling loads it, without the compiler. As unpickling runs any code anyway, it verifies no
signature, but a file must still hold the very artifact that was loaded.
"""

import os
from dataclasses import dataclass
from typing import Annotated

from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.errors import BadArtifact, BadInput, Unsupported
from tilewright.base.input_files import BinaryFile, all_bytes
from tilewright.base.memory import memory_guarded
from tilewright.base.settings import Settings
from tilewright.runtime import artifact
from tilewright.runtime.abi import MAX_THREADS
from tilewright.runtime.executable import Executable
from tilewright.runtime.native import NativeExecutable
from tilewright.runtime.runnable import Pickled, RunnableModel

_UNNAMED = "in memory"


@checked(BadInput)
@memory_guarded("an artifact was loaded")
def load(
    path: FilePath | bytes | bytearray | memoryview | BinaryFile,
    *,
    trust: bool | FilePath = False,
    mmap: bool = False,
    threads: Annotated[int, Within(1, MAX_THREADS)] | None = None,
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

    The model can be pickled: by the file's path if it came from a file, which must be there unchanged when it is
    unpickled; else by its bytes.

    Raises ``BadInput`` if there is no such file, key or number of threads, ``UntrustedData`` if no trusted key
    has signed it, ``Unsupported`` if a key is given and the library that checks it is missing (extra ``[sign]``),
    ``CorruptArtifact`` if it is damaged, altered, or made for another processor or version, ``OutOfMemory``.
    """
    chosen = settings or Settings.from_environment()
    wanted = chosen.num_threads if threads is None else threads
    trusted = artifact.trusted(trust)
    if isinstance(path, str | os.PathLike):
        return _from_file(path, chosen, trusted, wanted, mmap)
    if mmap:
        raise BadInput("mmap=True maps a file, and the artifact is given as bytes: give its path, or leave mmap out")
    content = artifact.in_memory(all_bytes(path, "the artifact"))
    found = artifact.read(_UNNAMED, chosen.key_dir, trust=trusted, content=content)
    return RunnableModel(_native(found, _UNNAMED, wanted), found.signer, lambda: InMemory.of(found, wanted))


class MappedModel(RunnableModel):
    """A model whose weights are mapped from its artifact."""

    def __init__(self, executable: Executable, file: artifact.Mapped, signer: str | None, pickled: "InFile") -> None:
        super().__init__(executable, signer, lambda: pickled)
        self._file = file

    def _executable_for(self, feeds: object) -> Executable:
        """The code. Raises ``CorruptArtifact`` if the file was written to since it was loaded."""
        self._file.check()
        return self._executable


def _from_file(
    path: str | os.PathLike[str], chosen: Settings, trusted: artifact.Trust, threads: int | None, is_mapped: bool
) -> RunnableModel:
    mapped = artifact.Mapped(path) if is_mapped else None
    content = None if mapped is None else mapped.data
    found = artifact.read(path, chosen.key_dir, trust=trusted, content=content)
    pickled = InFile(os.path.abspath(path), found.identity, found.signer, threads, is_mapped)
    return _model(found, pickled, mapped)


def _model(found: artifact.Artifact, pickled: "InFile", mapped: artifact.Mapped | None) -> RunnableModel:
    executable = _native(found, pickled.path, pickled.threads)
    if mapped is None:
        return RunnableModel(executable, pickled.signer, lambda: pickled)
    return MappedModel(executable, mapped, pickled.signer, pickled)


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

    def model(self) -> RunnableModel:
        mapped = artifact.Mapped(self.path) if self.is_mapped else None
        content = None if mapped is None else mapped.data
        found = artifact.read(self.path, None, trust=True, identity=self.identity, content=content)
        return _model(found, self, mapped)


@dataclass(frozen=True, slots=True)
class InMemory(Pickled):
    """A model that is in no file that is known: the bytes of its artifact."""

    content: bytes
    signer: str | None
    threads: int | None

    @staticmethod
    def of(parts: artifact.Artifact, threads: int | None) -> "InMemory":
        """Raises ``Unsupported`` if there is no code to save."""
        if not parts.objects:
            raise Unsupported("the back end of this model makes nothing that can be pickled; compile it for the cpu")
        return InMemory(b"".join(artifact.packed(parts, None, signed=False).parts), parts.signer, threads)

    def model(self) -> RunnableModel:
        content = artifact.in_memory(self.content)
        found = artifact.read(_UNNAMED, None, trust=True, content=content)
        return RunnableModel(_native(found, _UNNAMED, self.threads), self.signer, lambda: self)
