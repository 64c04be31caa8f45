"""``manifest.json``: the description of an artifact, as canonical JSON.

    format, abi             versions of the file's form and of the interface to native code; first, and in every version
    tilewright, source      version that made it; SHA-256 of the model's file, or null
    target                  {name, architecture, features}: what the code may use
    inputs, outputs, constants      [{name, dtype, shape}]; an extent is a number, or the name of a symbol
    symbols                 [{name, minimum, maximum, value}], as ``runtime.manifest`` explains them
    workspace, scratch      bytes; of workspace, it may be the symbol that computes them
    sites, calls            error sites of the native code; the kernels that main calls
    members                 [{name, size, sha256}]: the other files, in order

Text is decoded strictly and encoded again; it is refused unless the bytes are equal.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from tilewright.base import dtypes, fields
from tilewright.base.checks import Checks
from tilewright.base.errors import CorruptArtifact, UnsupportedDType
from tilewright.base.numerics import Math, Precision
from tilewright.runtime import abi
from tilewright.runtime.manifest import MAX_NUMBER, Extent, Formula, Manifest, Symbol, TensorSpec

FORMAT: Final = 4
_MAX_DEPTH = 64
_MAX_TEXT = 1 << 26
"""Maximum bytes of a manifest: a hundred times those of the largest networks."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Build:
    """The origin and target of an artifact. Only ``architecture`` and ``features`` are used."""

    tool: str
    """Version of Tilewright."""
    source: str | None
    """SHA-256 of the model's file in hexadecimal digits, if there was one."""
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
    """All of ``manifest.json`` except the versions."""

    build: Build
    manifest: Manifest
    members: tuple[Contents, ...]


def to_json(described: Description) -> bytes:
    """The text: ASCII, in a fixed order."""
    build, manifest = described.build, described.manifest
    content = {
        "format": FORMAT,
        "abi": abi.VERSION,
        "tilewright": build.tool,
        "source": build.source,
        "target": {"name": build.target, "architecture": build.architecture, "features": build.features},
        "math": manifest.math.value,
        "precision": manifest.precision.value,
        "checks": manifest.checks.value,
        "inputs": [spec_fields(spec) for spec in manifest.inputs],
        "outputs": [spec_fields(spec) for spec in manifest.outputs],
        "constants": [spec_fields(spec) for spec in manifest.constants],
        "symbols": [
            {"name": s.name, "minimum": s.minimum, "maximum": s.maximum, "value": s.value} for s in manifest.symbols
        ],
        "workspace": manifest.workspace,
        "scratch": manifest.scratch,
        "sites": manifest.sites,
        "calls": manifest.calls,
        "members": [{"name": m.name, "size": m.size, "sha256": m.sha256} for m in described.members],
    }
    lines = (f"{json.dumps(name)}: {_lines(value)}" for name, value in content.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("ascii")


def spec_fields(spec: TensorSpec) -> dict[str, object]:
    """A tensor, as JSON has it."""
    return {"name": spec.name, "dtype": str(spec.dtype), "shape": spec.shape}


def _lines(value: object) -> str:
    """One line for each object in a list, for readability and comparison."""
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f" {json.dumps(item)}" for item in cast(list[object], value)) + "\n]"
    return json.dumps(value)


def from_json(text: bytes) -> Description:
    """Read ``manifest.json``.

    Raises ``CorruptArtifact`` if it is of another version, with the remedy, or not in the form of ``to_json``;
    ``BadArtifact`` if it is inconsistent.
    """
    if len(text) > _MAX_TEXT:
        raise CorruptArtifact(f"its manifest has {len(text)} bytes, more than {_MAX_TEXT}")
    try:
        content = fields.mapping(json.loads(text.decode("ascii")))
        _check_versions(content)
        described = _described(content)
    except KeyError as error:
        raise CorruptArtifact(f"its manifest has no {error}") from error
    except (TypeError, ValueError, RecursionError, UnsupportedDType) as error:
        raise CorruptArtifact(f"its manifest can't be read: {error}") from error
    if to_json(described) != text:
        raise CorruptArtifact("its manifest is not as Tilewright writes it")
    return described


def _check_versions(content: Mapping[str, object]) -> None:
    maker = content.get("tilewright")
    for name, known in (("format", FORMAT), ("abi", abi.VERSION)):
        if content.get(name) != known:
            raise CorruptArtifact(
                f"it has {name} {content.get(name)!r}, and this Tilewright runs {name} {known}; "
                f"compile the model again, or use Tilewright {maker}, which made it"
            )


def _described(content: Mapping[str, object]) -> Description:
    target = fields.mapping(content["target"])
    build = Build(
        fields.text(content["tilewright"]),
        None if content["source"] is None else fields.text(content["source"]),
        fields.text(target["name"]),
        fields.text(target["architecture"]),
        _list(target["features"], fields.text),
    )
    manifest = Manifest(
        inputs=_list(content["inputs"], spec_of),
        outputs=_list(content["outputs"], spec_of),
        constants=_list(content["constants"], spec_of),
        symbols=_list(content["symbols"], _symbol),
        workspace=_extent(content["workspace"]),
        scratch=_number(content["scratch"]),
        sites=_list(content["sites"], fields.text),
        calls=_list(content["calls"], fields.text),
        math=Math(fields.text(content["math"])),
        precision=Precision(fields.text(content["precision"])),
        checks=Checks(fields.text(content["checks"])),
    )
    return Description(build, manifest, _list(content["members"], _member))


def spec_of(value: object) -> TensorSpec:
    """The tensor of ``spec_fields``. Raises ``TypeError``, ``KeyError`` or a ``TilewrightError``."""
    given = fields.mapping(value)
    dtype = dtypes.parse_stored(fields.text(given["dtype"]))
    return TensorSpec(fields.text(given["name"]), dtype, _list(given["shape"], _extent))


def _symbol(value: object) -> Symbol:
    given = fields.mapping(value)
    maximum, formula = given["maximum"], given["value"]
    return Symbol(
        fields.text(given["name"]),
        _number(given["minimum"]),
        None if maximum is None else _number(maximum),
        None if formula is None else _formula(formula, 0),
    )


def _member(value: object) -> Contents:
    given = fields.mapping(value)
    return Contents(fields.text(given["name"]), _number(given["size"]), fields.text(given["sha256"]))


def _extent(value: object) -> Extent:
    return value if isinstance(value, str) else _number(value)


def _formula(value: object, depth: int) -> Formula:
    """A formula, with lists for tuples; of bounded depth, as its evaluation is recursive."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return _integer(value)
    if depth == _MAX_DEPTH:
        raise CorruptArtifact(f"its manifest has a formula of more than {_MAX_DEPTH} levels")
    sign, left, right = cast(list[object], value)
    return fields.text(sign), _formula(left, depth + 1), _formula(right, depth + 1)


def _list(value: object, each: Callable[[object], Item]) -> tuple[Item, ...]:
    return tuple(map(each, fields.items(value)))


def _number(value: object) -> int:
    """A size or an extent."""
    number = _integer(value)
    if number < 0:
        raise CorruptArtifact(f"its manifest has {number} where a size belongs")
    return number


def _integer(value: object) -> int:
    number = fields.whole(value)
    if abs(number) > MAX_NUMBER:
        raise CorruptArtifact(f"its manifest has {number!r:.40} where a number belongs")
    return number
