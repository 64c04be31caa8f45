"""The user's own signature of artifacts, under a secret key of this user.

An artifact is machine code, which loading allows to run. Hashes prove integrity, not origin. So each user has a secret
key, ``artifact.key`` (32 random bytes, mode 0600) in a folder of their own, made with the first artifact that they
save. The signature is HMAC-SHA256 (RFC 2104) of the manifest under this key; the manifest has the hashes of all the
rest.

A file that verifies was saved by a process that could read this user's key, and has not been altered. It does not
follow that the model is harmless. Other users can't verify it: they must pass ``trust=True``, or trust a public key
(``keys``). It protects against foreign files, not against programs that already run as this user.
"""

import contextlib
import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final

from tilewright.base.errors import BadInput
from tilewright.base.files import own_folder, reason
from tilewright.runtime.artifact.secret_files import make_secret, read_secret

KEY_FILE: Final = "artifact.key"
_KEY_BYTES: Final = 32
_SCHEME: Final = b"hmac-sha256 "
_DOMAIN: Final = b"tilewright artifact manifest\0"


def sign(manifest: bytes, key_dir: Path | None) -> bytes:
    """The signature of a manifest; generates the key if there is none. Raises ``BadInput`` if there is no folder for
    it."""
    if key_dir is None:
        raise BadInput("there is no key to sign artifacts with, and no home to make one in; set TILEWRIGHT_KEY_DIR")
    try:
        fault = own_folder(key_dir)
        if fault is None:
            _make_key(key_dir / KEY_FILE)
            return _signature(manifest, _read_key(key_dir / KEY_FILE))
    except OSError as error:
        fault = reason(error)
    raise BadInput(f"the key that signs artifacts can't be kept in {key_dir}: {fault}; set TILEWRIGHT_KEY_DIR")


def doubt(manifest: bytes, signature: bytes | None, key_dir: Path | None) -> str | None:
    """Why ``manifest`` is not verified as this user's; None if it is. Generates no key."""
    if signature is None:
        return "it is not signed"
    if key_dir is None:
        return "there is no key to check its signature with (no home; TILEWRIGHT_KEY_DIR is not set)"
    try:
        key = _read_key(key_dir / KEY_FILE)
    except FileNotFoundError:
        return "it is signed by somebody else: this user has not saved an artifact yet"
    except OSError as error:
        return f"the key that would check its signature, {key_dir / KEY_FILE}, can't be used: {reason(error)}"
    if not hmac.compare_digest(signature, _signature(manifest, key)):
        return "it is signed with another key than this user's"
    return None


def _signature(manifest: bytes, key: bytes) -> bytes:
    return _SCHEME + hmac.new(key, _DOMAIN + manifest, hashlib.sha256).hexdigest().encode() + b"\n"


def _make_key(path: Path) -> None:
    """Generate the key if there is none."""
    if not path.exists():
        with contextlib.suppress(FileExistsError):
            make_secret(path, secrets.token_bytes(_KEY_BYTES))


def _read_key(path: Path) -> bytes:
    """The key. Raises ``OSError`` if it is missing, or other users could read it."""
    key = read_secret(path, _KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise OSError(0, f"it has not {_KEY_BYTES} bytes (remove it)")
    return key
