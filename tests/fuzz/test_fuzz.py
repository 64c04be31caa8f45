"""The fuzzers: what is kept stays harmless, and what is no typed error is a find."""

from collections.abc import Callable

import pytest

from fuzz.target import CORPUS, Target
from fuzz.targets import NAMES, load
from tilewright.base.errors import BadInput, InternalError


@pytest.mark.parametrize("name", NAMES)
def test_seeds_are_good(name: str) -> None:
    target = load(name)
    verdicts = [target.run(seed) for seed in target.seeds()]
    assert sum(verdicts) > len(verdicts) / 2


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_has_no_find(name: str) -> None:
    target = load(name)
    for path in target.kept():
        target.run(path.read_bytes())


def test_each_folder_of_the_corpus_has_a_fuzzer() -> None:
    folders = {folder.name for folder in CORPUS.iterdir()}
    assert folders and folders <= set(NAMES)


def raising(error: Exception) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        raise error

    return check


def test_a_typed_error_is_no_find() -> None:
    assert not Target("t", raising(BadInput("line 1: no")), list).run(b"")


@pytest.mark.parametrize("error", [KeyError("x"), InternalError("x"), AssertionError()])
def test_anything_else_is_a_find(error: Exception) -> None:
    with pytest.raises(type(error)):
        Target("t", raising(error), list).run(b"")


def test_models_are_mutated_as_models() -> None:
    target = load("model")
    assert target.mutate is not None
    seed = next(iter(target.seeds()))
    changed = {target.mutate(seed, target.max_bytes, number) for number in range(40)}
    assert len(changed) > 30
    assert changed == {target.mutate(seed, target.max_bytes, number) for number in range(40)}
    verdicts = {target.run(data) for data in sorted(changed)[:12]}
    assert verdicts == {True, False}
