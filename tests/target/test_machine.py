"""The figures of a machine are facts of a target: they are in its text, and decide."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import ParseError
from tilewright.measure.job import target_fingerprint
from tilewright.target.machine import Machine
from tilewright.target.target import Target

FIGURES = asdict(Machine())
WHOLE = st.integers(1, 1 << 40)


@given(st.sampled_from(sorted(FIGURES)), WHOLE, st.floats(1e-6, 1e12))
def test_a_figure_is_read_back_from_the_text_of_the_target(name: str, whole: int, real: float) -> None:
    value = whole if isinstance(FIGURES[name], int) else real
    target = Target.parse("x86_64,znver5")
    changed = replace(target, machine=replace(target.machine, **{name: value}))
    assert Target.parse(str(changed)) == changed
    assert f"{name}=" in str(changed) or changed == target
    assert Target.parse(f"x86_64,znver5,{name}={value}") == changed


def test_processors_differ_and_their_texts_do_not_say_so() -> None:
    assert Target.parse("x86_64,znver4").machine.look_ahead == 384
    assert str(Target.parse("x86_64,znver4")) == "x86_64,znver4"
    assert str(Target.parse("x86_64,znver4,look_ahead=0")) == "x86_64,znver4,look_ahead=0"
    assert Target.parse("x86_64,haswell").machine.fma_latency == 5


@pytest.mark.parametrize(
    "word", ["asking=-1", "asking=nan", "asking=x", "asking=", "way_bytes=1.5", "region_cycles=inf"]
)
def test_what_is_no_figure_is_refused(word: str) -> None:
    with pytest.raises(ParseError, match=r"needs a (whole )?number above 0"):
        Target.parse(f"x86_64,znver5,{word}")


def test_an_unknown_figure_is_told_what_is_near() -> None:
    with pytest.raises(ParseError, match="did you mean region_cycles"):
        Target.parse("x86_64,region_cycle=5")


def test_what_was_measured_is_found_with_other_estimates() -> None:
    first, other, faster = ("x86_64,znver5", "x86_64,znver5,region_cycles=5", "x86_64,znver5,fma_per_cycle=3")
    assert target_fingerprint(first) == target_fingerprint(other) != target_fingerprint(faster)


def test_restricting_a_target_keeps_its_figures() -> None:
    target = Target.parse("x86_64,znver5,region_cycles=5")
    assert target.restricted("avx2").machine == target.machine
