"""Saves compiled models to files, and reads them back."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tilewright.base.arrays import Array
from tilewright.base.errors import CorruptArtifact
from tilewright.base.outputs import AnyPath
from tilewright.runtime.artifact import tensors
from tilewright.runtime.artifact.archive import Member, Part
from tilewright.runtime.artifact.content import own_bytes
from tilewright.runtime.artifact.description import Build, Contents, Description, from_json, to_json
from tilewright.runtime.artifact.keys import PublicKey, SecretKey
from tilewright.runtime.artifact.sealed import Opened, Trust, explained, identity_of, sealed, with_signatures, write
from tilewright.runtime.elsewhere import misfit
from tilewright.runtime.manifest import Manifest

DEVICES: Final[Mapping[str, str]] = {
    "vta": "tilewright.offload.shipped",
    "onednn": "tilewright.runtime.library.step",
}
"""Architectures that are no processors, and the modules that run programs for them (``runtime.devices``)."""
_MANIFEST: Final = "manifest.json"
_WEIGHTS: Final = "weights.safetensors"


@dataclass(frozen=True, slots=True)
class Artifact:
    """The contents of a file: the parts of an ``Executable``, and their origin."""

    build: Build
    manifest: Manifest
    objects: tuple[bytes, ...]
    constants: tuple[Array, ...]
    """In the manifest's order; C-contiguous. After reading: read-only views of the file's bytes."""
    signer: str | None = field(default=None, compare=False)
    """After reading: the public key, or ``THIS_USER``, whose signature was verified; None: none was."""
    identity: str = field(default="", compare=False)
    """After reading: as ``Packed.identity``."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An artifact as a file. ``identity``: the SHA-256 of its manifest, which covers all except the signature."""

    identity: str
    size: int
    """Bytes of its members: slightly less than those of the file."""
    parts: Iterator[Part]
    """The bytes, an iterator for one use."""


def packed(artifact: Artifact, key_dir: Path | None, *, signed: bool = True, key: SecretKey | None = None) -> Packed:
    """The file of ``artifact``, without copies of the arrays. Raises ``BadInput`` if the key can't be stored."""
    members: list[tuple[str, Sequence[Part]]] = []
    members += [(_object_name(position), [data]) for position, data in enumerate(artifact.objects)]
    members.append((_WEIGHTS, tensors.encode(artifact.manifest.constants, artifact.constants)))
    contents = tuple(_contents(name, parts) for name, parts in members)
    manifest = to_json(Description(artifact.build, artifact.manifest, contents))
    parts = sealed(_MANIFEST, manifest, members, key_dir, signed=signed, key=key)
    return Packed(identity_of(manifest), sum(listed.size for listed in contents), parts)


def save(
    artifact: Artifact,
    path: AnyPath,
    key_dir: Path | None,
    *,
    signed: bool = True,
    key: SecretKey | None = None,
    inputs: Iterable[AnyPath] = (),
) -> None:
    """Write a file atomically; an existing file is replaced, but none of ``inputs``.

    ``signed``: with the user's own key, in ``key_dir``; ``key``: also with this one, for users with its public key.
    Equal artifacts give equal files, except for the signatures. Raises ``BadInput`` if the file can't be written
    (``base.outputs``), or the key can't be stored.
    """
    write(lambda: packed(artifact, key_dir, signed=signed, key=key).parts, path, key, inputs)


def add_signature(
    path: AnyPath, to: AnyPath, key: SecretKey, key_dir: Path | None, *, trust: Trust = False
) -> tuple[PublicKey, ...]:
    """Write the artifact in ``path``, signed with ``key`` as well, to ``to`` (which may be ``path``); return all
    signers.

    The file is verified as by ``read``, with ``trust``; it may be for another machine. Raises as ``read`` and ``save``.
    """
    with explained(path):
        found = _Checked.of(path, own_bytes(path), key_dir, trust)
        found.check_hashes()
    opened = found.opened
    signatures = opened.signatures.with_public(key.public, key.sign(opened.text))
    rest = [(name, [member.data]) for name, member in opened.members.items()]
    write(lambda: with_signatures(_MANIFEST, opened.text, rest, signatures), to, key, ())
    return tuple(sorted(signatures.public))


def read(
    path: AnyPath,
    key_dir: Path | None,
    *,
    trust: Trust = False,
    identity: str | None = None,
    content: memoryview | None = None,
    elsewhere: bool = False,
) -> Artifact:
    """Read and check a file, without executing any of it.

    ``trust``: True for every file, or public keys, of which one must have signed it; otherwise, this user must have.
    ``content``: its bytes, if they are in memory already, or mapped (``content`` describes the risk): the weights are
    used in place. Otherwise, the file is copied to memory, and not used any more. ``elsewhere``: another machine, or an
    emulator, is to run it.

    Raises ``BadInput`` if there is no such file, ``CorruptArtifact`` if it is damaged, altered, of another version or
    for another processor, or does not have the given ``identity`` (``packed``), ``UntrustedData`` if no trusted key has
    signed it, ``Unsupported`` if the library that checks public keys is missing.
    """
    data = own_bytes(path) if content is None else content
    with explained(path):
        found = _Checked.of(path, data, key_dir, trust, identity)
        if not elsewhere:
            _check_processor(found.described.build)
        return found.artifact()


@dataclass(frozen=True, slots=True)
class _Checked:
    """A file that is checked except for the hashes of its members."""

    opened: Opened
    described: Description

    @staticmethod
    def of(
        path: AnyPath, data: memoryview, key_dir: Path | None, trust: Trust, identity: str | None = None
    ) -> "_Checked":
        """Raises as ``read``."""
        opened = Opened.of(path, _MANIFEST, data, key_dir, trust, identity)
        described = from_json(opened.text)
        _check_members(described.members, opened.members)
        return _Checked(opened, described)

    def check_hashes(self) -> None:
        """Raises ``CorruptArtifact``."""
        for contents in self.described.members:
            _check_hash(contents, self.opened.members[contents.name].data)

    def artifact(self) -> Artifact:
        """The parts, with verified hashes. Code is copied first, so that it can't change after the check."""
        *objects, weights = self.described.members
        code = [bytes(self.opened.members[contents.name].data) for contents in objects]
        for contents, data in zip(objects, code, strict=True):
            _check_hash(contents, data)
        numbers = self.opened.members[weights.name].data
        _check_hash(weights, numbers)
        constants = tensors.decode(numbers, self.described.manifest.constants)
        described = self.described
        parts = (described.build, described.manifest, tuple(code), tuple(constants))
        return Artifact(*parts, self.opened.signer, self.opened.identity)


def _check_processor(build: Build) -> None:
    """Raise ``CorruptArtifact`` if this machine can't run the code; programs of other devices are none of its code."""
    if build.architecture in DEVICES:
        return
    if reason := misfit(build.architecture, build.features):
        raise CorruptArtifact(f"{reason}; compile the model for this machine (it was for {build.target})")


def _contents(name: str, parts: Sequence[Part]) -> Contents:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return Contents(name, sum(map(len, parts)), digest.hexdigest())


def _check_members(listed: Sequence[Contents], members: Mapping[str, Member]) -> None:
    """Raise ``CorruptArtifact`` unless the members are those listed: names, order, sizes. (Hashes: ``_check_hash``.)"""
    names = [contents.name for contents in listed]
    expected = [*(_object_name(position) for position in range(len(listed) - 1)), _WEIGHTS]
    if names != expected:
        raise CorruptArtifact(f"its manifest lists {', '.join(names)}; it should list {', '.join(expected)}")
    if names != list(members):
        extra = [f"{name!r} is not listed" for name in members if name not in names]
        missing = [f"{name!r} is missing" for name in names if name not in members]
        what = ", ".join([*extra, *missing]) or "the order differs"
        raise CorruptArtifact(f"its members are not those of its manifest: {what}")
    for contents in listed:
        if len(members[contents.name].data) != contents.size:
            raise CorruptArtifact(f"member {contents.name!r} has another size than its manifest says")


def _check_hash(contents: Contents, data: Part) -> None:
    if hashlib.sha256(data).hexdigest() != contents.sha256:
        raise CorruptArtifact(f"member {contents.name!r} is damaged or altered: its SHA-256 is not the manifest's")


def _object_name(position: int) -> str:
    return f"objects/{position:04}.o"
