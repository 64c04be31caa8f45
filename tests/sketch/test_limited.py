"""A limited space: some of the rules, and none of the compiler's others."""

from dataclasses import replace

import pytest

from tests.loops import workloads
from tests.sketch import programs
from tilewright import te
from tilewright.base.errors import BadInput
from tilewright.base.search import Spaces
from tilewright.sketch.rules.inline import Inline
from tilewright.sketch.rules.skip import Skip
from tilewright.sketch.rules.tile import TileBlock
from tilewright.space.union import Union
from tilewright.target.target import Target
from tilewright.tune.kernel import tune_kernel
from tilewright.tune.spaces import candidates_of

TARGET = replace(Target.host(), cores=1)


def test_rules_are_all_there_is() -> None:
    naive = programs.naive(programs.convolution(8, 16, 16))
    found = candidates_of(naive, TARGET, Spaces.SKETCHES, [Inline(), TileBlock(), Skip()], standard=False)
    assert isinstance(found, Union)
    assert found.labels == ("inline(S), tile(C)",)
    every = candidates_of(naive, TARGET, Spaces.SKETCHES)
    assert isinstance(every, Union)
    assert set(found.labels) < set(every.labels)


def test_without_any_rule_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.tune.kernel.Pool", None)  # starting processes would raise a TypeError
    output = programs.matmul(8, 8, 8)
    with pytest.raises(BadInput, match=r"leaves nothing to choose in sketches: .* leave standard_rules=False out"):
        tune_kernel(programs.naive(output), space="sketches", standard_rules=False, trials=1)
    with pytest.raises(BadInput, match="leaves nothing to choose in sketches"):
        te.autoschedule(output, space="sketches", standard_rules=False, trials=1)


def test_what_is_not_searched_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.tune.kernel.Pool", None)  # starting processes would raise a TypeError
    with pytest.raises(BadInput, match=r"no sketches are made of recurrences .* give space='all'"):
        te.autoschedule(workloads.cumsum(4, 8), space="sketches", trials=1)
    size = te.var("n")
    a = te.placeholder((size,), name="A")
    doubled = te.compute((size,), lambda i: a[i] * 2.0, name="doubled")
    with pytest.raises(BadInput, match=r"extents \(n\): .* give numbers in the shapes, or let te.autoschedule"):
        te.autoschedule(doubled, trials=1)
    assert te.autoschedule(doubled).trace
