"""Who made an artifact: a signature under a key that only this user has.

An artifact is machine code: who loads it runs it. Hashes say that a file is as it was written, not who wrote it. So
each user has a secret key, ``artifact.key`` (32 random bytes, mode 0600) in a folder of their own, made with the first
artifact that they save. The signature is HMAC-SHA256 (RFC 2104) of the manifest under this key; the manifest has the
hashes of all the rest.

What it means: a file that verifies was saved by a process that could read this user's key, and has not been altered.
What it does not mean: that the model is harmless, or that others can verify it: who does not have the key can't, and
must say ``trust=True``. It guards against files from elsewhere, not against programs that run as this user already.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from tilewright.base.errors import BadInput
from tilewright.base.files import own_folder, reason

KEY_FILE: Final = "artifact.key"
_KEY_BYTES: Final = 32
_SCHEME: Final = b"hmac-sha256 "
_DOMAIN: Final = b"tilewright artifact manifest\0"


def sign(manifest: bytes, key_dir: Path | None) -> bytes:
    """The signature of a manifest; makes the key if there is none. Raises ``BadInput`` if there is no place for one."""
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
    """Why it is not known that this user made ``manifest``; None if it is. Makes no key."""
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
    """Make the key if there is none. Of processes that do so at once, one wins: a link never replaces a file."""
    if path.exists():
        return
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink()


def _read_key(path: Path) -> bytes:
    """The key. Raises ``OSError`` if it is missing, or could be known to others."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            raise PermissionError(0, "it is no file of this user's")
        if facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise PermissionError(0, "other users can read or write it (chmod 600 it, or remove it)")
        key = file.read(_KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise OSError(0, f"it has not {_KEY_BYTES} bytes (remove it)")
    return key
