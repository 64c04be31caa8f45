"""The signatures of an artifact in its last member: one line each, in canonical form.

    hmac-sha256 <64 digits>                 at most one, first: that of a user's own key (``origin``)
    ed25519:<64 digits> <128 digits>        public key and signature (``keys``), sorted by key, none twice

The member is left out if it is empty. Text in another form is refused for any ``trust``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilewright.base.errors import CorruptArtifact
from tilewright.runtime.artifact.keys import PublicKey

_FORM = re.compile(rb"(hmac-sha256 [0-9a-f]{64}\n)?((?:ed25519:[0-9a-f]{64} [0-9a-f]{128}\n)*)")
MOST = 64
"""Maximum number of public-key signatures of one artifact."""


@dataclass(frozen=True, slots=True)
class Signatures:
    """``own``: the first line, if present. ``public``: the claimed signature of each key."""

    own: bytes | None = None
    public: Mapping[PublicKey, bytes] = field(default_factory=dict[PublicKey, bytes])

    def __bool__(self) -> bool:
        return self.own is not None or bool(self.public)

    def __bytes__(self) -> bytes:
        lines = (f"{key} {self.public[key].hex()}\n".encode() for key in sorted(self.public))
        return (self.own or b"") + b"".join(lines)

    def with_public(self, key: PublicKey, signature: bytes) -> "Signatures":
        """These and another one, in place of an older one by the same key."""
        return replace(self, public={**self.public, key: signature})

    @staticmethod
    def parse(text: bytes) -> "Signatures":
        """Parse the bytes. Raises ``CorruptArtifact`` for any other form."""
        found = _FORM.fullmatch(text)
        lines = [] if found is None else found[2].decode().splitlines()
        pairs = (line.split(" ") for line in lines)
        public = {PublicKey.parse(key): bytes.fromhex(signature) for key, signature in pairs}
        made = Signatures(None if found is None else found[1], public)
        if not made or bytes(made) != text or len(public) > MOST:
            raise CorruptArtifact("its signatures are not as Tilewright writes them")
        return made
