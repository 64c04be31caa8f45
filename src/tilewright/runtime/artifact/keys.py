"""Public-key signatures of artifacts: Ed25519 (RFC 8032), by the library ``cryptography`` (extra ``[sign]``).

The owner of the secret key signs; users with the public key, a short text, can verify the artifact:

    ed25519:<64 hexadecimal digits>

The text serves as its own fingerprint. A secret key is a file in PEM (PKCS #8, not encrypted, mode 0600), as ``openssl
genpkey -algorithm ed25519`` writes it. The signed message is a domain prefix and a manifest, so that signatures can't
be reused in other protocols.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.base.errors import BadInput, Unsupported
from tilewright.base.files import reason
from tilewright.base.outputs import AnyPath, check_output, output
from tilewright.runtime.artifact.secret_files import make_secret, read_secret

PREFIX: Final = "ed25519:"
_PUBLIC = re.compile(r"ed25519:([0-9a-f]{64})")
_DOMAIN: Final = b"tilewright artifact manifest, signature of form 1\0"
_PRIME: Final = 2**255 - 19
_D: Final = -121665 * pow(121666, -1, _PRIME) % _PRIME
_MOST_BYTES: Final = 1 << 16
"""Maximum bytes of a file with keys."""
_REMEDY: Final = f"give True, a public key ({PREFIX}...), or the path of a file that has one"


@dataclass(frozen=True, slots=True, order=True)
class PublicKey:
    """``raw``: its 32 bytes."""

    raw: bytes

    def __str__(self) -> str:
        return PREFIX + self.raw.hex()

    @staticmethod
    def parse(text: str) -> "PublicKey":
        """Parse the text of a key. Raises ``BadInput``."""
        found = _PUBLIC.fullmatch(text)
        if found is None:
            raise BadInput(f"{text!r:.100} is no public key: write {PREFIX} and 64 hexadecimal digits")
        return PublicKey(bytes.fromhex(found[1]))

    def verifies(self, manifest: bytes, signature: bytes) -> bool:
        """Whether the signature of ``manifest`` is valid under this key. Raises ``Unsupported`` without the library."""
        if _is_of_small_order(self.raw):
            return False
        try:
            from cryptography.exceptions import InvalidSignature
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        except ImportError as error:
            raise _missing() from error
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, _DOMAIN + manifest)
        except (InvalidSignature, ValueError):
            return False
        return True


def _is_of_small_order(raw: bytes) -> bool:
    """Whether eight times the point is the neutral element: whoever likes can sign under such a key, and the library
    does not refuse it.

    With the y of a point on -x^2 + y^2 = 1 + d x^2 y^2: the orders 1 and 2 have y = 1 and -1, 4 has y = 0, and 8 has
    x^2 = -y^2, as twice the point has y = 0.
    """
    y = int.from_bytes(raw, "little") & ((1 << 255) - 1)
    square = y * y % _PRIME
    return square in (0, 1) or (_D * square * square + 2 * square - 1) % _PRIME == 0


def trusted(given: bool | AnyPath) -> bool | tuple[PublicKey, ...]:
    """The value of ``trust=``: a bool (whether every file is trusted), or the trusted keys.

    A key is its text, or the path of a file with one key on each line. Raises ``BadInput``.
    """
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.startswith(PREFIX):
        return (PublicKey.parse(given),)
    keys = tuple(PublicKey.parse(line.strip()) for line in _text(given).splitlines() if line.strip())
    if not keys:
        raise BadInput(f"trust={given}: the file has no public key; {_REMEDY}")
    return keys


def _text(given: AnyPath) -> str:
    """The keys in a file. Raises ``BadInput``."""
    try:
        path = Path(given)
        if not path.is_file():
            raise BadInput(f"trust={path}: there is no such file; {_REMEDY}")
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode()
    except OSError as error:
        raise BadInput(f"trust={given!r:.100} can't be read: {reason(error)}; {_REMEDY}") from error
    except (TypeError, ValueError) as error:
        raise BadInput(f"trust={given!r:.100} can't be read: {error}; {_REMEDY}") from error


class SecretKey:
    """A signing key. Raises ``BadInput`` if the file has none, or others can read it, ``Unsupported`` without the
    library."""

    def __init__(self, path: AnyPath) -> None:
        try:
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError as error:
            raise _missing() from error
        self.path = Path(path)
        shown = os.fspath(path)
        try:
            found = load_pem_private_key(read_secret(Path(path), _MOST_BYTES), password=None)
        except FileNotFoundError as error:
            raise BadInput(f"there is no key {shown}; tilewright sign --generate makes one") from error
        except OSError as error:
            raise BadInput(f"the key {shown} can't be used: {reason(error)}") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise BadInput(f"{shown} is no secret key (Ed25519, PKCS #8 in PEM, not encrypted): {error}") from error
        if not isinstance(found, Ed25519PrivateKey):
            raise BadInput(f"{shown} is a key of another kind; tilewright sign --generate makes one for Ed25519")
        self._key = found
        self.public = PublicKey(found.public_key().public_bytes_raw())

    def sign(self, manifest: bytes) -> bytes:
        """The signature of a manifest."""
        return self._key.sign(_DOMAIN + manifest)


def generate(path: AnyPath) -> PublicKey:
    """Generate a secret key in ``path``, and its public key in ``<path>.pub``.

    Raises ``BadInput`` if one of the files exists or can't be written, ``Unsupported`` without the library.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError as error:
        raise _missing() from error
    place = Path(path)
    beside = check_output(place.with_name(f"{place.name}.pub"))
    made = Ed25519PrivateKey.generate()
    try:
        make_secret(place, made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    except FileExistsError as error:
        raise BadInput(f"there is a file {place} already, and a key is never replaced; give another name") from error
    except OSError as error:
        raise BadInput(f"{place} can't be written: {reason(error)}") from error
    public = PublicKey(made.public_key().public_bytes_raw())
    with output(beside) as file:
        file.write(f"{public}\n".encode())
    return public


def _missing() -> Unsupported:
    return Unsupported("signatures with public keys need the library cryptography: pip install 'tilewright[sign]'")
