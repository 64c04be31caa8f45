"""Certificates of a fleet: an authority, and a certificate for each scheduler, device and user, by ``cryptography``.

    FOLDER/authority.pem, authority-key.pem    the authority; its key stays where it was made
    FOLDER/NAME/authority.pem                  what NAME needs: this folder is copied to it
    FOLDER/NAME/certificate.pem, key.pem

Keys are of the curve P-256, in PEM (PKCS #8, not encrypted), mode 0600. A certificate proves membership, not a role:
whoever has one may join devices and use them. Host names are not checked, as members have addresses that change.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tilewright.base.errors import BadInput
from tilewright.base.files import create_file, own_folder, reason
from tilewright.fleet.inventory import checked_name

CA = "authority.pem"
CA_KEY = "authority-key.pem"
CERTIFICATE = "certificate.pem"
KEY = "key.pem"
_BACKDATED = timedelta(hours=1)
"""Clocks of boards differ."""
_RESERVED = re.compile(r"authority.*")

_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def make_certificates(folder: Path, names: Sequence[str], days: int) -> list[Path]:
    """A folder for each name, valid for ``days``, of the authority in ``folder``, which is made if it is missing.

    Raises ``BadInput`` if a name can't be used or is taken, or a folder can't be written or is not private.
    """
    for name in names:
        if _RESERVED.fullmatch(checked_name(name)) or name.startswith("."):
            raise BadInput(f"{name} can't name a certificate: choose another name")
        if (folder / name).exists():
            raise BadInput(f"{folder / name} is there already: remove it to make that certificate anew")
    try:
        _require_own(folder)
        authority, key = _authority(folder, days)
        return [_member(folder, name, authority, key, days) for name in names]
    except OSError as error:
        raise BadInput(f"certificates can't be written to {folder}: {reason(error)}") from error


def expires(folder: Path) -> datetime:
    """When the certificate in a member's folder ends. Raises ``BadInput``."""
    try:
        return x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes()).not_valid_after_utc
    except OSError as error:
        raise BadInput(f"{folder / CERTIFICATE} can't be read: {reason(error)}") from error
    except ValueError as error:
        raise BadInput(f"{folder / CERTIFICATE} is no certificate: {error}") from error


def _require_own(folder: Path) -> None:
    fault = own_folder(folder)
    if fault is not None:
        raise BadInput(f"keys can't be kept in {folder}: {fault}")


def _authority(folder: Path, days: int) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    if (folder / CA).exists():
        return _known_authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Tilewright fleet")
    made = (
        _described(name, name, key.public_key(), key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNS_CERTIFICATES, critical=True)
    )
    certificate = made.sign(key, hashes.SHA256())
    _write_key(folder / CA_KEY, key)
    create_file(folder / CA, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return certificate, key


def _known_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
        key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise BadInput(f"the authority in {folder} is damaged: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise BadInput(f"{folder / CA_KEY} is not the key of {folder / CA}")
    return certificate, key


def _member(
    folder: Path, name: str, authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey, days: int
) -> Path:
    key, own = ec.generate_private_key(ec.SECP256R1()), folder / name
    described = _described(_name(name), authority.subject, key.public_key(), authority_key.public_key(), days)
    made = described.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    certificate = made.sign(authority_key, hashes.SHA256())
    own.mkdir(mode=0o700)
    _write_key(own / KEY, key)
    for file, content in ((CERTIFICATE, certificate), (CA, authority)):
        create_file(own / file, content.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return own


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _described(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    days: int,
) -> x509.CertificateBuilder:
    """With the identifiers of keys that RFC 5280 asks for: Python 3.13 and later refuse certificates without."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    form = serialization.PrivateFormat.PKCS8
    content = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    create_file(path, content, mode=0o600)
