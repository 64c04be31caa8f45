"""Files of models in stages: the artifacts of their parts and bodies in one archive, and how these are run.

    stages.json             the stages in order, and the identity of each other member
    manifest.json           ``description``: inputs, symbols, and constants that stages read
    weights.safetensors     these constants
    bodies/0000.tw ...      artifacts without signatures; files of this kind for bodies that are in stages themselves
    signature               of ``stages.json``, as an artifact has one of its manifest; left out if nobody signed

``stages.json`` is read as ``description`` reads a manifest: refused unless it is as it would be written.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeAlias

from tilewright.base import fields
from tilewright.base.arrays import Array
from tilewright.base.dtypes import ALL
from tilewright.base.errors import CorruptArtifact, UnsupportedDType
from tilewright.base.outputs import AnyPath, output
from tilewright.runtime.artifact import archive, origin, tensors
from tilewright.runtime.artifact.archive import Part
from tilewright.runtime.artifact.artifact import (
    SIGNATURE,
    Artifact,
    Trust,
    explained,
    packed,
    read,
    signature_member,
    taken,
    trusted_signer,
)
from tilewright.runtime.artifact.description import (
    FORMAT,
    Build,
    Contents,
    Description,
    from_json,
    spec_fields,
    spec_of,
    to_json,
)
from tilewright.runtime.artifact.keys import SecretKey
from tilewright.runtime.artifact.signatures import Signatures
from tilewright.runtime.manifest import Manifest, TensorSpec
from tilewright.runtime.stages import Kind, Plan

_LIST: Final = "stages.json"
_MANIFEST: Final = "manifest.json"
_WEIGHTS: Final = "weights.safetensors"
_NAME_AT: Final = 30
"""Where the name of a zip file's first member begins."""
_DEEPEST: Final = 64
"""Maximum nesting of bodies."""

Body: TypeAlias = "Artifact | Stages"


@dataclass(frozen=True, slots=True)
class Stages:
    """The contents of a file: the manifest and the constants of the whole, its stages, and their bodies in order.

    ``signer``, ``identity``: after reading, as of an ``Artifact``.
    """

    manifest: Manifest
    plans: tuple[Plan, ...]
    bodies: tuple[Body, ...]
    constants: tuple[Array, ...]
    signer: str | None = field(default=None, compare=False)
    identity: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class _Listed:
    """All of ``stages.json``. ``outputs`` are here, as their extents may be known only after a run."""

    outputs: tuple[TensorSpec, ...]
    late: tuple[str, ...]
    plans: tuple[Plan, ...]
    manifest: str
    bodies: tuple[str, ...]


def pack_stages(
    stages: Stages, key_dir: Path | None, *, signed: bool = True, key: SecretKey | None = None
) -> Iterator[Part]:
    """The bytes of the file, without copies of the arrays. Raises as ``packed``."""
    listed, members = _members(stages)
    signatures = Signatures(origin.sign(listed, key_dir) if signed else None)
    if key is not None:
        signatures = signatures.with_public(key.public, key.sign(listed))
    return archive.pack([(_LIST, [listed]), *members, *signature_member(signatures)])


def save_stages(
    stages: Stages,
    path: AnyPath,
    key_dir: Path | None,
    *,
    signed: bool = True,
    key: SecretKey | None = None,
    inputs: Iterable[AnyPath] = (),
) -> None:
    """Write a file as ``save`` does."""
    with output(path, (*inputs, *([] if key is None else [key.path]))) as file:
        file.writelines(pack_stages(stages, key_dir, signed=signed, key=key))


def holds_stages(content: memoryview) -> bool:
    """Whether a file is of this kind."""
    name = _LIST.encode()
    return bytes(content[_NAME_AT : _NAME_AT + len(name)]) == name


def read_stages(
    path: AnyPath,
    key_dir: Path | None,
    content: memoryview,
    *,
    trust: Trust = False,
    identity: str | None = None,
    depth: int = 0,
) -> Stages:
    """Read and check a file of the bytes ``content``, without executing any of it. Raises as ``read``.

    ``depth``: around how many bodies it is.
    """
    with explained(path):
        if depth > _DEEPEST:
            raise CorruptArtifact(f"more than {_DEEPEST} bodies are inside each other")
        members = archive.unpack(content)
        text = taken(members, _LIST, 0)
        signatures = Signatures.parse(taken(members, SIGNATURE, -1)) if SIGNATURE in members else Signatures()
        signer = trusted_signer(path, text, signatures, key_dir, trust)
        own = sha256(text).hexdigest()
        if identity not in (None, own):
            raise CorruptArtifact("it is another artifact than the one that is wanted")
        listed = _from_json(text)
        if list(members) != [_MANIFEST, _WEIGHTS, *map(_name, range(len(listed.bodies)))]:
            raise CorruptArtifact(f"its members are not those of {_LIST}")
        description = bytes(members[_MANIFEST].data)
        if sha256(description).hexdigest() != listed.manifest:
            raise CorruptArtifact(f"{_MANIFEST} is damaged or altered")
        described = from_json(description)
        weights = members[_WEIGHTS].data
        if described.members != (_contents(weights),):
            raise CorruptArtifact(f"{_WEIGHTS} is damaged or altered")
        constants = tuple(tensors.decode(weights, described.manifest.constants))
        manifest = replace(described.manifest, outputs=listed.outputs, late=listed.late)
    bodies: list[Body] = []
    for number, wanted in enumerate(listed.bodies):
        data = members[_name(number)].data
        if holds_stages(data):
            bodies.append(read_stages(path, None, data, trust=True, identity=wanted, depth=depth + 1))
        else:
            bodies.append(read(path, None, trust=True, identity=wanted, content=data))
    stages = Stages(manifest, listed.plans, tuple(bodies), constants, signer, own)
    with explained(path):
        _check(stages)
    return stages


def _members(stages: Stages) -> tuple[bytes, list[tuple[str, Sequence[Part]]]]:
    """``stages.json``, and the other members but the signature."""
    manifest = replace(stages.manifest, outputs=(), late=())
    weights = list(tensors.encode(manifest.constants, stages.constants))
    description = to_json(Description(_build(stages), manifest, (_contents(b"".join(weights)),)))
    bodies = [_body(body) for body in stages.bodies]
    listed = _Listed(
        stages.manifest.outputs,
        stages.manifest.late,
        stages.plans,
        sha256(description).hexdigest(),
        tuple(identity for identity, _ in bodies),
    )
    members: list[tuple[str, Sequence[Part]]] = [(_MANIFEST, [description]), (_WEIGHTS, weights)]
    members += [(_name(number), parts) for number, (_, parts) in enumerate(bodies)]
    return _to_json(listed), members


def _body(body: Body) -> tuple[str, list[Part]]:
    """The identity and the bytes of a body."""
    if isinstance(body, Stages):
        listed, members = _members(body)
        return sha256(listed).hexdigest(), list(archive.pack([(_LIST, [listed]), *members]))
    file = packed(body, None, signed=False)
    return file.identity, list(file.parts)


def _build(stages: Stages) -> Build:
    """The origin of the first body."""
    first = stages.bodies[0]
    return _build(first) if isinstance(first, Stages) else first.build


def _contents(weights: Part) -> Contents:
    return Contents(_WEIGHTS, len(weights), sha256(weights).hexdigest())


def _name(number: int) -> str:
    return f"bodies/{number:04}.tw"


def _to_json(listed: _Listed) -> bytes:
    content = {
        "format": FORMAT,
        "manifest": listed.manifest,
        "outputs": [spec_fields(spec) for spec in listed.outputs],
        "late": listed.late,
        "stages": [
            {"kind": p.kind.value, "name": p.name, "reads": p.reads, "makes": p.makes, "number": p.number}
            for p in listed.plans
        ],
        "bodies": listed.bodies,
    }
    return (json.dumps(content, indent=1) + "\n").encode("ascii")


def _from_json(text: bytes) -> _Listed:
    """Raises ``CorruptArtifact``."""
    try:
        content = fields.mapping(json.loads(text.decode("ascii")))
        if content.get("format") != FORMAT:
            raise CorruptArtifact(
                f"it has format {content.get('format')!r}, and this Tilewright runs format {FORMAT}; "
                "compile the model again, or use the Tilewright that made it"
            )
        listed = _Listed(
            tuple(map(spec_of, fields.items(content["outputs"]))),
            _texts(content["late"]),
            tuple(map(_plan, fields.items(content["stages"]))),
            fields.text(content["manifest"]),
            _texts(content["bodies"]),
        )
    except KeyError as error:
        raise CorruptArtifact(f"{_LIST} has no {error}") from error
    except (TypeError, ValueError, RecursionError, UnsupportedDType) as error:
        raise CorruptArtifact(f"{_LIST} can't be read: {error}") from error
    if _to_json(listed) != text:
        raise CorruptArtifact(f"{_LIST} is not as Tilewright writes it")
    return listed


def _plan(value: object) -> Plan:
    given = fields.mapping(value)
    return Plan(
        Kind(fields.text(given["kind"])),
        fields.text(given["name"]),
        _texts(given["reads"]),
        _texts(given["makes"]),
        fields.whole(given["number"]),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(fields.text, fields.items(value)))


def _check(stages: Stages) -> None:
    """Raise ``CorruptArtifact`` if a stage reads what is not there, or does not fit its bodies."""
    if sum(plan.bodies for plan in stages.plans) != len(stages.bodies):
        raise CorruptArtifact("its stages need another number of bodies")
    known = {spec.name for spec in (*stages.manifest.inputs, *stages.manifest.constants)}
    bodies = iter(stages.bodies)
    for plan in stages.plans:
        needed = {*plan.reads}
        for body in (next(bodies) for _ in range(plan.bodies)):
            given = body.manifest.inputs[2 + plan.number :] if plan.kind is Kind.LOOP else body.manifest.inputs
            needed.update(spec.name for spec in given)
        if plan.kind is Kind.CALL or not needed <= known or not plan.number >= 0:
            raise CorruptArtifact(f"its stage {plan.name!r} reads what is not there, or is none")
        if plan.kind is Kind.VIEW and plan.number >= len(ALL):
            raise CorruptArtifact(f"its stage {plan.name!r} makes elements of no type")
        if len(plan.reads) < _least_read(plan):
            raise CorruptArtifact(f"its stage {plan.name!r} reads too little")
        known.update(plan.makes)
    missing = {spec.name for spec in stages.manifest.outputs} - known
    if missing:
        raise CorruptArtifact(f"its outputs {', '.join(sorted(missing))} are never made")


def _least_read(plan: Plan) -> int:
    """The least number of arrays that a stage reads."""
    match plan.kind:
        case Kind.LOOP:
            return 2 + plan.number
        case Kind.PART:
            return 0
        case _:
            return 1
