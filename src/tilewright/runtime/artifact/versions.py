"""Files of models that are compiled for each size of their inputs: one artifact for each, in one archive.

    versions.json           the inputs, and of each version its sizes and the identity of its artifact, in order
    versions/0000.tw ...    artifacts, without signatures
    signature               of ``versions.json``, as an artifact has one of its manifest; left out if nobody signed

``versions.json`` is read as ``description`` reads a manifest: refused unless it is as it would be written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from tilewright.base import fields
from tilewright.base.errors import CorruptArtifact, UnsupportedDType
from tilewright.base.outputs import AnyPath, output
from tilewright.runtime.artifact import archive, origin
from tilewright.runtime.artifact.archive import Part
from tilewright.runtime.artifact.artifact import (
    SIGNATURE,
    Artifact,
    Trust,
    explained,
    packed,
    read,
    signature_member,
    taken,
    trusted_signer,
)
from tilewright.runtime.artifact.description import FORMAT, spec_fields, spec_of
from tilewright.runtime.artifact.keys import SecretKey
from tilewright.runtime.artifact.signatures import Signatures
from tilewright.runtime.manifest import TensorSpec

_LIST: Final = "versions.json"
_NAME_AT: Final = 30
"""Where the name of a zip file's first member begins."""

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


def pack_versions(
    versions: Versions, key_dir: Path | None, *, signed: bool = True, key: SecretKey | None = None
) -> Iterator[Part]:
    """The bytes of the file, without copies of the arrays. Raises as ``packed``."""
    files = [packed(parts, None, signed=False) for parts in versions.artifacts.values()]
    listed = _to_json(versions.inputs, list(versions.artifacts), [file.identity for file in files])
    signatures = Signatures(origin.sign(listed, key_dir) if signed else None)
    if key is not None:
        signatures = signatures.with_public(key.public, key.sign(listed))
    members: list[tuple[str, Sequence[Part]]] = [(_LIST, [listed])]
    members += [(_name(number), list(file.parts)) for number, file in enumerate(files)]
    return archive.pack([*members, *signature_member(signatures)])


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
    with output(path, (*inputs, *([] if key is None else [key.path]))) as file:
        file.writelines(pack_versions(versions, key_dir, signed=signed, key=key))


def holds_versions(content: memoryview) -> bool:
    """Whether a file is of this kind, and not a single artifact."""
    name = _LIST.encode()
    return bytes(content[_NAME_AT : _NAME_AT + len(name)]) == name


def read_versions(
    path: AnyPath, key_dir: Path | None, content: memoryview, *, trust: Trust = False, identity: str | None = None
) -> Versions:
    """Read and check a file of the bytes ``content``, without executing any of it. Raises as ``read``."""
    with explained(path):
        members = archive.unpack(content)
        listed = taken(members, _LIST, 0)
        signatures = Signatures.parse(taken(members, SIGNATURE, -1)) if SIGNATURE in members else Signatures()
        signer = trusted_signer(path, listed, signatures, key_dir, trust)
        own = sha256(listed).hexdigest()
        if identity not in (None, own):
            raise CorruptArtifact("it is another artifact than the one that is wanted")
        inputs, sizes, identities = _from_json(listed)
        if list(members) != [_name(number) for number in range(len(sizes))]:
            raise CorruptArtifact(f"its members are not those of {_LIST}")
    found: dict[Sizes, Artifact] = {}
    for each, wanted, member in zip(sizes, identities, members.values(), strict=True):
        found[each] = read(path, None, trust=True, identity=wanted, content=member.data)
    with explained(path):
        _check_inputs(inputs, found)
    return Versions(inputs, found, signer, own)


def _name(number: int) -> str:
    return f"versions/{number:04}.tw"


def _to_json(inputs: Sequence[TensorSpec], sizes: Sequence[Sizes], identities: Sequence[str]) -> bytes:
    pairs = zip(sizes, identities, strict=True)
    content = {
        "format": FORMAT,
        "inputs": [spec_fields(spec) for spec in inputs],
        "versions": [{"sizes": dict(each), "identity": identity} for each, identity in pairs],
    }
    return (json.dumps(content, indent=1) + "\n").encode("ascii")


def _from_json(text: bytes) -> tuple[tuple[TensorSpec, ...], list[Sizes], list[str]]:
    """Raises ``CorruptArtifact``."""
    try:
        content = fields.mapping(json.loads(text.decode("ascii")))
        if content.get("format") != FORMAT:
            raise CorruptArtifact(
                f"it has format {content.get('format')!r}, and this Tilewright runs format {FORMAT}; "
                "compile the model again, or use the Tilewright that made it"
            )
        inputs = tuple(map(spec_of, fields.items(content["inputs"])))
        rows = [fields.mapping(row) for row in fields.items(content["versions"])]
        sizes = [tuple((name, fields.whole(n)) for name, n in fields.mapping(row["sizes"]).items()) for row in rows]
        identities = [fields.text(row["identity"]) for row in rows]
    except KeyError as error:
        raise CorruptArtifact(f"{_LIST} has no {error}") from error
    except (TypeError, ValueError, RecursionError, UnsupportedDType) as error:
        raise CorruptArtifact(f"{_LIST} can't be read: {error}") from error
    names = dict.fromkeys(extent for spec in inputs for extent in spec.shape if isinstance(extent, str))
    if not sizes or len(set(sizes)) != len(sizes) or any([name for name, _ in each] != list(names) for each in sizes):
        raise CorruptArtifact(f"{_LIST} does not give the sizes of {', '.join(names)} once for each version")
    if _to_json(inputs, sizes, identities) != text:
        raise CorruptArtifact(f"{_LIST} is not as Tilewright writes it")
    return inputs, sizes, identities


def _check_inputs(inputs: Sequence[TensorSpec], artifacts: Mapping[Sizes, Artifact]) -> None:
    """Raise ``CorruptArtifact`` unless each version takes the inputs in its sizes."""
    for sizes, parts in artifacts.items():
        known = dict(sizes)
        wanted = tuple(TensorSpec(spec.name, spec.dtype, spec.concrete(known)) for spec in inputs)
        if parts.manifest.inputs != wanted:
            raise CorruptArtifact("a version of it does not take the inputs in its sizes")
