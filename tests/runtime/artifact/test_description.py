"""manifest.json: there and back, one form only, and versions."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base import dtypes as dt
from tilewright.base.checks import Checks
from tilewright.base.errors import BadArtifact, CorruptArtifact
from tilewright.base.numerics import Math, Precision
from tilewright.runtime import abi
from tilewright.runtime.artifact.description import FORMAT, Build, Contents, Description, from_json, to_json
from tilewright.runtime.manifest import Manifest, Symbol, TensorSpec

FULL = Description(
    Build("0.1.0", "ab" * 32, "x86_64,znver5,cores=2", "x86_64", ("avx", "sse4.2")),
    Manifest(
        inputs=(TensorSpec('x"\n\u00e9', dt.bf16, ("n", 3)), TensorSpec("flag", dt.boolean, ())),
        outputs=(TensorSpec("y", dt.f32, ("m", 0)),),
        constants=(TensorSpec("w", dt.u8, (3, 5)),),
        symbols=(Symbol("n", 1, 512), Symbol("m", 0, None, ("//", ("+", "n", -1), 2))),
        workspace=640,
        scratch=64,
        sites=("loop", "gather: index"),
        calls=("k0_matmul", "k0_matmul"),
        math=Math.STRICT,
        checks=Checks.OFF,
        precision=Precision.BF16,
    ),
    (Contents("objects/0000.o", 5, "cd" * 32), Contents("weights.safetensors", 1 << 40, "ef" * 32)),
)


def test_there_and_back() -> None:
    assert from_json(to_json(FULL)) == FULL


def test_every_field_of_a_manifest_is_kept() -> None:
    empty = Manifest((), ())
    for field in (field for field in fields(Manifest) if field.name != "late"):  # which ``stages.json`` has
        assert getattr(FULL.manifest, field.name) != getattr(empty, field.name), field.name


def test_it_reads_well(golden: object) -> None:
    assert callable(golden)
    golden("runtime/artifact_manifest", to_json(FULL).decode())


@pytest.mark.parametrize(("name", "known"), [("format", FORMAT), ("abi", abi.VERSION)])
@pytest.mark.parametrize("version", [0, 77, 99, "1", None])
def test_other_versions(name: str, known: int, version: object) -> None:
    changed = {**json.loads(to_json(FULL)), "tilewright": "7.0.0", name: version, "members": "of the future"}
    expected = rf"has {name} {version!r}, and this Tilewright runs {name} {known}; .* use Tilewright 7.0.0"
    with pytest.raises(CorruptArtifact, match=expected):
        from_json(json.dumps(changed).encode())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "can't be read"),
        (b"\xff", "can't be read"),
        (b"[1]", "expected an object, found list"),
        (b"[" * 100_000, "can't be read"),
        (b"9" * 5000, "can't be read"),
        (to_json(FULL) + b" ", "not as Tilewright writes it"),
        (to_json(FULL).replace(b'"format": 4,', b'"format": 4, "format": 4,'), "not as Tilewright writes it"),
        (to_json(FULL).replace(b'"workspace": 640', b'"workspace": 640.0'), "a whole number, found 640.0"),
        (to_json(FULL).replace(b'"workspace": 640', b'"workspace": true'), "a whole number, found True"),
        (to_json(FULL).replace(b'"workspace": 640', b'"workspace": -1'), "-1 where a size"),
        (to_json(FULL).replace(b'"workspace": 640', b'"workspace": 1' + b"0" * 30), "where a number"),
        (to_json(FULL).replace(b'"f32"', b'"float32"'), "not as Tilewright writes it"),
        (to_json(FULL).replace(b'"f32"', b'"f33"'), "'f33' is no data type"),
        (to_json(FULL).replace(b'"sites"', b'"sight"'), "has no 'sites'"),
        (to_json(FULL).replace(b'"//"', b'"**"'), r"'\*\*' is no operator"),
    ],
)
def test_what_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(BadArtifact, match=reason):
        from_json(text)


def test_formulas_are_bounded_in_depth() -> None:
    formula: object = "n"
    for _ in range(500):
        formula = ["+", formula, 1]
    deep = to_json(FULL).replace(b'["//", ["+", "n", -1], 2]', json.dumps(formula).encode())
    with pytest.raises(CorruptArtifact, match="formula of more than 64 levels"):
        from_json(deep)


junk = st.sampled_from([None, True, -1, 0, 1.5, 1 << 70, "", "x", [], [[]], {}, ["+", "n"], ["+", "n", "q"]])


def _places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in _places(item, (*path, key)))]


@given(st.data())
def test_junk_anywhere_is_refused_or_kept(data: st.DataObject) -> None:
    document = json.loads(to_json(FULL))
    *outer, last = data.draw(st.sampled_from(_places(document)[1:]))
    target = document
    for key in outer:
        target = target[key]
    target[last] = data.draw(junk)
    compact = json.dumps(document).encode()
    with pytest.raises(BadArtifact):
        from_json(compact)


def test_the_documentation_names_the_versions() -> None:
    page = (Path(__file__).parents[3] / "docs" / "serving.md").read_text()
    assert f"This version writes and loads format {FORMAT}, interface {abi.VERSION}." in page
