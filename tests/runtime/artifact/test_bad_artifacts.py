"""Files that are not what a user's own Tilewright saved for this machine: rows 60 to 62 of the table of bad inputs.

Each is refused before any of its bytes is executed, with the class of error and a text that says why and what to do.
"""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.artifact.parts import X, adder, built_for, saved
from tilewright.base import host
from tilewright.base.errors import BadInput, CorruptArtifact, UntrustedData
from tilewright.base.processors import Architecture
from tilewright.base.settings import Settings
from tilewright.runtime import abi
from tilewright.runtime.artifact import archive, origin, read
from tilewright.runtime.artifact.description import FORMAT
from tilewright.runtime.loading import load
from tilewright.runtime.runnable import RunnableModel

Members = dict[str, bytes]


@pytest.fixture
def own(tmp_path: Path) -> Settings:
    return Settings(key_dir=tmp_path / "keys")


def members_of(path: Path) -> Members:
    return {name: bytes(m.data) for name, m in archive.unpack(memoryview(path.read_bytes())).items()}


def write(path: Path, members: Members) -> None:
    path.write_bytes(b"".join(archive.pack([(name, [data]) for name, data in members.items()])))


def refused(path: Path, own: Settings, reason: str, error: type[Exception] = CorruptArtifact) -> None:
    """Refused with and without trust, naming the file."""
    for trust in (False, True):
        with pytest.raises(error, match=reason) as caught:
            load(path, trust=trust, settings=own)
        assert str(path) in str(caught.value)


def test_a_good_one(tmp_path: Path, own: Settings) -> None:
    model = load(saved(tmp_path), threads=1, settings=own)
    np.testing.assert_array_equal(model(X, X), X + X)


# Row 60: altered content


@pytest.mark.parametrize("name", ["objects/0000.o", "objects/0001.o", "weights.safetensors"])
def test_a_wrong_hash(tmp_path: Path, own: Settings, name: str) -> None:
    path = saved(tmp_path)
    members = members_of(path)
    members[name] = members[name][:-1] + bytes([members[name][-1] ^ 1])
    write(path, members)
    refused(path, own, rf"'{name}' is damaged or altered: its SHA-256")


def test_a_wrong_size(tmp_path: Path, own: Settings) -> None:
    path = saved(tmp_path)
    members = members_of(path)
    write(path, {**members, "objects/0000.o": members["objects/0000.o"] + b"\0"})
    refused(path, own, "'objects/0000.o' has another size than its manifest says")


def without(name: str) -> Callable[[Members], Members]:
    return lambda members: {key: data for key, data in members.items() if key != name}


def in_order(*positions: int) -> Callable[[Members], Members]:
    return lambda members: {list(members)[position]: members[list(members)[position]] for position in positions}


def with_extra(members: Members) -> Members:
    """One more, before the signature."""
    return {**without("signature")(members), "extra.o": b"", "signature": members["signature"]}


CHANGES: list[tuple[Callable[[Members], Members], str]] = [
    (without("manifest.json"), "first member is not manifest.json"),
    (without("objects/0001.o"), "'objects/0001.o' is missing"),
    (without("weights.safetensors"), "'weights.safetensors' is missing"),
    (with_extra, "'extra.o' is not listed"),
    (lambda members: {**members, "after": b""}, "last member is not signature"),
    (in_order(4, 0, 1, 2, 3), "first member is not manifest.json"),
    (in_order(0, 2, 1, 3, 4), "the order differs"),
    (in_order(), "is no artifact"),
    (in_order(4), "first member is not manifest.json"),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_other_members(tmp_path: Path, own: Settings, change: Callable[[Members], Members], reason: str) -> None:
    path = saved(tmp_path)
    write(path, change(members_of(path)))
    refused(path, own, reason)


@pytest.mark.parametrize(
    ("mark", "offset", "value", "reason"),
    [
        (b"PK\1\2", 8, 1, "'manifest.json' is encrypted"),
        (b"PK\1\2", 10, 8, r"'manifest.json' is compressed \(method 8\)"),
        (b"PK\1\2", 41, 0o120777 >> 8, "'manifest.json' is a symbolic link"),
        (b"PK\1\2", 46, ord("/"), "'/anifest.json' has a name that is no place inside the archive"),
        (b"PK\1\2", 12, 7, "'manifest.json' is not as Tilewright writes it|directory .* not as Tilewright"),
        (b"PK\3\4", 6, 1, "'manifest.json' is not as Tilewright writes it"),
    ],
)
def test_members_of_another_kind(
    tmp_path: Path, own: Settings, mark: bytes, offset: int, value: int, reason: str
) -> None:
    path = saved(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(mark) + offset] = value
    path.write_bytes(data)
    refused(path, own, reason)


def test_a_member_outside_and_a_member_twice(tmp_path: Path, own: Settings) -> None:
    path = saved(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"objects/0001.o", b"../../bin/ls/x"))
    refused(path, own, "'../../bin/ls/x' has a name that is no place inside the archive")
    path.write_bytes(data.replace(b"objects/0001.o", b"objects/0000.o"))
    refused(path, own, "'objects/0000.o' is there twice")


def test_bytes_everywhere_are_checked(tmp_path: Path, own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    data = path.read_bytes()
    here = host.detect()
    monkeypatch.setattr(host, "detect", lambda: here)
    for position in range(0, len(data), 3):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        with pytest.raises(CorruptArtifact):
            read(path, own.key_dir, trust=bool(position % 2))


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.3, 0.9, 0.9999])
def test_a_file_that_was_cut_off(tmp_path: Path, own: Settings, kept: float) -> None:
    path = saved(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    refused(path, own, "copied completely|is empty")


@pytest.mark.parametrize("content", [b"\x08\x07\x12\x04onnx", b"\x7fELF\2\1\1", b"text\n" * 99])
def test_a_file_of_another_kind(tmp_path: Path, own: Settings, content: bytes) -> None:
    path = tmp_path / "m.tw"
    path.write_bytes(content)
    refused(path, own, r"is no artifact .*tilewright.compile")


def test_no_file(tmp_path: Path, own: Settings) -> None:
    refused(tmp_path / "none.tw", own, "can't be opened: No such file", BadInput)
    refused(tmp_path, own, "no regular file", BadInput)
    os.mkfifo(tmp_path / "pipe.tw")
    refused(tmp_path / "pipe.tw", own, "no regular file", BadInput)


def test_a_disk_that_fails(tmp_path: Path, own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each system call may; the file is closed then."""
    path, closed, close = saved(tmp_path), list[int](), os.close

    def fails(descriptor: int) -> os.stat_result:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched, pytest.raises(BadInput, match="can't be read: Input/output error"):
        patched.setattr(os, "fstat", fails)
        patched.setattr(os, "close", lambda descriptor: closed.append(close(descriptor) or descriptor))
        load(path, settings=own)
    assert len(closed) == 1


# Row 61: made for something else


def test_features_that_this_processor_has_not(tmp_path: Path, own: Settings) -> None:
    have = adder().build.features
    refused(saved(tmp_path, built_for(*have, "feature-of-2040")), own, "needs feature-of-2040, .* compile the model")


def test_avx512f_is_named(tmp_path: Path, own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """As seen by a processor without it: the basic feature is named, not all that build on it."""
    here = replace(adder().build, features=("avx2", "avx512f", "avx512bw", "avx512vl", "fma"))
    path = saved(tmp_path, replace(adder(), build=replace(here, architecture="x86_64")))
    small = host.Host(Architecture.X86_64, "haswell", frozenset(("avx2", "fma")), {}, 1)
    monkeypatch.setattr(host, "detect", lambda: small)
    refused(path, own, "it needs avx512f, which this processor has not; compile")


def test_another_architecture(tmp_path: Path, own: Settings) -> None:
    refused(
        saved(tmp_path, built_for(architecture="pdp11")),
        own,
        "is code for pdp11, and this machine is .*; compile the model for this machine",
    )


@pytest.mark.parametrize(("name", "known"), [("format", FORMAT), ("abi", abi.VERSION)])
def test_another_version(tmp_path: Path, own: Settings, name: str, known: int) -> None:
    """Signed by this user, with a later Tilewright."""
    path = saved(tmp_path)
    members = members_of(path)
    manifest = members["manifest.json"].replace(f'"{name}": {known},'.encode(), f'"{name}": 77,'.encode())
    assert json.loads(manifest)[name] == 77
    write(path, {**members, "manifest.json": manifest, "signature": origin.sign(manifest, own.key_dir)})
    refused(path, own, rf"has {name} 77, and this Tilewright runs {name} {known}; .* use Tilewright 1.2.3")


def test_objects_that_do_not_fit(tmp_path: Path, own: Settings) -> None:
    """What only linking finds is named as well."""
    made = adder()
    refused(saved(tmp_path, replace(made, objects=(*made.objects[:1], b"\x7fELFx"))), own, "object 1")
    refused(saved(tmp_path, replace(made, objects=made.objects[1:])), own, "tw_main")


# Row 62: made by somebody else


def test_an_artifact_of_somebody_else(tmp_path: Path, own: Settings) -> None:
    (tmp_path / "eve").mkdir()
    path = saved(tmp_path / "eve")
    saved(tmp_path)
    with pytest.raises(UntrustedData, match=r"eve/m\.tw .*signed with another key.*load it with trust=True"):
        load(path, settings=own)
    assert isinstance(load(path, trust=True, settings=own), RunnableModel)


def test_an_unsigned_artifact(tmp_path: Path, own: Settings) -> None:
    path = saved(tmp_path, signed=False)
    with pytest.raises(UntrustedData, match=r"it is not signed.*trust=True"):
        load(path, settings=own)
    np.testing.assert_array_equal(load(path, trust=True, settings=own)(X, X), X + X)


def test_a_manifest_that_was_altered_with_all_hashes_right(tmp_path: Path, own: Settings) -> None:
    """Hashes can be forged by anybody; the signature can't."""
    path = saved(tmp_path)
    members = members_of(path)
    manifest = members["manifest.json"].replace(b'"1.2.3"', b'"1.2.4"')
    write(path, {**members, "manifest.json": manifest})
    with pytest.raises(UntrustedData, match="another key than this user's"):
        load(path, settings=own)


def test_without_a_home(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(UntrustedData, match="no home; TILEWRIGHT_KEY_DIR is not set"):
        load(path, settings=Settings(key_dir=None))
    assert isinstance(load(path, trust=True, settings=Settings(key_dir=None)), RunnableModel)
