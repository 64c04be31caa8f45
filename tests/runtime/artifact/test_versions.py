"""Models that are compiled for each size of their inputs, saved with the versions that there are."""

import pickle
import random
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.test_artifact import expected, layers
from tests.test_public_model import inputs
from tests.test_specialize import halves
from tilewright.base.errors import BadFeed, BadInput, CorruptArtifact, TilewrightError, Unsupported, UntrustedData
from tilewright.base.settings import Settings
from tilewright.runtime.artifact import archive, generate
from tilewright.runtime.versioned import VersionedModel
from tilewright.specialize import SpecializingModel

ROWS = (1, 4, 3)


@pytest.fixture(scope="module")
def model() -> SpecializingModel:
    ours = tilewright.compile(layers("rows"), dynamic="specialize", threads=2)
    assert isinstance(ours, SpecializingModel)
    for rows in ROWS:
        ours.version(rows=rows)
    return ours


@pytest.fixture
def own(tmp_path: Path) -> Settings:
    return Settings(key_dir=tmp_path / "keys")


@pytest.fixture
def path(model: SpecializingModel, own: Settings, tmp_path: Path) -> Path:
    model.save(tmp_path / "m.tw", settings=own)
    return tmp_path / "m.tw"


def loaded(path: Path, own: Settings, **options: bool) -> VersionedModel:
    found = tilewright.load(path, settings=own, threads=1, **options)
    assert isinstance(found, VersionedModel)
    return found


def check(model: tilewright.RunnableModel, rows: int) -> None:
    np.testing.assert_allclose(model.run(["p"], {"x": inputs(rows)})[0], expected(inputs(rows)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mmap", [False, True])
def test_each_size_that_was_compiled_runs(path: Path, own: Settings, mmap: bool) -> None:
    ours = loaded(path, own, mmap=mmap)
    assert [str(spec) for spec in ours.inputs] == ["x: f32[rows, 48]"]
    assert ours.versions() == tuple({"rows": rows} for rows in ROWS)
    assert ours.signer == "this user"
    for rows in (*ROWS, 1):
        check(ours, rows)
        assert ours.outputs[0].shape == (rows, 16)
        assert ours.bind({"x": inputs(rows)})()[0].shape == (rows, 16)
    with pytest.raises(
        BadFeed, match=r"no version for rows=2; it has rows=1; rows=4; rows=3\. .*model.version\(rows=2\)"
    ):
        ours(inputs(2))
    with pytest.raises(BadFeed, match="no input 'y'"):
        ours.run(None, {"y": inputs(1)})
    check(pickle.loads(pickle.dumps(ours)), 4)


def test_bytes_and_pickles(model: SpecializingModel, path: Path, own: Settings) -> None:
    for ours in (tilewright.load(path.read_bytes(), settings=own), pickle.loads(pickle.dumps(model))):
        again = pickle.loads(pickle.dumps(ours))
        for rows in ROWS:
            check(ours, rows)
            check(again, rows)


def test_a_model_whose_sizes_are_of_two_dimensions(own: Settings, tmp_path: Path) -> None:
    ours = tilewright.compile(halves(), threads=1)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    ours(x)
    ours.save(tmp_path / "h.tw", settings=own)
    again = loaded(tmp_path / "h.tw", own)
    np.testing.assert_array_equal(again(x)[0], (x[:2] - x[2:]).ravel())
    assert again.versions() == ({"n": 4, "m": 2},)


def test_equal_models_make_equal_files(model: SpecializingModel, path: Path, own: Settings, tmp_path: Path) -> None:
    model.save(tmp_path / "again.tw", settings=own)
    assert (tmp_path / "again.tw").read_bytes() == path.read_bytes()
    with zipfile.ZipFile(path) as file:
        assert file.namelist() == ["versions.json", *(f"versions/000{n}.tw" for n in range(3)), "signature"]
        assert file.testzip() is None


def test_trust(model: SpecializingModel, path: Path, own: Settings, tmp_path: Path) -> None:
    others = Settings(key_dir=tmp_path / "others")
    with pytest.raises(UntrustedData, match="not known to be this user's"):
        tilewright.load(path, settings=others)
    check(tilewright.load(path, trust=True, settings=others), 4)
    pytest.importorskip("cryptography")
    public = generate(tmp_path / "key")
    model.save(path, key=tmp_path / "key", settings=own)
    check(tilewright.load(path, trust=str(public), settings=others), 4)


def rewritten(path: Path, **changed: bytes) -> None:
    """Write the file with other members."""
    members = {name: bytes(m.data) for name, m in archive.unpack(memoryview(path.read_bytes())).items()}
    known = {name.replace("/", "_").replace(".", "_"): name for name in members}
    members |= {known[name]: data for name, data in changed.items()}
    path.write_bytes(b"".join(archive.pack([(name, [data]) for name, data in members.items()])))


def test_versions_are_not_exchanged(path: Path, own: Settings) -> None:
    members = {name: bytes(m.data) for name, m in archive.unpack(memoryview(path.read_bytes())).items()}
    rewritten(path, versions_0000_tw=members["versions/0001.tw"])
    for trust in (False, True):
        with pytest.raises(CorruptArtifact, match="another artifact than the one that is wanted"):
            tilewright.load(path, trust=trust, settings=own)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"format": ', '"format": 9', "it has format 9"),
        ('"rows": 4', '"rows": 1', "once for each version"),
        ('"rows": 4', '"lines": 4', "once for each version"),
        ('"rows": 4', '"rows": 5', "does not take the inputs in its sizes"),
        ('"rows": 4', '"rows": 4.5', "can't be read"),
        ('"inputs"', '"imports"', "has no 'inputs'"),
        ('"rows": 4', '"rows":  4', "is not as Tilewright writes it"),
        ('"f32"', '"f33"', "can't be read"),
    ],
)
def test_a_wrong_list(path: Path, own: Settings, old: str, new: str, message: str) -> None:
    listed = bytes(archive.unpack(memoryview(path.read_bytes()))["versions.json"].data).decode()
    rewritten(path, versions_json=re.sub(re.escape(old), new, listed, count=1).encode())
    with pytest.raises(CorruptArtifact, match=message) as error:
        tilewright.load(path, trust=True, settings=own)
    assert str(path) in str(error.value)
    with pytest.raises(UntrustedData):
        tilewright.load(path, settings=own)


def test_every_byte_is_checked(path: Path, own: Settings) -> None:
    content, generator = path.read_bytes(), random.Random(0)
    for at in sorted({*range(0, 60), *(generator.randrange(len(content)) for _ in range(60))}):
        changed = bytearray(content)
        changed[at] ^= 1 << generator.randrange(8)
        with pytest.raises(TilewrightError):
            tilewright.load(bytes(changed), settings=own)
    for end in (0, 40, len(content) // 2, len(content) - 1):
        with pytest.raises(TilewrightError):
            tilewright.load(content[:end], trust=True, settings=own)


def test_what_cannot_be_saved(own: Settings, tmp_path: Path) -> None:
    for backend, kind in (("cpu", BadInput), ("reference", Unsupported)):
        ours = tilewright.compile(layers("rows"), dynamic="specialize", backend=backend)
        assert isinstance(ours, SpecializingModel)
        if backend == "reference":
            ours.version(rows=1)
        with pytest.raises(kind):
            ours.save(tmp_path / "m.tw", settings=own)
        with pytest.raises(kind):
            pickle.dumps(ours)
    assert not (tmp_path / "m.tw").exists()
