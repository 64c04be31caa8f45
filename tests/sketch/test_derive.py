"""The sketches of known computations: as many as those of Ansor's released code (Zheng et al., OSDI 2020)."""

from dataclasses import replace

import pytest

from tests.sketch import programs
from tilewright import te
from tilewright.base.errors import BadInput
from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef
from tilewright.sketch import Answer, Draft, sketch_spaces, sketches
from tilewright.space.config import Decided
from tilewright.target.target import Target
from tilewright.tensor.ir import Tensor

FOUR_CORES = replace(Target.host(), cores=4)

COUNTS = {
    "a matrix product": (programs.matmul(512, 512, 512), 3),
    "axes of one element": (programs.products_of_one_row(1, 16, 256, 64), 3),
    "few elements, long sums": (programs.matmul(8, 8, 512), 5),
    "two products": (programs.two_products(512, 512, 512), 9),
    "a convolution and what follows": (programs.convolution(56, 512, 512), 3),
    "a reduction of one element": (programs.max_pool(56, 1), 1),
    "the least of rows": (programs.least(10, 1024), 3),
    "softmax": (programs.softmax(16, 1000), 9),
    "a sum of everything": (programs.everything_summed(128, 1024), 3),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str) -> None:
    output, count = COUNTS[name]
    found = sketches(programs.naive(output), FOUR_CORES)
    assert len(found) == count
    assert len({str(sketch) for sketch in found}) == count


def test_what_is_derived() -> None:
    assert [str(sketch) for sketch in sketches(programs.naive(programs.matmul(512, 512, 512)), FOUR_CORES)] == [
        "cache_write(C), tile_and_fuse(C)",
        "cache_write(C), tile_and_fuse(C, 1)",
        "tile(C)",
    ]
    found = sketches(programs.naive(programs.convolution(56, 512, 512)), FOUR_CORES)
    assert [str(sketch) for sketch in found] == [
        "inline(S), tile_and_fuse(C)",
        "inline(S), tile_and_fuse(C, 1)",
        "inline(S), tile(C)",
    ]
    (nothing,) = sketches(programs.naive(programs.max_pool(56, 1)), FOUR_CORES)
    assert str(nothing) == "no rule"


def test_run_time_extents_are_refused() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    naive = programs.naive(te.compute((n,), lambda i: x[i] + 1.0, name="Y"))
    with pytest.raises(BadInput, match="run-time extents"):
        sketches(naive, FOUR_CORES)


class FirstAxisAlone:
    """Somebody's own rule: splits the first loop of a product, in one of two ways."""

    name = "own.first_axis"

    def answer(self, draft: Draft, block: Block) -> Answer:
        return Answer.APPLY_ALONE if block.name == "C" else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        return 2

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        first, *_ = draft.schedule.get_loops(BlockRef(block.name))
        draft.schedule.split(first, (None, draft.config.choice("C.own", [4, 8][variant:])))
        draft.done.add(block.name)


def test_own_rules_come_first() -> None:
    naive = programs.naive(programs.matmul(16, 16, 16))
    found = sketches(naive, FOUR_CORES, [FirstAxisAlone()])
    assert [str(sketch) for sketch in found] == ["own.first_axis(C)", "own.first_axis(C, 1)"]
    (_, first), (_, second) = sketch_spaces(naive, FOUR_CORES, [FirstAxisAlone()])
    assert first.knobs[0].values == (4, 8)
    assert second.knobs[0].values == (8,)


@pytest.mark.parametrize("output", [programs.softmax(4, 12), programs.convolution(6, 4, 8)], ids=["softmax", "conv"])
def test_what_is_asked_does_not_depend_on_answers(output: Tensor) -> None:
    naive = programs.naive(output)
    for sketch, space in sketch_spaces(naive, FOUR_CORES):
        last = tuple(len(knob.values) - 1 for knob in space.knobs)
        decided = Decided(space.knobs, last)
        sketch.generate(space.opened.copy(), decided, target=FOUR_CORES)
        decided.check_finished()
