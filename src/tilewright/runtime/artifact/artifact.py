"""Compiled models to files, and back."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.base.arrays import Array
from tilewright.base.errors import BadArtifact, CorruptArtifact, UntrustedData
from tilewright.base.outputs import AnyPath, output
from tilewright.runtime.artifact import archive, origin, tensors
from tilewright.runtime.artifact.archive import Member, Part
from tilewright.runtime.artifact.content import Mapped, own_bytes
from tilewright.runtime.artifact.description import Build, Contents, Description, from_json, to_json
from tilewright.runtime.elsewhere import misfit
from tilewright.runtime.manifest import Manifest

_MANIFEST: Final = "manifest.json"
_WEIGHTS: Final = "weights.safetensors"
_SIGNATURE: Final = "signature"


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a file holds: the parts of an ``Executable``, and where they come from."""

    build: Build
    manifest: Manifest
    objects: tuple[bytes, ...]
    constants: tuple[Array, ...]
    """In the manifest's order; C-contiguous. Of an artifact that was read: views of the file's bytes, read-only."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An artifact as a file. ``identity``: the SHA-256 of its manifest, and so of all of it but the signature."""

    identity: str
    size: int
    """Bytes of its members: a little less than those of the file."""
    parts: Iterator[Part]
    """The bytes, to be read once."""


def packed(artifact: Artifact, key_dir: Path | None, *, signed: bool = True) -> Packed:
    """The file of ``artifact``, of which the arrays are not copied. Raises ``BadInput`` if the key can't be kept."""
    members: list[tuple[str, Sequence[Part]]] = []
    members += [(_object_name(position), [data]) for position, data in enumerate(artifact.objects)]
    members.append((_WEIGHTS, tensors.encode(artifact.manifest.constants, artifact.constants)))
    contents = tuple(_contents(name, parts) for name, parts in members)
    manifest = to_json(Description(artifact.build, artifact.manifest, contents))
    signature = [(_SIGNATURE, [origin.sign(manifest, key_dir)])] if signed else []
    parts = archive.pack([(_MANIFEST, [manifest]), *members, *signature])
    return Packed(hashlib.sha256(manifest).hexdigest(), sum(listed.size for listed in contents), parts)


def save(
    artifact: Artifact,
    path: AnyPath,
    key_dir: Path | None,
    *,
    signed: bool = True,
    inputs: Iterable[AnyPath] = (),
) -> None:
    """Write a file that appears whole or not at all; one that is there is replaced, but none of ``inputs``.

    Equal artifacts give equal files, but for the signature, which depends on the user's key in ``key_dir``. Raises
    ``BadInput`` if the file can't be written (``base.outputs``), or the key be kept.
    """
    with output(path, inputs) as file:
        file.writelines(packed(artifact, key_dir, signed=signed).parts)


def read(
    path: AnyPath,
    key_dir: Path | None,
    *,
    trust: bool = False,
    identity: str | None = None,
    mapped: Mapped | None = None,
) -> Artifact:
    """Read and check a file; nothing of it is executed.

    ``mapped``: the file, if the weights are to be used where it is mapped (``content`` says at what price); otherwise,
    they are in memory of this process, and what happens to the file does not matter any more.

    Raises ``BadInput`` if there is no such file, ``CorruptArtifact`` if it is damaged, altered, of another version or
    for another processor, or not of the ``identity`` (``packed``) that is given, ``UntrustedData`` if this user did not
    sign it and ``trust`` is not given.
    """
    data = own_bytes(path) if mapped is None else mapped.data
    try:
        members = archive.unpack(data)
        manifest = _taken(members, _MANIFEST, 0)
        signature = _taken(members, _SIGNATURE, -1) if _SIGNATURE in members else None
        if not trust and (why := origin.doubt(manifest, signature, key_dir)):
            raise UntrustedData(_untrusted(path, why))
        if identity not in (None, hashlib.sha256(manifest).hexdigest()):
            raise CorruptArtifact("it is another artifact than the one that is wanted")
        described = from_json(manifest)
        _check_processor(described.build)
        _check_members(described.members, members)
        return _artifact(described, members)
    except BadArtifact as error:
        raise CorruptArtifact(f"the artifact {os.fspath(path)} can't be used: {error}") from error


def _taken(members: dict[str, Member], name: str, place: int) -> bytes:
    """A member's data, copied, so that no other program can change them after they are checked."""
    if not members or list(members)[place] != name:
        raise CorruptArtifact(f"its {'last' if place else 'first'} member is not {name}")
    member = members.pop(name)
    if not member.is_intact():
        raise CorruptArtifact(f"{name} is damaged (its CRC-32 is wrong)")
    return bytes(member.data)


def _untrusted(path: str | os.PathLike[str], why: str) -> str:
    return (
        f"the artifact {os.fspath(path)} holds machine code, and it is not known to be this user's: {why}. "
        "If you trust whoever gave it to you with your account, load it with trust=True"
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
    """Raise ``CorruptArtifact`` unless the members are those listed: names, order, sizes. (Hashes: ``_checked``.)"""
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


def _artifact(described: Description, members: Mapping[str, Member]) -> Artifact:
    """The parts, with their hashes checked. Code is copied first: nobody can change it after the check."""
    *objects, weights = described.members
    code = [bytes(members[contents.name].data) for contents in objects]
    for contents, data in zip(objects, code, strict=True):
        _check_hash(contents, data)
    numbers = members[weights.name].data
    _check_hash(weights, numbers)
    constants = tensors.decode(numbers, described.manifest.constants)
    return Artifact(described.build, described.manifest, tuple(code), tuple(constants))


def _check_hash(contents: Contents, data: Part) -> None:
    if hashlib.sha256(data).hexdigest() != contents.sha256:
        raise CorruptArtifact(f"member {contents.name!r} is damaged or altered: its SHA-256 is not the manifest's")


def _object_name(position: int) -> str:
    return f"objects/{position:04}.o"
