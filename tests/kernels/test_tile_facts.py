"""What a program says of the time of its register tiles."""

from tilewright import te
from tilewright.base import dtypes
from tilewright.kernels.contraction import analyze
from tilewright.kernels.tile_facts import Overlap, TileFacts
from tilewright.loops.lower import lower
from tilewright.schedule.tree import all_blocks
from tilewright.tensor.ir import Tensor


def facts_of(result: Tensor, *inputs: Tensor) -> TileFacts:
    program = lower([result], inputs=inputs)
    block = all_blocks(program.body)[0]
    roles = analyze(block)
    assert roles is not None
    return TileFacts.of(block, roles, program)


def test_a_product() -> None:
    """Of 8 x 96 and 96 x 64 numbers of two bytes; the matrix on the left is broadcast, that on the right the panel."""
    x, w = te.placeholder((8, 96), dtypes.f16, "x"), te.placeholder((96, 64), dtypes.f16, "w")
    k = te.reduce_axis((0, 96), name="k")
    facts = facts_of(te.compute((8, 64), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="y"), x, w)
    assert (facts.vector, facts.rows, facts.panels, facts.groups, facts.places, facts.reduction) == (64, 8, 1, 1, 1, 96)
    assert (facts.itemsize, facts.operands, facts.streamed, facts.row_bytes) == (2, 2, 2 * 96 * 64, 192)
    assert facts.overlap == Overlap(1, 1)
    assert not facts.selects


def test_a_convolution_whose_rows_overlap() -> None:
    """Places two apart read three positions each, and there are 16 filters of 4 channels."""
    x, w = te.placeholder((31, 4), dtypes.f32, "x"), te.placeholder((3, 4, 16), dtypes.f32, "w")
    tap, channel = te.reduce_axis((0, 3), name="tap"), te.reduce_axis((0, 4), name="channel")
    result = te.compute(
        (15, 16), lambda i, f: te.sum(x[2 * i + tap, channel] * w[tap, channel, f], axis=(tap, channel)), name="y"
    )
    facts = facts_of(result, x, w)
    assert (facts.vector, facts.rows, facts.reduction) == (16, 15, 12)
    assert facts.overlap == Overlap(2, 3)
    assert facts.row_bytes == 2 * 4 * 4
