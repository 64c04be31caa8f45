"""Whole models from the cache: the same as compiled anew, and never another model's."""

import os
import random
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tests.frontend.models import model as make_model
from tests.insight.models import FEEDS, classifier
from tilewright import api, model_cache
from tilewright.base import plugins
from tilewright.base.errors import BadInput
from tilewright.base.events import CacheLookup, Recorder
from tilewright.base.settings import Settings, Stage
from tilewright.base.store import Store
from tilewright.compilation import Compiled
from tilewright.model_cache import ModelCache
from tilewright.target.target import Target

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Workshop:
    """A model's file, and a cache of its own."""

    folder: Path
    settings: Settings

    @property
    def path(self) -> Path:
        return self.folder / "m.onnx"

    @property
    def models(self) -> Path:
        return self.folder / "cache" / "models"

    def compile(self, **options: object) -> api.CompiledModel:
        """The model in the file, for one thread unless ``options`` say another number."""
        return api.compile(self.path, **{"settings": self.settings, "threads": 1, **options})  # pyright: ignore

    def entries(self) -> list[Path]:
        return sorted(path for path in self.models.rglob("*") if path.is_file())

    def artifacts(self) -> list[Path]:
        return [path for path in self.entries() if path.read_bytes().startswith(b"PK")]


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    settings = Settings(cache_dir=tmp_path / "cache", key_dir=tmp_path / "key", model_cache_bytes=64 << 20)
    onnx.save(classifier(), tmp_path / "m.onnx")
    return Workshop(tmp_path, settings)


def run(model: api.CompiledModel) -> Array:
    return model.run(None, FEEDS)[0]


# What comes from it


def test_it_is_the_same_model(workshop: Workshop) -> None:
    first, second = workshop.compile(), workshop.compile()
    assert (first.is_cached, second.is_cached) == (False, True)
    assert np.array_equal(run(first), run(second))
    assert second.executable.manifest == first.executable.manifest
    assert second.inputs == first.inputs
    assert second.math is first.math
    for model, name in ((first, "a.tw"), (second, "b.tw")):
        model.save(workshop.folder / name, settings=workshop.settings)
    assert (workshop.folder / "a.tw").read_bytes() == (workshop.folder / "b.tw").read_bytes()


def test_it_tells_the_same_story(workshop: Workshop) -> None:
    first, second = workshop.compile(), workshop.compile()
    assert second.explain() == replace(first.explain(), cached=True)
    rows = [second.profile(FEEDS, seconds=0, roofs=False).kernels, first.profile(FEEDS, seconds=0, roofs=False).kernels]
    assert [[(r.kernel, r.nodes, r.trace) for r in row] for row in rows[:1]] == [
        [(r.kernel, r.nodes, r.trace) for r in row] for row in rows[1:]
    ]
    assert second.compare(FEEDS, against="reference").agrees
    assert str(second.compiled.main) == str(first.compiled.main)
    assert second.compiled.executable is second.executable


def test_it_is_compiled_for_its_story_once(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop.compile()
    calls: list[object] = []
    real = api.compile_taken

    def counted(*given: object) -> Compiled:
        calls.append(given)
        return real(*given)  # pyright: ignore

    monkeypatch.setattr(api, "compile_taken", counted)
    model = workshop.compile()
    run(model)
    model.save(workshop.folder / "m.tw", settings=workshop.settings)
    assert not calls
    model.explain()
    model.compare(FEEDS, against="reference")
    assert len(calls) == 1


def test_no_story_of_another_model(workshop: Workshop) -> None:
    workshop.compile()
    model = workshop.compile()
    proto = classifier()
    proto.graph.node[-1].name = "changed"
    onnx.save(proto, workshop.path)
    with pytest.raises(BadInput, match="the model has changed since it was compiled"):
        model.explain()
    run(model)


def test_models_that_are_no_file(workshop: Workshop) -> None:
    proto = classifier()
    assert not api.compile(proto, settings=workshop.settings).is_cached
    assert api.compile(proto, settings=workshop.settings).is_cached
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((8, 8), np.float32), "w"))
    assert not api.compile(proto, settings=workshop.settings).is_cached


def test_versions_for_sizes(workshop: Workshop) -> None:
    proto = classifier()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(proto, workshop.path)
    for expected in (False, True):
        model = workshop.compile(dynamic="specialize")
        for size in (2, 3):
            model(FEEDS["x"][:size])
            assert model.is_cached is expected


def test_lookups_are_told(workshop: Workshop) -> None:
    for hit in (False, True):
        recorder = Recorder()
        workshop.compile(listener=recorder)
        assert [event.hit for event in recorder.events if isinstance(event, CacheLookup)] == [hit]


# Never another model's


def test_every_option_counts(workshop: Workshop) -> None:
    proto = classifier()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(proto, workshop.path)
    variants: list[dict[str, object]] = [
        {},
        {"math": "strict"},
        {"math": "fast"},
        {"checks": "off"},
        {"memory_limit": 1 << 20, "bounds": {"n": 4}},
        {"bounds": {"n": 4}},
        {"bounds": {"n": 5}},
        {"shapes": {"x": (4, 8)}},
        {"shapes": {"x": ("m", 8)}},
        {"threads": 2},
        {"target": replace(Target.host(), cores=3)},
        {"target": replace(Target.host(), l2_bytes=3 << 20)},
        {"settings": replace(workshop.settings, bounds_check=True)},
    ]
    assert [workshop.compile(**variant).is_cached for variant in variants] == [False] * len(variants)
    assert [workshop.compile(**variant).is_cached for variant in variants] == [True] * len(variants)


def test_what_changes_nothing_does_not_count(workshop: Workshop) -> None:
    workshop.compile()
    moved = workshop.folder / "elsewhere"
    moved.mkdir()
    copy = moved / "another.onnx"
    copy.write_bytes(workshop.path.read_bytes())
    assert api.compile(copy, settings=workshop.settings, threads=1).is_cached


def external(workshop: Workshop, value: float) -> None:
    """A model whose weights are in a file of their own."""
    weights = np.full((8, 8), value, np.float32)
    proto = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], FEEDS, ["y"], {"w": weights})
    (workshop.folder / "w.bin").unlink(missing_ok=True)
    onnx.save(proto, workshop.path, save_as_external_data=True, location="w.bin", size_threshold=0)


def test_external_data_count(workshop: Workshop) -> None:
    """The model's own file is the same each time."""
    files, results = set[bytes](), list[Array]()
    for value, cached in ((1.0, False), (2.0, False), (1.0, True), (2.0, True)):
        external(workshop, value)
        files.add(workshop.path.read_bytes())
        model = workshop.compile()
        assert model.is_cached is cached
        results.append(run(model))
    assert len(files) == 1
    assert np.array_equal(2 * results[0], results[1])
    assert np.array_equal(results[0], results[2])
    assert np.array_equal(results[1], results[3])
    (workshop.folder / "w.bin").unlink()
    with pytest.raises(BadInput, match=r"w\.bin is missing"):
        workshop.compile()


def test_another_compiler_compiles_anew(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop.compile()
    monkeypatch.setattr(model_cache, "sources", lambda package: f"another {package}")
    assert not workshop.compile().is_cached


def test_the_compiler_is_all_of_its_sources() -> None:
    files = dict(plugins._files("tilewright"))  # pyright: ignore[reportPrivateUsage]
    assert files["model_cache.py"] == Path(model_cache.__file__)
    assert "passes/rules/algebra.rules" in files
    assert len(files) > 300


def test_sources_that_changed_since_they_were_read_are_nobodys(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what old code compiled would be taken for the new one's."""
    plugins.sources.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(plugins, "_STARTED", 0.0)
        for _ in range(2):
            assert not workshop.compile().is_cached
    assert not workshop.artifacts()
    assert not workshop.compile().is_cached
    assert workshop.compile().is_cached


def test_extents_of_other_types(workshop: Workshop) -> None:
    """They are the same as Python's."""
    found = [workshop.compile(shapes={"x": (extent, 8)}).is_cached for extent in (4, 4, np.int64(4), np.uint8(4))]
    assert found == [False, True, True, True]


def test_a_file_that_changes_meanwhile_is_not_kept(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    real = api.compile_taken

    def changing(*given: object) -> Compiled:
        onnx.save(classifier(), workshop.path)
        return real(*given)  # pyright: ignore

    with monkeypatch.context() as patch:
        patch.setattr(api, "compile_taken", changing)
        workshop.compile()
    assert not workshop.artifacts()
    assert not workshop.compile().is_cached


def test_who_wants_to_see_the_stages_sees_them(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    workshop.compile()
    shown = replace(workshop.settings, print_stages=frozenset({Stage.MAIN}))
    assert not workshop.compile(settings=shown).is_cached
    assert "---- main" in capsys.readouterr().err


def test_code_for_another_machine_is_not_asked_for(workshop: Workshop) -> None:
    for _ in range(2):
        assert not workshop.compile(target="aarch64").is_cached


# Trouble


def flip(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def damaged(content: bytes) -> list[bytes]:
    """Ways in which a file can be damaged."""
    places = random.Random(0).sample(range(len(content)), 12)
    return [
        b"",
        content[:-1],
        content[: len(content) // 2],
        content + b"x",
        *(flip(content, place) for place in places),
    ]


@pytest.mark.parametrize("kind", ["artifact", "index"])
def test_what_is_damaged_is_compiled_anew(workshop: Workshop, kind: str) -> None:
    expected = run(workshop.compile())
    chosen = (
        workshop.artifacts() if kind == "artifact" else [p for p in workshop.entries() if p not in workshop.artifacts()]
    )
    for path in chosen:
        content = path.read_bytes()
        for change in damaged(content):
            path.write_bytes(change)
            recorder = Recorder()
            model = workshop.compile(listener=recorder)
            assert np.array_equal(run(model), expected)
            if not model.is_cached:
                assert any("damaged" in text or "removed" in text for text in recorder.warnings())
            assert workshop.compile().is_cached
        assert path.read_bytes() == content


def test_an_artifact_in_the_place_of_another(workshop: Workshop) -> None:
    """Both are whole, and signed by this user."""
    expected = run(workshop.compile())
    (first,) = workshop.artifacts()
    proto = classifier()
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.full(8, 7, np.float32), "b"))
    api.compile(proto, settings=workshop.settings, threads=1)
    (second,) = [path for path in workshop.artifacts() if path != first]
    first.write_bytes(second.read_bytes())
    model = workshop.compile()
    assert not model.is_cached
    assert np.array_equal(run(model), expected)


def test_an_artifact_that_another_user_signed(workshop: Workshop) -> None:
    workshop.compile()
    other = replace(workshop.settings, key_dir=workshop.folder / "another key")
    recorder = Recorder()
    assert not workshop.compile(settings=other, listener=recorder).is_cached
    assert any("signed by somebody else" in text for text in recorder.warnings())
    assert workshop.compile(settings=other).is_cached


def test_a_key_that_can_not_be_kept(workshop: Workshop) -> None:
    (workshop.folder / "key").write_text("no folder")
    recorder = Recorder()
    run(workshop.compile(listener=recorder))
    assert any("the compiled model is not kept" in text for text in recorder.warnings())


def test_a_model_that_can_not_be_read_is_told_as_ever(workshop: Workshop) -> None:
    with pytest.raises(BadInput, match="there is no model file"):
        api.compile(workshop.folder / "none.onnx", settings=workshop.settings)
    workshop.path.write_bytes(b"")
    with pytest.raises(BadInput, match="is empty"):
        workshop.compile()


# Its size and place


def large(seed: int) -> onnx.ModelProto:
    """A model with 400 kB of weights."""
    weights = np.random.default_rng(seed).standard_normal((316, 316)).astype(np.float32)
    x = np.zeros((1, 316), np.float32)
    return make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, ["y"], {"w": weights})


def test_it_is_bounded(workshop: Workshop) -> None:
    settings = replace(workshop.settings, model_cache_bytes=2 << 20)
    for seed in range(8):
        api.compile(large(seed), settings=settings)
        assert sum(path.stat().st_size for path in workshop.entries()) <= 2 << 20
    assert api.compile(large(7), settings=settings).is_cached
    assert not api.compile(large(0), settings=settings).is_cached


def test_a_model_that_takes_more_than_half_is_not_kept(workshop: Workshop) -> None:
    settings = replace(workshop.settings, model_cache_bytes=700 << 10)
    recorder = Recorder()
    for _ in range(2):
        assert not api.compile(large(0), settings=settings, listener=recorder).is_cached
    assert any("takes more than half of the cache" in text for text in recorder.warnings())
    assert not workshop.artifacts()


@pytest.mark.parametrize(
    "without", [{"model_cache_bytes": 0}, {"cache_dir": None}, {"key_dir": None}], ids=["size", "folder", "key"]
)
def test_it_can_be_switched_off(workshop: Workshop, without: dict[str, None]) -> None:
    settings = replace(workshop.settings, **without)
    for _ in range(2):
        assert not workshop.compile(settings=settings).is_cached
    assert not workshop.models.exists()


def test_its_folder_is_the_users_own(workshop: Workshop) -> None:
    workshop.compile()
    assert workshop.models.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in workshop.entries())
    workshop.models.chmod(0o777)
    recorder = Recorder()
    assert not workshop.compile(listener=recorder).is_cached
    assert any("other users can write to it" in text for text in recorder.warnings())


def test_a_disk_that_is_full(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("tilewright.base.store._write", full)
    recorder = Recorder()
    run(workshop.compile(listener=recorder))
    assert any("No space left" in text for text in recorder.warnings())


def test_two_models_of_one_folder_can_be_used_at_once(workshop: Workshop) -> None:
    """One is dropped from the cache while it is used: it is mapped, and stays."""
    workshop.compile()
    model = workshop.compile()
    cache = ModelCache.open(workshop.settings, lambda _: None)
    assert cache is not None
    Store(workshop.models, 1 << 20).clear()
    assert not workshop.artifacts()
    assert np.isfinite(run(model)).all()
