"""Artifacts: as they are, and with hashes that fit again, so that what they protect is read, linked and mapped too.

Input: the members one after the other, each after its length (4 bytes, little-endian). A length with its top bit set
asks for the file as it stands; otherwise sizes and hashes in the manifest are put right before the file is made. No
code that is altered is run: what machine code does is beyond what loading can promise.
"""

import hashlib
import json
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tilewright
from fuzz.samples import sample_artifact
from fuzz.target import Target
from tilewright.runtime.artifact.archive import pack

AS_IT_STANDS = 1 << 31


def check(data: bytes) -> None:
    """The file is loaded with ``trust=True``, and not run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tw"
        path.write_bytes(file_of(data))
        tilewright.load(path, trust=True)


def file_of(data: bytes) -> bytes:
    """The artifact that an input stands for."""
    if len(data) >= 4 and struct.unpack_from("<I", data)[0] & AS_IT_STANDS:
        return data[4:]
    parts = _parts(data)
    names = [
        "manifest.json",
        *(f"objects/{position:04}.o" for position in range(len(parts) - 2)),
        "weights.safetensors",
    ]
    members = dict(zip(names, parts, strict=False))
    return b"".join(pack((name, [content]) for name, content in _repaired(members).items()))


def _parts(data: bytes) -> list[bytes]:
    parts: list[bytes] = []
    position = 0
    while position + 4 <= len(data) and len(parts) < 8:
        (length,) = struct.unpack_from("<I", data, position)
        parts.append(data[position + 4 : position + 4 + length])
        position += 4 + length
    return parts


def _repaired(members: dict[str, bytes]) -> dict[str, bytes]:
    """The members, listed in the manifest as they are, if that is JSON with such a list."""
    manifest = members.get("manifest.json", b"")
    try:
        head, _, _ = manifest.decode("ascii").partition('"members": ')
        json.loads(head + '"members": []}')
    except ValueError:
        return members
    listed = [
        {"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
        if name != "manifest.json"
    ]
    lines = ",\n".join(f" {json.dumps(one)}" for one in listed)
    return {**members, "manifest.json": f'{head}"members": [\n{lines}\n]\n}}\n'.encode("ascii")}


def seeds() -> Iterator[bytes]:
    for dynamic in (False, True):
        members = sample_artifact(dynamic)
        yield b"".join(struct.pack("<I", len(content)) + content for content in members.values())
        whole = b"".join(pack((name, [content]) for name, content in members.items()))
        yield struct.pack("<I", AS_IT_STANDS) + whole


TARGET = Target("artifact", check, seeds, max_bytes=1 << 17, runs=20_000)
