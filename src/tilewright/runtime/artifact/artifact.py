"""Saves compiled models to files, and reads them back."""

import hashlib
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tilewright.base.arrays import Array
from tilewright.base.errors import BadArtifact, CorruptArtifact, UntrustedData
from tilewright.base.names import readable
from tilewright.base.outputs import AnyPath, output
from tilewright.runtime.artifact import archive, origin, tensors
from tilewright.runtime.artifact.archive import Member, Part
from tilewright.runtime.artifact.content import own_bytes
from tilewright.runtime.artifact.description import Build, Contents, Description, from_json, to_json
from tilewright.runtime.artifact.keys import PublicKey, SecretKey
from tilewright.runtime.artifact.signatures import Signatures
from tilewright.runtime.elsewhere import misfit
from tilewright.runtime.manifest import Manifest

_MANIFEST: Final = "manifest.json"
_WEIGHTS: Final = "weights.safetensors"
SIGNATURE: Final = "signature"
_LONGEST: Final = 1000
"""Maximum characters of a quoted text."""
THIS_USER: Final = "this user"

Trust = bool | tuple[PublicKey, ...]


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
    signatures = Signatures(origin.sign(manifest, key_dir) if signed else None)
    if key is not None:
        signatures = signatures.with_public(key.public, key.sign(manifest))
    parts = archive.pack([(_MANIFEST, [manifest]), *members, *signature_member(signatures)])
    return Packed(hashlib.sha256(manifest).hexdigest(), sum(listed.size for listed in contents), parts)


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
    with output(path, (*inputs, *([] if key is None else [key.path]))) as file:
        file.writelines(packed(artifact, key_dir, signed=signed, key=key).parts)


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
    signatures = found.signatures.with_public(key.public, key.sign(found.manifest))
    rest = [(name, [member.data]) for name, member in found.members.items()]
    with output(to, [key.path]) as file:
        file.writelines(archive.pack([(_MANIFEST, [found.manifest]), *rest, *signature_member(signatures)]))
    return tuple(sorted(signatures.public))


def read(
    path: AnyPath,
    key_dir: Path | None,
    *,
    trust: Trust = False,
    identity: str | None = None,
    content: memoryview | None = None,
) -> Artifact:
    """Read and check a file, without executing any of it.

    ``trust``: True for every file, or public keys, of which one must have signed it; otherwise, this user must have.
    ``content``: its bytes, if they are in memory already, or mapped (``content`` describes the risk): the weights are
    used in place. Otherwise, the file is copied to memory, and not used any more.

    Raises ``BadInput`` if there is no such file, ``CorruptArtifact`` if it is damaged, altered, of another version or
    for another processor, or does not have the given ``identity`` (``packed``), ``UntrustedData`` if no trusted key has
    signed it, ``Unsupported`` if the library that checks public keys is missing.
    """
    data = own_bytes(path) if content is None else content
    with explained(path):
        found = _Checked.of(path, data, key_dir, trust)
        if identity not in (None, found.identity):
            raise CorruptArtifact("it is another artifact than the one that is wanted")
        _check_processor(found.described.build)
        return found.artifact()


def unusable(path: AnyPath, error: BadArtifact) -> CorruptArtifact:
    """The error for a file with a wrong part. Texts from the file may have any length."""
    return CorruptArtifact(f"the artifact {os.fspath(path)} can't be used: {readable(str(error), _LONGEST)}")


@contextmanager
def explained(path: AnyPath) -> Generator[None]:
    """A context manager that turns errors of the parts into errors of the file."""
    try:
        yield
    except BadArtifact as error:
        raise unusable(path, error) from error


@dataclass(frozen=True, slots=True)
class _Checked:
    """A file that is checked except for the hashes of its members. ``signer``: see ``Artifact``."""

    manifest: bytes
    described: Description
    members: Mapping[str, Member]
    signatures: Signatures
    signer: str | None

    @staticmethod
    def of(path: AnyPath, data: memoryview, key_dir: Path | None, trust: Trust) -> "_Checked":
        """Raises as ``read``."""
        members = archive.unpack(data)
        manifest = taken(members, _MANIFEST, 0)
        has_any = SIGNATURE in members
        signatures = Signatures.parse(taken(members, SIGNATURE, -1)) if has_any else Signatures()
        signer = trusted_signer(path, manifest, signatures, key_dir, trust)
        described = from_json(manifest)
        _check_members(described.members, members)
        return _Checked(manifest, described, members, signatures, signer)

    @property
    def identity(self) -> str:
        """As ``Packed.identity``."""
        return hashlib.sha256(self.manifest).hexdigest()

    def check_hashes(self) -> None:
        """Raises ``CorruptArtifact``."""
        for contents in self.described.members:
            _check_hash(contents, self.members[contents.name].data)

    def artifact(self) -> Artifact:
        """The parts, with verified hashes. Code is copied first, so that it can't change after the check."""
        *objects, weights = self.described.members
        code = [bytes(self.members[contents.name].data) for contents in objects]
        for contents, data in zip(objects, code, strict=True):
            _check_hash(contents, data)
        numbers = self.members[weights.name].data
        _check_hash(weights, numbers)
        constants = tensors.decode(numbers, self.described.manifest.constants)
        described = self.described
        parts = (described.build, described.manifest, tuple(code), tuple(constants))
        return Artifact(*parts, self.signer, self.identity)


def signature_member(signatures: Signatures) -> list[tuple[str, Sequence[Part]]]:
    """The last member; empty without signatures."""
    return [(SIGNATURE, [bytes(signatures)])] if signatures else []


def trusted_signer(
    path: AnyPath, manifest: bytes, signatures: Signatures, key_dir: Path | None, trust: Trust
) -> str | None:
    """The trusted signer; None if every file is trusted. Raises ``UntrustedData``."""
    if isinstance(trust, bool):
        if not trust and (why := origin.doubt(manifest, signatures.own, key_dir)):
            raise UntrustedData(_untrusted(path, why, signatures))
        return None if trust else THIS_USER
    present = [key for key in trust if key in signatures.public]
    for key in present:
        if key.verifies(manifest, signatures.public[key]):
            return str(key)
    wanted, there = (", ".join(map(str, keys)) or "none" for keys in (trust, sorted(signatures.public)))
    if present:
        raise UntrustedData(
            f"the artifact {os.fspath(path)} has a wrong signature of {', '.join(map(str, present))}: it was altered "
            "after it was signed, or the signature is that of another artifact; get the file anew"
        )
    raise UntrustedData(
        f"the artifact {os.fspath(path)} is not signed with {wanted}; the public keys of its signatures: {there}"
    )


def taken(members: dict[str, Member], name: str, place: int) -> bytes:
    """A member's data, copied, so that they can't change after the check."""
    if not members or list(members)[place] != name:
        raise CorruptArtifact(f"its {'last' if place else 'first'} member is not {name}")
    member = members.pop(name)
    if not member.is_intact():
        raise CorruptArtifact(f"{name} is damaged (its CRC-32 is wrong)")
    return bytes(member.data)


def _untrusted(path: AnyPath, why: str, signatures: Signatures) -> str:
    keys = ", ".join(map(str, sorted(signatures.public)))
    by_key = f", or, if you trust who has that key, with trust= a public key of its signatures ({keys})" if keys else ""
    return (
        f"the artifact {os.fspath(path)} holds machine code, and it is not known to be this user's: {why}. "
        f"If you trust whoever gave it to you with your account, load it with trust=True{by_key}"
    )


def _check_processor(build: Build) -> None:
    """Raise ``CorruptArtifact`` if this machine can't run the code."""
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
