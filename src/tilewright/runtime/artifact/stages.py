"""Files of models in stages: the artifacts of their parts and bodies in one archive, and how these are run.

    stages.json             the stages in order, and the identity of each other member
    manifest.json           ``description``: inputs, symbols, and constants that stages read
    weights.safetensors     these constants
    bodies/0000.tw ...      artifacts without signatures; files of this kind for bodies that are in stages themselves
    signature               of ``stages.json``, as an artifact has one of its manifest; left out if nobody signed

``stages.json`` is read as ``description`` reads a manifest: refused unless it is as it would be written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeAlias

from tilewright.base import fields
from tilewright.base.arrays import Array
from tilewright.base.dtypes import STORED
from tilewright.base.errors import CorruptArtifact
from tilewright.base.outputs import AnyPath
from tilewright.runtime.artifact import tensors
from tilewright.runtime.artifact.archive import Part
from tilewright.runtime.artifact.artifact import Artifact, packed, read
from tilewright.runtime.artifact.description import (
    Build,
    Contents,
    Description,
    from_json,
    spec_fields,
    spec_of,
    to_json,
)
from tilewright.runtime.artifact.keys import SecretKey
from tilewright.runtime.artifact.lists import list_text, read_list
from tilewright.runtime.artifact.sealed import Opened, Trust, begins_with, explained, identity_of, sealed, write
from tilewright.runtime.manifest import Manifest, TensorSpec
from tilewright.runtime.stages import Kind, Plan

_LIST: Final = "stages.json"
_MANIFEST: Final = "manifest.json"
_WEIGHTS: Final = "weights.safetensors"
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
    return sealed(_LIST, *_members(stages), key_dir, signed=signed, key=key)


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
    write(lambda: pack_stages(stages, key_dir, signed=signed, key=key), path, key, inputs)


def holds_stages(content: memoryview) -> bool:
    """Whether a file is of this kind."""
    return begins_with(content, _LIST)


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
        opened = Opened.of(path, _LIST, content, key_dir, trust, identity)
        listed, members = read_list(_LIST, opened.text, _made, _content), opened.members
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
    stages = Stages(manifest, listed.plans, tuple(bodies), constants, opened.signer, opened.identity)
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
    return list_text(_content(listed)), members


def _body(body: Body) -> tuple[str, list[Part]]:
    """The identity and the bytes of a body."""
    if isinstance(body, Stages):
        listed, members = _members(body)
        return identity_of(listed), list(sealed(_LIST, listed, members, None, signed=False, key=None))
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


def _content(listed: _Listed) -> Mapping[str, object]:
    return {
        "manifest": listed.manifest,
        "outputs": [spec_fields(spec) for spec in listed.outputs],
        "late": listed.late,
        "stages": [
            {"kind": p.kind.value, "name": p.name, "reads": p.reads, "makes": p.makes, "number": p.number}
            for p in listed.plans
        ],
        "bodies": listed.bodies,
    }


def _made(content: Mapping[str, object]) -> _Listed:
    return _Listed(
        tuple(map(spec_of, fields.items(content["outputs"]))),
        _texts(content["late"]),
        tuple(map(_plan, fields.items(content["stages"]))),
        fields.text(content["manifest"]),
        _texts(content["bodies"]),
    )


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
        if plan.kind is Kind.VIEW and plan.number >= len(STORED):
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
