"""Forged artifacts: any field of the objects, the manifest or the weights is another one, and all hashes are right.

    python -m tests.runtime.artifact.forge FOLDER SEED COUNT

A process of its own, which such files may kill: it prints the number of the forgery that it is at, and ends with 0 if
each was loaded or refused as it should be, within ``SECONDS``. What is loaded is not run: altered instructions are no
forgery that a loader could notice.
"""

import hashlib
import json
import random
import signal
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tests.runtime.artifact.parts import adder
from tests.runtime.images import SCALE, image_of
from tilewright.base import dtypes as dt
from tilewright.base.errors import BadFeed, CorruptArtifact
from tilewright.runtime.artifact import Artifact, archive, save
from tilewright.runtime.loading import load
from tilewright.runtime.manifest import Manifest, Symbol, TensorSpec

SECONDS = 10
Members = dict[str, bytes]


def scaler() -> Artifact:
    """With a run-time extent, formulas, workspace and threads."""
    x, y = (TensorSpec(name, dt.f32, ("n",)) for name in "xy")
    symbols = (
        Symbol("n", 1, 99),
        Symbol("bytes", value=("*", ("+", "n", 1), 4)),
        Symbol("m", value=("//", "bytes", 2)),
    )
    constants = (TensorSpec("c", dt.f32, ()), TensorSpec("w", dt.f32, (16, 3)))
    manifest = Manifest((x,), (y,), constants, symbols, workspace="bytes", scratch=64)
    arrays = (np.float32(2).reshape(()), np.ones((16, 3), np.float32))
    return replace(adder(), manifest=manifest, objects=tuple(image_of(SCALE)), constants=arrays)


def members_of(made: Artifact, folder: Path) -> Members:
    save(made, folder / "good.tw", None, signed=False)
    return {n: bytes(m.data) for n, m in archive.unpack(memoryview((folder / "good.tw").read_bytes())).items()}


def write(path: Path, members: Members) -> None:
    """With sizes and hashes as they are."""
    text = members["manifest.json"]
    for listed in json.loads(text)["members"]:
        data = members[listed["name"]]
        old = f'"size": {listed["size"]}, "sha256": "{listed["sha256"]}"'
        text = text.replace(
            old.encode(), f'"size": {len(data)}, "sha256": "{hashlib.sha256(data).hexdigest()}"'.encode()
        )
    pack(path, {**members, "manifest.json": text})


def pack(path: Path, members: Members) -> None:
    path.write_bytes(b"".join(archive.pack([(name, [data]) for name, data in members.items()])))


@dataclass(frozen=True)
class Field:
    """A number in an object: where, and its ``struct`` format."""

    at: int
    kind: str


def fields_of(data: bytes) -> Iterator[Field]:
    """Every field of the headers, symbols and relocations of an object."""
    header, section, symbol, relocation = "16B2HI3QI6H", "2I4Q2I2Q", "IBBHQQ", "QII Q"
    yield from _fields(header, 0)
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for number in range(count):
        start = table + 64 * number
        yield from _fields(section, start)
        kind, offset, size = (
            struct.unpack_from(f, data, start + at)[0] for f, at in (("<I", 4), ("<Q", 24), ("<Q", 32))
        )
        if kind in (2, 4):
            for at in range(offset, offset + size, 24):
                yield from _fields(symbol if kind == 2 else relocation, at)


def _fields(layout: str, start: int) -> Iterator[Field]:
    at = start
    number = ""
    for letter in layout.replace(" ", ""):
        if letter.isdigit():
            number += letter
            continue
        for _ in range(int(number or 1)):
            yield Field(at, f"<{letter}")
            at += struct.calcsize(f"<{letter}")
        number = ""


def altered_object(data: bytes, source: random.Random, fields: list[Field]) -> bytes:
    """One or two fields have other values: extreme ones, those of other fields, or nearly what they were."""
    changed = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2))):
        field = source.choice(fields)
        limit = 1 << 8 * struct.calcsize(field.kind)
        old = struct.unpack_from(field.kind, data, field.at)[0]
        other = source.choice(fields)
        extreme = (0, 1, limit - 1, limit // 2, limit // 2 - 1, len(data), 0xFFF1, 0xFFF2, 1 << 20, 1 << 40)
        near = (old + 1, old - 1, old ^ 1 << source.randrange(64))
        foreign = (struct.unpack_from(other.kind, data, other.at)[0], source.randrange(limit))
        value = source.choice((*extreme, *near, *foreign))
        struct.pack_into(field.kind, changed, field.at, value % limit)
    return bytes(changed)


NUMBERS = (0, 1, -1, 7, 63, 64, 1 << 31, 1 << 32, 1 << 40, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 64, 10**30)
OTHERS = (
    "",
    "n",
    "m",
    "bytes",
    "x",
    None,
    True,
    1.5,
    [],
    {},
    ["*", "n", "n"],
    ["//", "n", 0],
    ["%", 1 << 62, "n"],
    ["?"],
)


def altered_manifest(text: bytes, source: random.Random) -> bytes:
    """One value is another one; lists are longer, shorter, or in another order."""
    fields = json.loads(text)
    places: list[tuple[object, object]] = []
    _collect(fields, places)
    holder, key = source.choice(places)
    old = holder[key]  # type: ignore[index]
    if isinstance(old, list) and source.random() < 0.5:
        new: object = source.choice((old * 2, old[::-1], old[1:], [*old, *old[:1]], [old] * 70, old * 40))
    elif isinstance(old, int) and source.random() < 0.7:
        new = source.choice((old + 1, old - 1, old * 2, -old, *NUMBERS))
    else:
        new = source.choice((*NUMBERS, *OTHERS))
    holder[key] = new  # type: ignore[index]
    return _written(fields)


def _collect(value: object, places: list[tuple[object, object]]) -> None:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        places.append((value, key))
        _collect(value[key], places)  # type: ignore[index]


def _written(fields: dict[str, object]) -> bytes:
    """As ``description.to_json`` writes it, for any values."""

    def lines(value: object) -> str:
        if isinstance(value, list) and value:
            return "[\n" + ",\n".join(f" {json.dumps(item)}" for item in value) + "\n]"
        return json.dumps(value)

    body = ",\n".join(f"{json.dumps(name)}: {lines(value)}" for name, value in fields.items())
    return ("{\n" + body + "\n}\n").encode("ascii")


def try_one(path: Path) -> bool:
    """Load it; whether it could be loaded. Shapes and sizes are computed as before a run."""
    try:
        executable = load(path, trust=True, threads=1).executable
    except CorruptArtifact as error:
        assert str(path) in str(error), error
        assert len(str(error)) < 3000, len(str(error))
        return False
    for extent in (1, 7, 98):
        shapes = [tuple(e if isinstance(e, int) else extent for e in spec.shape) for spec in executable.manifest.inputs]
        if max((np.prod(shape, dtype=object) for shape in shapes), default=0) > 1 << 20:
            continue
        try:
            arrays = [np.zeros(s, i.dtype.numpy) for s, i in zip(shapes, executable.manifest.inputs, strict=True)]
            executable._shapes(arrays)
        except BadFeed:
            pass
    return True


def main(folder: Path, seed: int, count: int) -> None:
    source = random.Random(seed)
    originals = [members_of(made, folder) for made in (adder(), scaler())]
    fields = [{n: list(fields_of(d)) for n, d in o.items() if n.endswith(".o")} for o in originals]
    loaded = 0
    for number in range(count):
        which = source.randrange(2)
        members, known = originals[which], fields[which]
        name = source.choice([*known, "manifest.json", "weights.safetensors"])
        if name in known:
            data = altered_object(members[name], source, known[name])
        elif name == "manifest.json":
            data = altered_manifest(members[name], source)
        else:
            at = source.randrange(len(members[name]))
            data = members[name][:at] + source.choice((b"", b"\0", source.randbytes(8))) + members[name][at + 1 :]
        print(number, name, flush=True)
        signal.alarm(SECONDS)
        (pack if name == "manifest.json" else write)(folder / "forged.tw", {**members, name: data})
        loaded += try_one(folder / "forged.tw")
    signal.alarm(0)
    assert 0 < loaded < count, loaded
    print(f"{loaded} of {count} were loaded")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
