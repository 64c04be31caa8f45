"""``manifest.json``: what an artifact says about itself, as JSON of one form.

    format, abi             versions of the file's form and of the interface to native code; first, and in every version
    tilewright, source      version that made it; SHA-256 of the model's file, or null
    target                  {name, architecture, features}: what the code may use
    inputs, outputs, constants      [{name, dtype, shape}]; an extent is a number, or the name of a symbol
    symbols                 [{name, minimum, maximum, value}], as ``runtime.manifest`` explains them
    workspace, scratch      bytes; of workspace, it may be the symbol that computes them
    sites, calls            what the native code's error sites mean; the kernels that main calls
    members                 [{name, size, sha256}]: the other files, in order

Text is decoded strictly, and then encoded again: what does not give the same bytes is refused.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from tilewright.base import dtypes
from tilewright.base.checks import Checks
from tilewright.base.errors import CorruptArtifact, UnsupportedDType
from tilewright.base.numerics import Math
from tilewright.runtime import abi
from tilewright.runtime.manifest import MAX_NUMBER, Extent, Formula, Manifest, Symbol, TensorSpec

FORMAT: Final = 3
_MAX_DEPTH = 64
_MAX_TEXT = 1 << 26
"""Bytes of a manifest: a hundred times as many as those of the largest networks."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Build:
    """What an artifact was made by, from and for. Nothing of it but ``architecture`` and ``features`` is acted upon."""

    tool: str
    """Version of Tilewright."""
    source: str | None
    """SHA-256 of the model's file, in hexadecimal digits, if there was one."""
    target: str
    architecture: str
    features: tuple[str, ...]
    """LLVM's names of the features that the code may use."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Name, bytes and SHA-256 (hexadecimal) of a member."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Description:
    """All of ``manifest.json`` but the versions."""

    build: Build
    manifest: Manifest
    members: tuple[Contents, ...]


def to_json(described: Description) -> bytes:
    """The text: ASCII, in a fixed order."""
    build, manifest = described.build, described.manifest
    fields = {
        "format": FORMAT,
        "abi": abi.VERSION,
        "tilewright": build.tool,
        "source": build.source,
        "target": {"name": build.target, "architecture": build.architecture, "features": build.features},
        "math": manifest.math.value,
        "checks": manifest.checks.value,
        "inputs": [_spec_fields(spec) for spec in manifest.inputs],
        "outputs": [_spec_fields(spec) for spec in manifest.outputs],
        "constants": [_spec_fields(spec) for spec in manifest.constants],
        "symbols": [
            {"name": s.name, "minimum": s.minimum, "maximum": s.maximum, "value": s.value} for s in manifest.symbols
        ],
        "workspace": manifest.workspace,
        "scratch": manifest.scratch,
        "sites": manifest.sites,
        "calls": manifest.calls,
        "members": [{"name": m.name, "size": m.size, "sha256": m.sha256} for m in described.members],
    }
    lines = (f"{json.dumps(name)}: {_lines(value)}" for name, value in fields.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("ascii")


def _spec_fields(spec: TensorSpec) -> dict[str, object]:
    return {"name": spec.name, "dtype": str(spec.dtype), "shape": spec.shape}


def _lines(value: object) -> str:
    """A list of objects has a line for each: that is what people look at, and compare."""
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f" {json.dumps(item)}" for item in cast(list[object], value)) + "\n]"
    return json.dumps(value)


def from_json(text: bytes) -> Description:
    """Read ``manifest.json``.

    Raises ``CorruptArtifact`` if it is of another version, with the remedy, or not what ``to_json`` writes;
    ``BadArtifact`` if it contradicts itself.
    """
    if len(text) > _MAX_TEXT:
        raise CorruptArtifact(f"its manifest has {len(text)} bytes, more than {_MAX_TEXT}")
    try:
        fields = _fields(json.loads(text.decode("ascii")), "the manifest")
        _check_versions(fields)
        described = _described(fields)
    except KeyError as error:
        raise CorruptArtifact(f"its manifest has no {error}") from error
    except (ValueError, RecursionError, UnsupportedDType) as error:
        raise CorruptArtifact(f"its manifest can't be read: {error}") from error
    if to_json(described) != text:
        raise CorruptArtifact("its manifest is not as Tilewright writes it")
    return described


def _check_versions(fields: Mapping[str, object]) -> None:
    maker = fields.get("tilewright")
    for name, known in (("format", FORMAT), ("abi", abi.VERSION)):
        if fields.get(name) != known:
            raise CorruptArtifact(
                f"it has {name} {fields.get(name)!r}, and this Tilewright runs {name} {known}; "
                f"compile the model again, or use Tilewright {maker}, which made it"
            )


def _described(fields: Mapping[str, object]) -> Description:
    target = _fields(fields["target"], "target")
    build = Build(
        _text(fields["tilewright"]),
        None if fields["source"] is None else _text(fields["source"]),
        _text(target["name"]),
        _text(target["architecture"]),
        _list(target["features"], _text),
    )
    manifest = Manifest(
        inputs=_list(fields["inputs"], _spec),
        outputs=_list(fields["outputs"], _spec),
        constants=_list(fields["constants"], _spec),
        symbols=_list(fields["symbols"], _symbol),
        workspace=_extent(fields["workspace"]),
        scratch=_number(fields["scratch"]),
        sites=_list(fields["sites"], _text),
        calls=_list(fields["calls"], _text),
        math=Math(_text(fields["math"])),
        checks=Checks(_text(fields["checks"])),
    )
    return Description(build, manifest, _list(fields["members"], _member))


def _spec(value: object) -> TensorSpec:
    fields = _fields(value, "a tensor")
    return TensorSpec(_text(fields["name"]), dtypes.parse(_text(fields["dtype"])), _list(fields["shape"], _extent))


def _symbol(value: object) -> Symbol:
    fields = _fields(value, "a symbol")
    maximum, formula = fields["maximum"], fields["value"]
    return Symbol(
        _text(fields["name"]),
        _number(fields["minimum"]),
        None if maximum is None else _number(maximum),
        None if formula is None else _formula(formula, 0),
    )


def _member(value: object) -> Contents:
    fields = _fields(value, "a member")
    return Contents(_text(fields["name"]), _number(fields["size"]), _text(fields["sha256"]))


def _extent(value: object) -> Extent:
    return value if isinstance(value, str) else _number(value)


def _formula(value: object, depth: int) -> Formula:
    """A formula, with lists for tuples; bounded in depth, as what computes it is recursive."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return _integer(value)
    if depth == _MAX_DEPTH:
        raise CorruptArtifact(f"its manifest has a formula of more than {_MAX_DEPTH} levels")
    sign, left, right = cast(list[object], value)
    return _text(sign), _formula(left, depth + 1), _formula(right, depth + 1)


def _fields(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise CorruptArtifact(f"its manifest: {what} is no object")
    return cast(dict[str, object], value)


def _list(value: object, each: Callable[[object], Item]) -> tuple[Item, ...]:
    if not isinstance(value, list):
        raise CorruptArtifact(f"its manifest has {value!r:.40} where a list belongs")
    return tuple(each(item) for item in cast(Sequence[object], value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise CorruptArtifact(f"its manifest has {value!r:.40} where a text belongs")
    return value


def _number(value: object) -> int:
    """A size or an extent."""
    number = _integer(value)
    if number < 0:
        raise CorruptArtifact(f"its manifest has {number} where a size belongs")
    return number


def _integer(value: object) -> int:
    if type(value) is not int or abs(value) > MAX_NUMBER:
        raise CorruptArtifact(f"its manifest has {value!r:.40} where a number belongs")
    return value
