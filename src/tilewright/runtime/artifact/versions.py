"""Files of models that are compiled for each size of their inputs: one artifact for each, in one archive.

    versions.json           the inputs, and of each version its sizes and the identity of its artifact, in order
    versions/0000.tw ...    artifacts, without signatures
    signature               of ``versions.json``, as an artifact has one of its manifest; left out if nobody signed

``versions.json`` is read as ``description`` reads a manifest: refused unless it is as it would be written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.base import fields
from tilewright.base.errors import CorruptArtifact
from tilewright.base.outputs import AnyPath
from tilewright.runtime.artifact.archive import Part
from tilewright.runtime.artifact.artifact import Artifact, packed, read
from tilewright.runtime.artifact.description import spec_fields, spec_of
from tilewright.runtime.artifact.keys import SecretKey
from tilewright.runtime.artifact.lists import list_text, read_list
from tilewright.runtime.artifact.sealed import Opened, Trust, begins_with, explained, sealed, write
from tilewright.runtime.manifest import TensorSpec

_LIST: Final = "versions.json"

Sizes = tuple[tuple[str, int], ...]
"""Run-time extents by name."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The contents of a file: the inputs with their run-time extents, and the artifact for each of several sizes.

    ``signer``, ``identity``: after reading, as of an ``Artifact``.
    """

    inputs: tuple[TensorSpec, ...]
    artifacts: Mapping[Sizes, Artifact]
    signer: str | None = None
    identity: str = ""


@dataclass(frozen=True, slots=True)
class _Listed:
    """All of ``versions.json``."""

    inputs: tuple[TensorSpec, ...]
    sizes: tuple[Sizes, ...]
    identities: tuple[str, ...]


def pack_versions(
    versions: Versions, key_dir: Path | None, *, signed: bool = True, key: SecretKey | None = None
) -> Iterator[Part]:
    """The bytes of the file, without copies of the arrays. Raises as ``packed``."""
    files = [packed(parts, None, signed=False) for parts in versions.artifacts.values()]
    listed = _Listed(versions.inputs, tuple(versions.artifacts), tuple(file.identity for file in files))
    members = [(_name(number), list(file.parts)) for number, file in enumerate(files)]
    return sealed(_LIST, list_text(_content(listed)), members, key_dir, signed=signed, key=key)


def save_versions(
    versions: Versions,
    path: AnyPath,
    key_dir: Path | None,
    *,
    signed: bool = True,
    key: SecretKey | None = None,
    inputs: Iterable[AnyPath] = (),
) -> None:
    """Write a file as ``save`` does."""
    write(lambda: pack_versions(versions, key_dir, signed=signed, key=key), path, key, inputs)


def holds_versions(content: memoryview) -> bool:
    """Whether a file is of this kind, and not a single artifact."""
    return begins_with(content, _LIST)


def read_versions(
    path: AnyPath, key_dir: Path | None, content: memoryview, *, trust: Trust = False, identity: str | None = None
) -> Versions:
    """Read and check a file of the bytes ``content``, without executing any of it. Raises as ``read``."""
    with explained(path):
        opened = Opened.of(path, _LIST, content, key_dir, trust, identity)
        listed = read_list(_LIST, opened.text, _made, _content)
        if list(opened.members) != [_name(number) for number in range(len(listed.sizes))]:
            raise CorruptArtifact(f"its members are not those of {_LIST}")
    found: dict[Sizes, Artifact] = {}
    for each, wanted, member in zip(listed.sizes, listed.identities, opened.members.values(), strict=True):
        found[each] = read(path, None, trust=True, identity=wanted, content=member.data)
    with explained(path):
        _check_inputs(listed.inputs, found)
    return Versions(listed.inputs, found, opened.signer, opened.identity)


def _name(number: int) -> str:
    return f"versions/{number:04}.tw"


def _content(listed: _Listed) -> Mapping[str, object]:
    pairs = zip(listed.sizes, listed.identities, strict=True)
    return {
        "inputs": [spec_fields(spec) for spec in listed.inputs],
        "versions": [{"sizes": dict(each), "identity": identity} for each, identity in pairs],
    }


def _made(content: Mapping[str, object]) -> _Listed:
    inputs = tuple(map(spec_of, fields.items(content["inputs"])))
    rows = [fields.mapping(row) for row in fields.items(content["versions"])]
    sizes = tuple(tuple((name, fields.whole(n)) for name, n in fields.mapping(row["sizes"]).items()) for row in rows)
    names = dict.fromkeys(extent for spec in inputs for extent in spec.shape if isinstance(extent, str))
    if not sizes or len(set(sizes)) != len(sizes) or any([name for name, _ in each] != list(names) for each in sizes):
        raise CorruptArtifact(f"{_LIST} does not give the sizes of {', '.join(names)} once for each version")
    return _Listed(inputs, sizes, tuple(fields.text(row["identity"]) for row in rows))


def _check_inputs(inputs: Sequence[TensorSpec], artifacts: Mapping[Sizes, Artifact]) -> None:
    """Raise ``CorruptArtifact`` unless each version takes the inputs in its sizes."""
    for sizes, parts in artifacts.items():
        known = dict(sizes)
        wanted = tuple(TensorSpec(spec.name, spec.dtype, spec.concrete(known)) for spec in inputs)
        if parts.manifest.inputs != wanted:
            raise CorruptArtifact("a version of it does not take the inputs in its sizes")
