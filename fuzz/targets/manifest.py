"""The manifest of an artifact, and the formulas of run-time extents in it."""

from collections.abc import Iterator

from fuzz.samples import sample_artifact
from fuzz.target import Target
from tilewright.base.errors import TilewrightError
from tilewright.runtime.artifact.description import from_json, to_json
from tilewright.runtime.manifest import Manifest, evaluate

EXTENTS = (0, 1, 7, 1 << 20, (1 << 62) - 1)


def check(data: bytes) -> None:
    """A manifest that is read is written as it was, and its symbols can be computed."""
    described = from_json(data)
    assert to_json(described) == data
    for extent in EXTENTS:
        _compute(described.manifest, extent)


def _compute(manifest: Manifest, extent: int) -> None:
    """The symbols of a run in which all free extents are ``extent``."""
    known: dict[str, int] = {}
    for symbol in manifest.symbols:
        try:
            known[symbol.name] = extent if symbol.value is None else evaluate(symbol.value, known)
        except TilewrightError:
            return  # these extents do not fit: the user hears of it


def seeds() -> Iterator[bytes]:
    """Manifests of models with fixed and with run-time extents."""
    for dynamic in (False, True):
        yield sample_artifact(dynamic)["manifest.json"]


WORDS = ('["+", "n", 1]', '["*", "n", "n"]', '["//", 1, 0]', '["%", "n", 0]', '["max", 1, 2]', '"minimum"', '"maximum"')
TARGET = Target("manifest", check, seeds, words=(*WORDS, "null", "1e999", "-1", '"f32"'), runs=1_600_000)
