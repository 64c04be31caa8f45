"""Artifacts signed with public keys: who has signed is known to everybody; nothing else passes for it."""

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from tests.cli.schema import report
from tests.runtime.artifact.forge import pack
from tests.runtime.artifact.parts import X, adder, built_for, saved
from tilewright.base.errors import BadInput, CorruptArtifact, Unsupported, UnsupportedTarget, UntrustedData
from tilewright.base.settings import Settings
from tilewright.cli import main
from tilewright.runtime.artifact import THIS_USER, PublicKey, SecretKey, add_signature, archive, generate, read, save
from tilewright.runtime.artifact.signatures import Signatures
from tilewright.runtime.loading import load

SOURCE = Path(__file__).parent.parent.parent.parent / "src"
NOBODY = Settings(key_dir=None)


@pytest.fixture
def key(tmp_path: Path) -> SecretKey:
    generate(tmp_path / "k.pem")
    return SecretKey(tmp_path / "k.pem")


@pytest.fixture
def other(tmp_path: Path) -> SecretKey:
    generate(tmp_path / "other.pem")
    return SecretKey(tmp_path / "other.pem")


@pytest.fixture
def path(tmp_path: Path, key: SecretKey) -> Path:
    """Signed with the key only."""
    save(adder(), tmp_path / "m.tw", None, signed=False, key=key)
    return tmp_path / "m.tw"


def members(path: Path) -> dict[str, bytes]:
    return {name: bytes(m.data) for name, m in archive.unpack(memoryview(path.read_bytes())).items()}


def with_signature(path: Path, text: bytes) -> None:
    pack(path, {**members(path), "signature": text})


def test_who_knows_the_public_key_trusts_it(path: Path, key: SecretKey, tmp_path: Path) -> None:
    for trust in (str(key.public), tmp_path / "k.pem.pub", str(tmp_path / "k.pem.pub")):
        model = load(path, trust=trust, settings=NOBODY)
        assert model.signer == str(key.public)
        np.testing.assert_array_equal(model(X, X), X + X)


def test_without_a_key_it_is_somebody_elses(path: Path, key: SecretKey) -> None:
    with pytest.raises(UntrustedData, match=rf"it is not signed.*trust=True.*trust= .*\({key.public}\)"):
        load(path, settings=NOBODY)
    assert load(path, trust=True, settings=NOBODY).signer is None


def test_another_key(path: Path, key: SecretKey, other: SecretKey) -> None:
    with pytest.raises(UntrustedData, match=f"is not signed with {other.public}; .*: {key.public}"):
        load(path, trust=str(other.public), settings=NOBODY)


def test_of_several_keys_one_is_enough(path: Path, key: SecretKey, other: SecretKey, tmp_path: Path) -> None:
    (tmp_path / "ring").write_text(f"{other.public}\n\n {key.public}\n")
    assert load(path, trust=tmp_path / "ring", settings=NOBODY).signer == str(key.public)


def test_the_users_own_signature_is_no_substitute(tmp_path: Path, key: SecretKey) -> None:
    path = saved(tmp_path)
    own = Settings(key_dir=tmp_path / "keys")
    assert load(path, settings=own).signer == THIS_USER
    with pytest.raises(UntrustedData, match="the public keys of its signatures: none"):
        load(path, trust=str(key.public), settings=own)


def test_both_signatures(tmp_path: Path, key: SecretKey, other: SecretKey) -> None:
    """Each serves those that it is for, in one file of one form."""
    path, keys = saved(tmp_path), tmp_path / "keys"
    before = members(path)
    assert add_signature(path, path, key, keys) == (key.public,)
    assert add_signature(path, path, other, keys) == tuple(sorted((key.public, other.public)))
    once = path.read_bytes()
    assert add_signature(path, path, key, keys) == tuple(sorted((key.public, other.public)))
    assert path.read_bytes() == once
    after = members(path)
    assert after.pop("signature").startswith(before.pop("signature"))
    assert after == before
    assert load(path, settings=Settings(key_dir=keys)).signer == THIS_USER
    for secret in (key, other):
        assert load(path, trust=str(secret.public), settings=NOBODY).signer == str(secret.public)


def test_a_signature_that_was_taken_away(path: Path, key: SecretKey) -> None:
    rest = members(path)
    del rest["signature"]
    pack(path, rest)
    with pytest.raises(UntrustedData, match="is not signed with"):
        load(path, trust=str(key.public), settings=NOBODY)


def test_a_signature_of_another_artifact(path: Path, key: SecretKey, tmp_path: Path) -> None:
    save(built_for("sse2"), tmp_path / "n.tw", None, signed=False, key=key)
    with_signature(path, members(tmp_path / "n.tw")["signature"])
    with pytest.raises(UntrustedData, match=f"wrong signature of {key.public}.*that of another artifact"):
        load(path, trust=str(key.public), settings=NOBODY)


def test_a_manifest_that_was_altered(path: Path, key: SecretKey) -> None:
    rest = members(path)
    pack(path, {**rest, "manifest.json": rest["manifest.json"].replace(b'"1.2.3"', b'"1.2.4"')})
    with pytest.raises(UntrustedData, match="it was altered after it was signed"):
        load(path, trust=str(key.public), settings=NOBODY)


@pytest.mark.parametrize("name", ["objects/0000.o", "weights.safetensors"])
def test_contents_that_were_altered(path: Path, key: SecretKey, name: str) -> None:
    rest = members(path)
    pack(path, {**rest, name: rest[name][:-1] + bytes([rest[name][-1] ^ 1])})
    with pytest.raises(CorruptArtifact, match="is damaged or altered"):
        load(path, trust=str(key.public), settings=NOBODY)


def test_keys_that_were_swapped(path: Path, key: SecretKey, other: SecretKey) -> None:
    """The other key's name over this key's signature, and this key's name over the other's."""
    text, manifest = members(path)["signature"], members(path)["manifest.json"]
    with_signature(path, text.replace(str(key.public).encode(), str(other.public).encode()))
    for secret, reason in ((key, "is not signed with"), (other, "wrong signature")):
        with pytest.raises(UntrustedData, match=reason):
            load(path, trust=str(secret.public), settings=NOBODY)
    with_signature(path, bytes(Signatures().with_public(key.public, other.sign(manifest))))
    with pytest.raises(UntrustedData, match="wrong signature"):
        load(path, trust=str(key.public), settings=NOBODY)


def test_what_else_a_key_may_have_signed(path: Path, key: SecretKey, tmp_path: Path) -> None:
    """The manifest alone, its hash, or with the domain of the users' own signatures: not what is signed here."""
    secret = Ed25519PrivateKey.generate()
    raw = secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "raw.pem").touch(mode=0o600)
    (tmp_path / "raw.pem").write_bytes(raw)
    public = SecretKey(tmp_path / "raw.pem").public
    manifest = members(path)["manifest.json"]
    for message in (manifest, hashlib.sha256(manifest).digest(), b"tilewright artifact manifest\0" + manifest):
        with_signature(path, bytes(Signatures().with_public(public, secret.sign(message))))
        with pytest.raises(UntrustedData, match="wrong signature"):
            load(path, trust=str(public), settings=NOBODY)
    assert str(key.public) != str(public)


OWN = b"hmac-sha256 " + b"ab" * 32 + b"\n"
CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "cut": lambda text: text[:-2] + b"\n",
    "without its end": lambda text: text[:-1],
    "longer": lambda text: text[:-1] + b"00\n",
    "capitals": lambda text: text.upper(),
    "two spaces": lambda text: text.replace(b" ", b"  "),
    "a line more": lambda text: text + b"\n",
    "twice": lambda text: text + text,
    "own one last": lambda text: text + OWN,
    "own one twice": lambda text: OWN + OWN + text,
    "not sorted": lambda text: b"ed25519:" + b"ff" * 32 + b" " + b"00" * 64 + b"\n" + text,
    "other scheme": lambda text: text.replace(b"ed25519", b"ed25518"),
    "not text": lambda text: b"\xff" * 80,
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_forms(path: Path, key: SecretKey, change: str) -> None:
    """Refused whoever is trusted: there is no byte that nobody checks."""
    with_signature(path, CHANGES[change](members(path)["signature"]))
    for trust in (False, True, str(key.public)):
        with pytest.raises(CorruptArtifact, match="signatures are not as Tilewright writes them"):
            load(path, trust=trust, settings=NOBODY)


@pytest.mark.parametrize("at", range(0, 64, 7))
def test_any_byte_of_a_signature(path: Path, key: SecretKey, at: int) -> None:
    signature = bytearray(key.sign(members(path)["manifest.json"]))
    signature[at] ^= 1
    with_signature(path, bytes(Signatures().with_public(key.public, bytes(signature))))
    with pytest.raises(UntrustedData, match="wrong signature"):
        load(path, trust=str(key.public), settings=NOBODY)


# The y of a point of order 8 on Edwards' curve, and of its negative: both solve d y^4 + 2 y^2 = 1.
EIGHTH = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
NEGATIVE = (2**255 - 19 - int.from_bytes(EIGHTH, "little")).to_bytes(32, "little")
NEUTRAL = b"\1" + bytes(31)
SMALL = [NEUTRAL, bytes(32), b"\xec" + b"\xff" * 30 + b"\x7f", EIGHTH, NEGATIVE, b"\xed" + b"\xff" * 30 + b"\x7f"]


@pytest.mark.parametrize("raw", [*SMALL, b"\xff" * 32], ids=bytes.hex)
@pytest.mark.parametrize("point", SMALL, ids=bytes.hex)
def test_keys_that_are_no_points(path: Path, raw: bytes, point: bytes) -> None:
    """Of small order, or none at all: they sign nothing, though a point of small order and 0 fit some of them."""
    public = PublicKey(raw)
    with_signature(path, bytes(Signatures().with_public(public, point + bytes(32))))
    with pytest.raises(UntrustedData, match="wrong signature"):
        load(path, trust=str(public), settings=NOBODY)


def test_a_key_of_small_order_is_one(key: SecretKey) -> None:
    """The library accepts a signature under the neutral element: the test above would not notice other encodings."""
    Ed25519PublicKey.from_public_bytes(NEUTRAL).verify(NEUTRAL + bytes(32), b"anything")
    assert not PublicKey(NEUTRAL).verifies(b"anything", NEUTRAL + bytes(32))
    assert key.public.verifies(b"x", key.sign(b"x"))


# ---------------------------------------------------------------------------------------------------------------------
# Signing
# ---------------------------------------------------------------------------------------------------------------------


def test_who_signs_vouches_for_it(tmp_path: Path, key: SecretKey, other: SecretKey) -> None:
    """So what the signer would not load is not signed by accident."""
    path = saved(tmp_path)
    before = path.read_bytes()
    with pytest.raises(UntrustedData, match="not known to be this user's"):
        add_signature(path, path, key, tmp_path / "eve")
    assert path.read_bytes() == before
    add_signature(path, tmp_path / "n.tw", key, tmp_path / "eve", trust=True)
    add_signature(tmp_path / "n.tw", tmp_path / "n.tw", other, None, trust=(key.public,))
    assert path.read_bytes() == before
    assert load(tmp_path / "n.tw", trust=str(other.public), settings=NOBODY).signer == str(other.public)


def test_what_is_damaged_is_not_signed(path: Path, key: SecretKey, other: SecretKey) -> None:
    rest = members(path)
    pack(path, {**rest, "weights.safetensors": rest["weights.safetensors"][:-1] + b"\1"})
    with pytest.raises(CorruptArtifact, match="is damaged or altered"):
        add_signature(path, path, other, None, trust=(key.public,))


def test_an_artifact_for_another_machine_is_signed(tmp_path: Path, key: SecretKey) -> None:
    save(built_for(architecture="pdp11"), tmp_path / "m.tw", None, signed=False)
    assert add_signature(tmp_path / "m.tw", tmp_path / "m.tw", key, None, trust=True) == (key.public,)
    with pytest.raises((CorruptArtifact, UnsupportedTarget), match="pdp11"):
        read(tmp_path / "m.tw", None, trust=(key.public,))


def test_the_key_is_not_overwritten(tmp_path: Path, key: SecretKey) -> None:
    before = key.path.read_bytes()
    path = saved(tmp_path)
    with pytest.raises(BadInput, match="it is an input"):
        add_signature(path, key.path, key, tmp_path / "keys")
    with pytest.raises(BadInput, match="it is an input"):
        save(adder(), key.path, None, signed=False, key=key)
    with pytest.raises(BadInput, match="a key is never replaced"):
        generate(key.path)
    assert key.path.read_bytes() == before


def test_a_new_key_is_secret(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        public = generate(tmp_path / "k")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o600
    assert (tmp_path / "k.pub").read_text() == f"{public}\n"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["k", "k.pub"]
    assert generate(tmp_path / "l") != public


def write_key(path: Path, key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey, how: KeySerializationEncryption) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))


def test_files_that_are_no_keys(tmp_path: Path, key: SecretKey) -> None:
    write_key(tmp_path / "locked", Ed25519PrivateKey.generate(), BestAvailableEncryption(b"word"))
    write_key(tmp_path / "curve", ec.generate_private_key(ec.SECP256R1()), NoEncryption())
    (tmp_path / "text").touch(mode=0o600)
    (tmp_path / "text").write_text("key")
    (tmp_path / "open").write_bytes(key.path.read_bytes())
    (tmp_path / "link").symlink_to(key.path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    reasons = {
        "missing": "there is no key .*sign --generate makes one",
        "locked": "not encrypted",
        "curve": "a key of another kind",
        "text": "is no secret key",
        "open": "other users can read or write it",
        "link": "can't be used",
        "pipe": "no file of this user's",
    }
    for name, reason in reasons.items():
        with pytest.raises(BadInput, match=reason):
            SecretKey(tmp_path / name)


@pytest.mark.parametrize(
    "trust",
    [
        "ed25519:",
        "ed25519:" + "A" * 64,
        "ed25519:" + "0" * 63,
        "",
        "missing",
        "/dev/zero",
        ".",
        "a\0b",
        None,
        1,
        b"x",
        [],
    ],
)
def test_what_is_no_public_key(path: Path, trust: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as caught:
        load(path, trust=trust, settings=NOBODY)  # type: ignore[arg-type]
    assert type(caught.value) is BadInput


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe", b"ssh-ed25519 AAAA me\n", b"x" * 100_000])
def test_files_that_have_no_public_key(path: Path, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "ring").write_bytes(content)
    with pytest.raises(BadInput, match=r"no public key|can't be read"):
        load(path, trust=tmp_path / "ring", settings=NOBODY)


# ---------------------------------------------------------------------------------------------------------------------
# Without the library
# ---------------------------------------------------------------------------------------------------------------------


def test_without_the_library(path: Path, key: SecretKey, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    public = str(key.public)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    attempts: list[Callable[[], object]] = [
        lambda: load(path, trust=public, settings=NOBODY),
        lambda: SecretKey(key.path),
        lambda: generate(tmp_path / "n.pem"),
    ]
    for attempt in attempts:
        with pytest.raises(Unsupported, match=r"pip install 'tilewright\[sign\]'"):
            attempt()
    assert load(path, trust=True, settings=NOBODY).signer is None


def test_loading_without_a_key_does_not_ask_for_it(path: Path) -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None; import tilewright;"
        "tilewright.load(sys.argv[1], trust=True); print('loaded')"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", program, str(path)]
    assert subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout == "loaded\n"


# ---------------------------------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TILEWRIGHT_KEY_DIR", str(tmp_path / "keys"))
    path = saved(tmp_path)
    assert main(["sign", str(path)]) == 2
    assert "tilewright sign --generate makes one" in capsys.readouterr().err
    assert main(["sign", "--generate"]) == 0
    public = capsys.readouterr().out.strip()
    assert main(["sign", "--show"]) == 0
    assert capsys.readouterr().out.strip() == public
    assert main(["sign", str(path), "-o", str(tmp_path / "n.tw"), "--json"]) == 0
    assert report("sign", capsys.readouterr().out)["signers"] == [public]
    monkeypatch.setenv("TILEWRIGHT_KEY_DIR", str(tmp_path / "elsewhere"))
    capsys.readouterr()
    assert main(["run", str(tmp_path / "n.tw")]) == 2
    assert main(["run", str(tmp_path / "n.tw"), "--trust-key", public]) == 0
    assert f"signed by {public}" in capsys.readouterr().out
    assert main(["run", str(path), "--trust-key", public]) == 2
    with pytest.raises(SystemExit):
        main(["run", str(path), "--trust-key", public, "--trust"])
    with pytest.raises(SystemExit):
        main(["sign"])
