"""The default run draws the same everywhere: on any day, in any order, in any clone, whatever the host keeps."""

import ast
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests import profiles

ROOT = Path(__file__).parents[1]

DRAWS = """
import hashlib, sys
from hypothesis import given, settings, strategies as st
from tests import profiles

profiles.register()
for name in sys.argv[1:]:
    __import__(name)
seen = hashlib.sha256()


@given(st.integers(), st.floats(), st.text(), st.sets(st.integers(0, 9)))
@settings(max_examples=60)
def draw(integer, number, text, numbers):
    seen.update(repr((integer, number, text, numbers)).encode())


draw()
print(seen.hexdigest())
"""


def _drawn(folder: Path, hash_seed: str, *modules: str) -> str:
    """A digest of what a test draws in a fresh process that has loaded ``modules``."""
    script = folder / "draws.py"
    script.write_text(DRAWS)
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, str(script), *modules]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_what_is_drawn_follows_from_the_test_alone(tmp_path: Path) -> None:
    """Neither from modules that earlier tests have loaded, nor from the hash seed, nor from examples kept on disk."""
    (tmp_path / "literals.py").write_text(f"NUMBERS = {[*range(10**6, 10**6 + 400)]}, {[x / 7 for x in range(400)]}")
    assert _drawn(tmp_path, "1") == _drawn(tmp_path, "2", "literals")


def test_profiles() -> None:
    default, fresh = (settings.get_profile(name) for name in (profiles.DEFAULT, profiles.FRESH))
    assert default.derandomize
    assert not fresh.derandomize
    for profile in (default, fresh, settings.get_profile(profiles.MUTANTS)):
        assert (profile.database, profile.deadline) == (None, None)
    assert settings.get_profile(profiles.MUTANTS).derandomize


def test_draws_by_night_are_more() -> None:
    before, found = settings.get_current_profile_name(), list[int]()
    try:
        for name in (profiles.DEFAULT, profiles.MUTANTS, profiles.FRESH):
            settings.load_profile(name)
            found.append(profiles.examples(3, by_night=50).max_examples)
    finally:
        settings.load_profile(before)
    assert found == [3, 3, 50]


def test_settings_of_the_user_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TILEWRIGHT_") or name == profiles.FOLDER]:
        monkeypatch.setenv(name, os.environ[name])  # as it is now, after the test
    for name in ("BOUNDS_CHECK", "CACHE_DIR", "KEY_DIR", "MACHINE", "MODEL_CACHE_BYTES", "RECORDS"):
        monkeypatch.setenv(f"TILEWRIGHT_{name}", "the user's")
    folder = profiles.isolate()
    try:
        found = {name: value for name, value in os.environ.items() if name.startswith("TILEWRIGHT_")}
        assert "the user's" not in found.values()
        assert found["TILEWRIGHT_RECORDS"] == found["TILEWRIGHT_MACHINE"] == "off"
        assert all(Path(found[f"TILEWRIGHT_{name}_DIR"]).is_relative_to(folder) for name in ("CACHE", "KEY"))
    finally:
        profiles.remove(folder)


NUMPYS, PYTHONS = np.random.default_rng(3), random.Random(3)


@pytest.mark.parametrize("_", range(2))
def test_each_test_finds_the_generators_of_modules_as_they_were_made(_: int) -> None:
    """Whatever other tests have drawn before it."""
    assert (NUMPYS.random(), PYTHONS.random()) == (np.random.default_rng(3).random(), random.Random(3).random())


# No test draws otherwise

OURS = frozenset({"derandomize", "database", "backend"})
"""Settings of Hypothesis that only a profile may say."""
WORDS = re.compile("random|Random|Generator|default_rng|settings|secrets|uuid")
"""What a file has that may leave something to chance; the others need not be parsed."""
SEEDED = frozenset({"Random", "default_rng", "Generator", "SeedSequence"})
"""What of NumPy's and Python's modules of chance is there to be given a seed."""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("np.random.default_rng(3), random.Random(3), given.random()", 0),
        ("np.random.default_rng()", 1),
        ("default_rng(None)", 1),
        ("np.random.standard_normal(3)", 1),
        ("Random()", 1),
        ("import random\nrandom.choice([1, 2])", 1),
        ("random = default_rng(1)\nrandom.choice([1, 2])", 0),
        ("from random import choice", 1),
        ("import secrets, uuid", 2),
        ("os.urandom(3)", 1),
        ("settings(derandomize=False)", 1),
        ("settings(max_examples=3, deadline=None)", 0),
        ("settings(deadline=200)", 1),
    ],
)
def test_chance_is_recognized(text: str, found: int) -> None:
    assert len(list(_chance(ast.parse(text)))) == found


def test_no_test_leaves_anything_to_chance() -> None:
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(profiles.__file__)]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in files}
    found = {path: list(_chance(ast.parse(text))) for path, text in texts.items() if WORDS.search(text)}
    assert len(found) > 200
    assert not {path: lines for path, lines in found.items() if lines}


def _chance(tree: ast.Module) -> Iterator[str]:
    """What may come out differently from run to run, with its line."""
    module = any(isinstance(node, ast.Import) and any(a.name == "random" for a in node.names) for node in tree.body)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                yield from (f"{node.lineno}: {a.name}" for a in names if a.name in ("secrets", "uuid"))
            case ast.ImportFrom(module="random" | "secrets" | "uuid" as name, names=names):
                yield from (f"{node.lineno}: {name}.{a.name}" for a in names if a.name not in SEEDED)
            case ast.Call(ast.Name("settings"), _, keywords):
                yield from (f"{node.lineno}: settings({k.arg}=...)" for k in keywords if not _is_plain(k))
            case ast.Call(ast.Name(name) | ast.Attribute(_, name)) if name in ("default_rng", "Random"):
                if not node.args or (isinstance(node.args[0], ast.Constant) and node.args[0].value is None):
                    yield f"{node.lineno}: {name}() without a seed"
            case ast.Call(ast.Attribute(ast.Attribute(ast.Name("np"), "random"), name)) if name not in SEEDED:
                yield f"{node.lineno}: np.random.{name}"
            case ast.Call(ast.Attribute(ast.Name("random"), name)) if module and name not in SEEDED:
                yield f"{node.lineno}: random.{name}"
            case ast.Call(ast.Attribute(ast.Name("os"), "urandom")):
                yield f"{node.lineno}: os.urandom"
            case _:
                pass


def _is_plain(keyword: ast.keyword) -> bool:
    if keyword.arg == "deadline":
        return isinstance(keyword.value, ast.Constant) and keyword.value.value is None
    return keyword.arg not in OURS
