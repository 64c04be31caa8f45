"""The sketches of known computations: as many as those of Ansor's released code (Zheng et al., OSDI 2020)."""

from dataclasses import replace

import pytest

from benchmarks.operator_models import OPERATORS
from tests.sketch import operators, programs
from tilewright import te
from tilewright.base.dtypes import i8, i32, u8
from tilewright.base.errors import BadInput
from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef
from tilewright.sketch import BLOCKS_AND_THREADS, CORES, Answer, Draft, sketch_spaces, sketches
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
    "winograd": (programs.winograd(56, 64, 64), 3),
}
WITH_THREADS = {
    "a matrix product": (programs.matmul(512, 512, 512), 1),
    "few elements, long sums": (programs.matmul(8, 8, 1024), 2),
    "two products": (programs.two_products(512, 512, 512), 1),
    "a convolution and what follows": (programs.convolution(56, 512, 512), 1),
    "a reduction of one element": (programs.max_pool(56, 1), 1),
    "the least of rows": (programs.least(10, 1024), 2),
    "softmax": (programs.softmax(16, 1000), 4),
    "a sum of everything": (programs.everything_summed(128, 1024), 2),
    "winograd": (programs.winograd(56, 64, 64), 1),
}
OPERATOR_COUNTS = {
    "C1D": (3, 1),
    "C2D": (3, 1),
    "C3D": (3, 1),
    "GMM": (3, 1),
    "GRP": (3, 1),
    "DIL": (3, 1),
    "DEP": (3, 1),
    "T2D": (3, 1),
    "CAP": (3, 1),
    "NRM": (3, 2),
    "ConvLayer": (3, 1),
    "TBS": (27, 4),
}
"""Of the operators of ``benchmarks/operator_models.py``, in all their shapes: on cores, with blocks and threads."""


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str) -> None:
    output, count = COUNTS[name]
    found = sketches(programs.naive(output), FOUR_CORES)
    assert len(found) == count
    assert len({str(sketch) for sketch in found}) == count


@pytest.mark.parametrize("name", WITH_THREADS)
def test_counts_with_threads(name: str) -> None:
    output, count = WITH_THREADS[name]
    assert len(sketches(programs.naive(output), FOUR_CORES, structure=BLOCKS_AND_THREADS)) == count


@pytest.mark.parametrize(
    ("shape", "batch"), [(1, 1), *(pytest.param(s, b, marks=pytest.mark.slow) for s in range(4) for b in (1, 16))]
)
@pytest.mark.parametrize("name", OPERATOR_COUNTS)
def test_counts_of_operators(name: str, shape: int, batch: int) -> None:
    naive = programs.naive(operators.BUILDERS[name](batch, *OPERATORS[name][1][shape]))
    found = [len(sketches(naive, FOUR_CORES, structure=structure)) for structure in (CORES, BLOCKS_AND_THREADS)]
    assert tuple(found) == OPERATOR_COUNTS[name]


def test_intrinsics_of_the_target() -> None:
    naive = programs.naive(programs.dot_product(16, 32, 64, u8, i8, i32))
    tensorized = ["tensorize(C), cache_write(C), tile_and_fuse(C)", "tensorize(C), tile(C)"]
    for processor, expected in (("x86_64,znver4", True), ("x86_64", False)):
        found = [str(sketch) for sketch in sketches(naive, Target.parse(f"{processor},cores=4"))]
        assert [one in found for one in tensorized] == [expected] * 2
        assert len(found) == (6 if expected else 3)
    odd = programs.naive(programs.dot_product(16, 30, 64, u8, i8, i32))
    assert not any("tensorize" in str(sketch) for sketch in sketches(odd, Target.parse("x86_64,znver4")))


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
    (written,) = sketches(programs.naive(programs.winograd(8, 4, 4)), FOUR_CORES, structure=BLOCKS_AND_THREADS)
    assert str(written) == (
        "constant_matrix(inverse), cache_write(bgemm), tile_and_fuse(bgemm), cache_read(bgemm), "
        "constant_matrix(data_pack), special_location(input_tile), inline(P)"
    )
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


@pytest.mark.parametrize(
    "output",
    [programs.softmax(4, 12), programs.convolution(6, 4, 8), programs.outer_products(12, 40)],
    ids=["softmax", "conv", "outer products"],
)
def test_what_is_asked_does_not_depend_on_answers(output: Tensor) -> None:
    naive = programs.naive(output)
    for sketch, space in sketch_spaces(naive, FOUR_CORES):
        last = tuple(len(knob.values) - 1 for knob in space.knobs)
        decided = Decided(space.knobs, last)
        sketch.generate(space.opened.copy(), decided, target=FOUR_CORES)
        decided.check_finished()
