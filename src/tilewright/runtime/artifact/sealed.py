"""The form of all files here: an archive whose first member describes the others, and whose last one signs it.

    manifest.json           or ``versions.json``, ``stages.json``: says what the file holds
    ...                     what it says, with a hash or an identity of each
    signature               of the first member; left out if nobody signed

The identity of a file is the SHA-256 of its first member, which covers all except the signatures.
"""

import hashlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from tilewright.base.errors import BadArtifact, CorruptArtifact, UntrustedData
from tilewright.base.names import readable
from tilewright.base.outputs import AnyPath, output
from tilewright.base.pieces import in_pieces
from tilewright.runtime.artifact import archive, origin
from tilewright.runtime.artifact.archive import Member, Part
from tilewright.runtime.artifact.keys import PublicKey, SecretKey
from tilewright.runtime.artifact.signatures import Signatures

THIS_USER: Final = "this user"
_SIGNATURE: Final = "signature"
_LONGEST: Final = 1000
"""Maximum characters of a quoted text."""
_NAME_AT: Final = 30
"""Where the name of a zip file's first member begins."""

Trust = bool | tuple[PublicKey, ...]
Members: TypeAlias = Iterable[tuple[str, Sequence[Part]]]


def identity_of(text: bytes) -> str:
    """Of a file, by its first member."""
    return hashlib.sha256(text).hexdigest()


def sealed(
    name: str, text: bytes, rest: Members, key_dir: Path | None, *, signed: bool, key: SecretKey | None
) -> Iterator[Part]:
    """The bytes of a file with the first member ``name``, without copies of the arrays.

    ``signed``: with the user's own key, in ``key_dir``; ``key``: also with this one. Raises ``BadInput`` if the user's
    key can't be stored.
    """
    signatures = Signatures(origin.sign(text, key_dir) if signed else None)
    return with_signatures(
        name, text, rest, signatures if key is None else signatures.with_public(key.public, key.sign(text))
    )


def with_signatures(name: str, text: bytes, rest: Members, signatures: Signatures) -> Iterator[Part]:
    """The bytes of a file with these signatures."""
    last: Members = [(_SIGNATURE, [bytes(signatures)])] if signatures else []
    return archive.pack([(name, [text]), *rest, *last])


def write(pack: Callable[[], Iterable[Part]], path: AnyPath, key: SecretKey | None, inputs: Iterable[AnyPath]) -> None:
    """Write a file atomically; an existing file is replaced, but none of ``inputs``, and not that of ``key``.

    ``pack`` makes the bytes, and the user's key if there is none: only if the file can be written.
    """
    with output(path, (*inputs, *([] if key is None else [key.path]))) as file:
        file.writelines(in_pieces(pack()))


def begins_with(content: memoryview, name: str) -> bool:
    """Whether the first member of a file has this name."""
    return bytes(content[_NAME_AT : _NAME_AT + len(name)]) == name.encode()


@dataclass(frozen=True, slots=True)
class Opened:
    """A file whose first member is signed as asked. ``members``: those between it and the signatures."""

    text: bytes
    members: Mapping[str, Member]
    signatures: Signatures
    signer: str | None
    """The public key, or ``THIS_USER``, whose signature was verified; None if every file is trusted."""

    @property
    def identity(self) -> str:
        return identity_of(self.text)

    @staticmethod
    def of(
        path: AnyPath, name: str, content: memoryview, key_dir: Path | None, trust: Trust, identity: str | None
    ) -> "Opened":
        """Raises ``CorruptArtifact`` if it is no such file, or has not ``identity``; ``UntrustedData``."""
        members = archive.unpack(content)
        text = _taken(members, name, 0)
        signatures = Signatures.parse(_taken(members, _SIGNATURE, -1)) if _SIGNATURE in members else Signatures()
        opened = Opened(text, members, signatures, _signer(path, text, signatures, key_dir, trust))
        if identity not in (None, opened.identity):
            raise CorruptArtifact("it is another artifact than the one that is wanted")
        return opened


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


def _taken(members: dict[str, Member], name: str, place: int) -> bytes:
    """A member's data, copied, so that they can't change after the check."""
    if not members or list(members)[place] != name:
        raise CorruptArtifact(f"its {'last' if place else 'first'} member is not {name}")
    member = members.pop(name)
    if not member.is_intact():
        raise CorruptArtifact(f"{name} is damaged (its CRC-32 is wrong)")
    return bytes(member.data)


def _signer(path: AnyPath, text: bytes, signatures: Signatures, key_dir: Path | None, trust: Trust) -> str | None:
    """The trusted signer; None if every file is trusted. Raises ``UntrustedData``."""
    if isinstance(trust, bool):
        if not trust and (why := origin.doubt(text, signatures.own, key_dir)):
            raise UntrustedData(_untrusted(path, why, signatures))
        return None if trust else THIS_USER
    present = [key for key in trust if key in signatures.public]
    for key in present:
        if key.verifies(text, signatures.public[key]):
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


def _untrusted(path: AnyPath, why: str, signatures: Signatures) -> str:
    keys = ", ".join(map(str, sorted(signatures.public)))
    by_key = f", or, if you trust who has that key, with trust= a public key of its signatures ({keys})" if keys else ""
    return (
        f"the artifact {os.fspath(path)} holds machine code, and it is not known to be this user's: {why}. "
        f"If you trust whoever gave it to you with your account, load it with trust=True{by_key}"
    )
