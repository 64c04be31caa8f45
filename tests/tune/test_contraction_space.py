"""The template for contractions: what it allows can be scheduled, and computes what the program says."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.cpu.support import run_native
from tests.closeness import assert_near
from tests.measure.jobs import product
from tilewright.base.errors import ScheduleError
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.symbolic.expr import Var
from tilewright.target.target import Target
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction
from tilewright.tune.contraction_space import ContractionSpace
from tilewright.tune.kernel_space import KernelSpace
from tilewright.tune.space import Digits, size

HOST = Target.host()


def convolution() -> Program:
    """3x3 of 12 channels, in blocks of 16 filters, with a sum after it."""
    image = te.placeholder((12, 6, 9), name="image")
    weight = te.placeholder((2, 12, 3, 3, 16), name="weight")
    bias = te.placeholder((2, 16), name="bias")
    c, ky, kx = te.reduce_axis((0, 12), "c"), te.reduce_axis((0, 3), "ky"), te.reduce_axis((0, 3), "kx")

    def element(b: Var, y: Var, x: Var, lane: Var) -> Reduction:
        return te.sum(image[c, y + ky.var, x + kx.var] * weight[b, c, ky, kx, lane], axis=(c, ky, kx))

    total = te.compute((2, 4, 7, 16), element, name="total")
    result = te.compute((2, 4, 7, 16), lambda b, y, x, lane: total[b, y, x, lane] + bias[b, lane], name="result")
    return lower(result, "convolution")


PROGRAMS = {"product": lambda: product("product", 40), "convolution": convolution}


@cache
def space_of(name: str) -> ContractionSpace:
    return ContractionSpace.of(PROGRAMS[name](), HOST)


def candidates(space: ContractionSpace, count: int, seed: int) -> Digits:
    return np.random.default_rng(seed).integers(0, space.radices, (count, len(space.radices)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_compilers_choice_is_a_candidate_and_has_the_best_estimate(name: str) -> None:
    space = space_of(name)
    own = KernelSpace.of(space.naive, HOST)
    analytic = space.analytic()[None]
    assert space.allowed(analytic).all()
    assert space.estimates(analytic)[0] == own.estimates(own.analytic()[None])[0]
    others = candidates(space, 2000, seed=0)
    assert space.estimates(others[space.allowed(others)]).min() >= space.estimates(analytic)[0]
    assert size(space) > 100_000


@pytest.mark.parametrize("name", PROGRAMS)
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1 << 30))
def test_candidates_are_allowed_or_refused_and_right(name: str, seed: int) -> None:
    space = space_of(name)
    (digits,) = candidates(space, 1, seed)
    if not space.allowed(digits[None])[0]:
        with pytest.raises(ScheduleError):
            space.schedule(digits)
        return
    program = space.schedule(digits).program
    random = np.random.default_rng(0)
    shapes = {p.name: tuple(int(str(e)) for e in p.shape) for p in program.inputs}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    (found,) = run_native(program, feeds, threads=2)
    (result,) = interpreted(name, tuple(feeds))
    assert_near(found, result, 1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_two_candidates_are_scheduled_alike(name: str) -> None:
    space = space_of(name)
    blocks = [knob for knob, made in enumerate(space.template.knobs) if made.name.endswith("block")]
    digits = np.tile(space.analytic(), (4096, 1))
    digits[:, blocks] = candidates(space, 4096, seed=0)[:, blocks]
    different = np.unique(digits[space.allowed(digits)], axis=0)
    assert len(different) > 1
    assert len({str(space.schedule(one)) for one in different}) == len(different)


def test_a_stream_may_be_asked_into_either_cache() -> None:
    """The analytic model asks for nothing that stays in cache anyway."""
    space = space_of("product")
    names = [made.name for made in space.template.knobs]
    digits = np.tile(space.analytic(), (3, 1))
    ahead = space.template.knobs[names.index("prefetch")]
    digits[:, names.index("pack")] = 0
    digits[:, names.index("prefetch")] = [ahead.values.index(cache) for cache in (0, 1, 2)]
    programs = [space.schedule(one).program for one in digits]
    assert [program.prefetched("B") > 0 for program in programs] == [False, True, True]
    assert [program.prefetch_cache("B") for program in programs] == [1, 1, 2]
    estimates = space.estimates(digits)
    assert estimates[0] < estimates[1] == estimates[2]
    digits[:, names.index("pack")] = 1
    assert space.allowed(digits).tolist() == [True, False, False]


@cache
def interpreted(name: str, inputs: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """What the interpreter makes of the naive program."""
    program, random = space_of(name).naive, np.random.default_rng(0)
    shapes = {p.name: tuple(int(str(e)) for e in p.shape) for p in program.inputs}
    feeds = {given: random.standard_normal(shapes[given]).astype(np.float32) for given in inputs}
    return tuple(interpret(program, feeds).values())


def test_features_tell_all_knobs_apart() -> None:
    space = space_of("convolution")
    first = space.analytic()
    for knob, radix in enumerate(space.radices):
        for digit in set(range(radix)) - {int(first[knob])}:
            other = first.copy()
            other[knob] = digit
            assert (space.features(other[None]) != space.features(first[None])).any()


def test_what_is_no_contraction_is_refused() -> None:
    a = te.placeholder((4, 5), name="a")
    doubled = lower(te.compute((4, 5), lambda y, x: a[y, x] * 2.0, name="doubled"), "doubled")
    with pytest.raises(ScheduleError, match="no sum of products"):
        ContractionSpace.of(doubled, HOST)
