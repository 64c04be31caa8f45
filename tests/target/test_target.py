"""Targets: texts, feature levels, and the facts that follow from features."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import ParseError, UnsupportedTarget
from tilewright.base.processors import FEATURES, LEVELS, PROCESSORS, closure
from tilewright.target.target import Architecture, Target

AVX512 = frozenset(name for name in FEATURES[Architecture.X86_64] if name.startswith("avx512"))


@st.composite
def texts(draw: st.DrawFn) -> str:
    arch = draw(st.sampled_from(Architecture))
    words = [arch.value]
    if draw(st.booleans()):
        words.append(draw(st.sampled_from(sorted(PROCESSORS[arch]))))
    feature = st.builds(str.__add__, st.sampled_from("+-"), st.sampled_from(sorted(FEATURES[arch])))
    names = ["vector_bits", "vector_registers", "fma_per_cycle", "loads_per_cycle", "l1", "l2", "l3", "cores"]
    fact = st.builds("{}={}{}".format, st.sampled_from(names), st.integers(1, 5000), st.sampled_from(["", "K", "M"]))
    return ",".join(words + draw(st.lists(feature | fact, max_size=8)))


@given(texts())
def test_a_target_is_read_back_from_its_text(text: str) -> None:
    target = Target.parse(text)
    assert Target.parse(str(target)) == target
    assert str(Target.parse(str(target))) == str(target)


@given(texts())
def test_features_are_closed_and_llvm_is_told_of_each(text: str) -> None:
    target = Target.parse(text)
    assert closure(target.arch, frozenset(target.features)) == frozenset(target.features)
    told = target.llvm_features.split(",")
    assert sorted(word[1:] for word in told) == sorted(FEATURES[target.arch])
    assert {word[1:] for word in told if word[0] == "+"} == set(target.features)


@given(texts(), st.data())
def test_a_restricted_target_has_the_levels_features(text: str, data: st.DataObject) -> None:
    target = Target.parse(text)
    level = data.draw(st.sampled_from(sorted(LEVELS[target.arch])))
    wanted = closure(target.arch, frozenset(LEVELS[target.arch][level].split()))
    if wanted <= set(target.features):
        held = target.restricted(level)
        assert set(held.features) == wanted
        assert (held.cpu, held.cores, held.l1_bytes) == (target.cpu, target.cores, target.l1_bytes)
        assert Target.parse(str(held)) == held
    else:
        with pytest.raises(UnsupportedTarget, match="it lacks"):
            target.restricted(level)


@given(
    st.text(max_size=40) | st.lists(st.sampled_from(["x86_64", "znver5", "+avx2", "-", "l1=", "=", "9K"])).map(",".join)
)
def test_any_text_is_a_target_or_a_parse_error(text: str) -> None:
    try:
        target = Target.parse(text)
    except ParseError as error:
        assert str(error).startswith("target ")
    else:
        assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "",
            "unknown architecture ''; known: x86_64, aarch64, riscv64, wasm32, wasm64, aarch64-macos, x86_64-windows, "
            "and host alone",
        ),
        ("x86-64", "unknown architecture 'x86-64'"),
        ("x86_64,znver55", "unknown x86_64 processor 'znver55'; did you mean znver5"),
        ("x86_64,+avx51", "unknown x86_64 feature 'avx51'; did you mean avx512"),
        ("aarch64,+avx2", "unknown aarch64 feature 'avx2'"),
        ("x86_64,znver5,avx2", "'avx2' is no change; features start with + or -"),
        ("x86_64,ways=8", "unknown fact 'ways'"),
        ("x86_64,cores=0", "'cores=0' needs a whole number from 1 on"),
        ("x86_64,l2=1.5M", "'l2=1.5M' needs a whole number from 0 on; sizes may end in K, M or G"),
        ("x86_64,$(rm -rf)", "unknown x86_64 processor '$(rm -rf)'"),
    ],
)
def test_parse_errors_say_what_is_known(text: str, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        Target.parse(text)
    assert reason in str(caught.value)


def test_an_avx2_restriction_of_an_avx512_processor() -> None:
    target = Target.parse("x86_64,znver5,cores=8,l2=1M")
    assert (target.vector_bits, target.vector_registers) == (512, 32)
    held = target.restricted("avx2")
    assert (held.vector_bits, held.vector_registers, held.cores, held.l2_bytes) == (256, 16, 8, 1 << 20)
    assert not AVX512 & set(held.features)
    assert {f"-{name}" for name in AVX512} <= set(held.llvm_features.split(","))
    assert held.has("avx2")
    assert held.has("fma")


@pytest.mark.parametrize(
    ("text", "facts"),  # vector bits, registers, FMAs and loads per cycle: the vendors' optimization guides
    [
        ("x86_64", (128, 16, 1, 2)),
        ("x86_64,haswell", (256, 16, 2, 2)),
        ("x86_64,haswell,-fma", (256, 16, 1, 2)),
        ("x86_64,sapphirerapids", (512, 32, 2, 2)),
        ("x86_64,znver4", (512, 32, 1, 1)),
        ("x86_64,znver4,-avx512f", (256, 16, 2, 2)),
        ("x86_64,znver4,-avx512bf16", (512, 32, 1, 1)),
        ("x86_64,+avx512vnni", (512, 32, 2, 2)),
        ("x86_64,znver5,vector_bits=256", (256, 32, 2, 2)),
        ("aarch64,neoverse-n1", (128, 32, 2, 2)),
        ("aarch64,neoverse-v2", (128, 32, 4, 3)),
        ("riscv64", (64, 32, 1, 1)),
        ("riscv64,spacemit-x60", (256, 32, 1, 1)),
    ],
)
def test_facts_follow_from_processor_and_features(text: str, facts: tuple[int, int, int, int]) -> None:
    target = Target.parse(text)
    assert (target.vector_bits, target.vector_registers, target.fma_per_cycle, target.loads_per_cycle) == facts


def test_changes_count_from_left_to_right() -> None:
    assert Target.parse("x86_64,+avx512vnni,-avx2").features == Target.parse("x86_64,+f16c,+fma").features
    assert Target.parse("x86_64,-avx2,+avx512f").has("avx2")
    assert str(Target.parse("x86_64,znver5,-avx512vnni,+avx512vnni")) == "x86_64,znver5"


def test_lanes() -> None:
    assert Target.parse("x86_64,haswell").lanes(32) == 8
    assert Target.parse("riscv64").lanes(128) == 1


def test_unknown_names_are_refused_by_of_too() -> None:
    with pytest.raises(UnsupportedTarget, match="processor 'z80'"):
        Target.of(Architecture.X86_64, "z80")
    with pytest.raises(UnsupportedTarget, match="feature 'neon'"):
        Target.of(Architecture.X86_64, features=("neon",))
    with pytest.raises(UnsupportedTarget, match=r"no feature level 'mmx'; known: sse2, sse4\.2, avx2, avx512"):
        Target.parse("x86_64").restricted("mmx")
