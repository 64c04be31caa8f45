"""The template for contractions: what it allows can be scheduled, and computes what the program says."""

from functools import cache
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backend.cpu.support import run_native
from tests.closeness import assert_near
from tests.measure.jobs import product
from tests.profiles import examples
from tilewright.base.errors import ScheduleError
from tilewright.cost.analytic import open_space
from tilewright.kernels.nests import Nests, Tiles
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import LoopKind
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, loops_of
from tilewright.space.config import Decided
from tilewright.space.space import Digits, Space, size
from tilewright.symbolic.expr import Const, Var
from tilewright.target.target import Target
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction
from tilewright.tune.contraction_space import MOST_WRITTEN_OUT
from tilewright.tune.spaces import kernel_space, space_of

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
def made(name: str) -> Space:
    return space_of(PROGRAMS[name](), HOST)


def candidates(space: Space, count: int, seed: int) -> Digits:
    return np.random.default_rng(seed).integers(0, space.radices, (count, len(space.radices)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_compilers_choice_is_a_candidate_and_has_the_best_estimate(name: str) -> None:
    space = made(name)
    own = kernel_space(space.naive, HOST)
    analytic = space.analytic()[None]
    assert space.allowed(analytic).all()
    assert space.estimates(analytic)[0] == own.estimates(own.analytic()[None])[0]
    others = candidates(space, 2000, seed=0)
    assert space.estimates(others[space.allowed(others)]).min() >= space.estimates(analytic)[0]
    assert size(space) > 100_000


@pytest.mark.parametrize("name", PROGRAMS)
@examples(6, by_night=60)
@given(seed=st.integers(0, 1 << 30))
def test_candidates_are_allowed_or_refused_and_right(name: str, seed: int) -> None:
    space = made(name)
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


def written_out(program: Program, block: str, lanes: int) -> int:
    """Vector operations in the innermost body around a block."""
    loops = [loop for loop in loops_of(program, BlockRef(block)) if isinstance(loop.extent, Const)]
    kinds = {LoopKind.UNROLLED: 1, LoopKind.VECTORIZED: lanes}
    return prod(int(loop.extent.value) // kinds[loop.kind] for loop in loops if loop.kind in kinds)


@pytest.mark.parametrize(("name", "block"), [("product", "C"), ("convolution", "total")])
def test_what_is_written_out_has_a_limit(name: str, block: str) -> None:
    """Candidates that are not allowed for this reason are those that would write out more."""
    space, found = made(name), set[tuple[bool, bool]]()
    names = [knob.name for knob in space.knobs]
    digits = candidates(space, 75, seed=1)
    for knob in range(len(names)):  # of all that is open, only what is written out
        if names[knob] not in ("tile", "written out") and "steps" not in names[knob]:
            digits[:, knob] = space.analytic()[knob]
    for one in digits:
        s = space.opened.copy()
        space.generator(s, Decided(space.knobs, tuple(one.tolist())))
        is_small = written_out(s.program, block, HOST.lanes(32)) <= MOST_WRITTEN_OUT
        found.add((is_small, bool(space.allowed(one[None])[0])))
    assert found == {(True, True), (False, False)}


def test_loops_are_in_the_orders_that_are_decided() -> None:
    space = made("convolution")
    decided = space.describe(space.analytic())
    orders = next(knob.values for knob in space.knobs if knob.name == "outer order")
    programs = {str(space.schedule(space.digits({**decided, "outer order": order})).program) for order in orders}
    assert len(orders) == 6
    assert len(programs) == 2  # one loop runs once, and is outermost


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_two_candidates_are_scheduled_alike(name: str) -> None:
    space = made(name)
    blocks = [knob for knob, one in enumerate(space.knobs) if one.name.endswith("block")]
    digits = np.tile(space.analytic(), (4096, 1))
    digits[:, blocks] = candidates(space, 4096, seed=0)[:, blocks]
    different = np.unique(digits[space.allowed(digits)], axis=0)
    assert len(different) > 1
    assert len({str(space.schedule(one)) for one in different}) == len(different)


def test_a_stream_may_be_asked_into_either_cache() -> None:
    """The analytic model asks for nothing that stays in cache anyway."""
    space = made("product")
    names = [knob.name for knob in space.knobs]
    digits = np.tile(space.analytic(), (3, 1))
    ahead = space.knobs[names.index("prefetch")]
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
    program, random = made(name).naive, np.random.default_rng(0)
    shapes = {p.name: tuple(int(str(e)) for e in p.shape) for p in program.inputs}
    feeds = {given: random.standard_normal(shapes[given]).astype(np.float32) for given in inputs}
    return tuple(interpret(program, feeds).values())


def test_features_tell_all_knobs_apart() -> None:
    space = made("convolution")
    first = space.analytic()
    for knob, radix in enumerate(space.radices):
        for digit in set(range(radix)) - {int(first[knob])}:
            other = first.copy()
            other[knob] = digit
            assert (space.features(other[None]) != space.features(first[None])).any()


def test_what_is_no_contraction_has_the_compilers_space() -> None:
    a = te.placeholder((4, 5), name="a")
    doubled = lower(te.compute((4, 5), lambda y, x: a[y, x] * 2.0, name="doubled"), "doubled")
    assert [knob.name for knob in space_of(doubled, HOST).knobs] == ["doubled.vectors"]


def test_estimates_have_logarithms() -> None:
    """Also of a program without elements, which takes no time."""
    k = te.reduce_axis((0, 8), "k")
    a, b = te.placeholder((0, 8), name="a"), te.placeholder((8, 16), name="b")
    product = te.compute((0, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    space = space_of(lower(product, "empty"), HOST)
    estimates = space.estimates(space.sample(4, np.random.default_rng(0)))
    assert estimates is not None and np.isfinite(np.log(estimates)).all()


class OwnTiles(Tiles):
    """Tiles that are scheduled in another way."""


def test_tiles_of_another_class_have_the_space_of_their_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(s: Schedule, target: Target) -> Nests:
        (nest,) = open_space(s, target).nests
        assert isinstance(nest, Tiles)
        own = OwnTiles(nest.name, nest.knobs, nest.roles, nest.facts, nest.registers, nest.parallel, nest.stream_ahead)
        return Nests((own,))

    monkeypatch.setattr("tilewright.tune.spaces.open_space", opened)
    names = [knob.name for knob in space_of(PROGRAMS["product"](), HOST).knobs]
    knobs = ("lanes", "rows", "panels", "order", "unroll", "pack", "prefetch", "slices")
    assert names == [f"C.{name}" for name in knobs]
