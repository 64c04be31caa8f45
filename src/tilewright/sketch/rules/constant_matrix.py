"""``constant_matrix``: sums of products with small matrices of constants are written out; the rest is tiled.

So are the transforms of Winograd's convolutions: after the loops over the matrices' indices are unrolled, their numbers
are known, and terms with zeros vanish. (Zheng et al., OSDI 2020; in the released code ``simplify compute with const
tensor``.)
"""

from math import prod

from tilewright.loops.ir import Block, Store
from tilewright.schedule.skip_zeros import factors
from tilewright.schedule.tree import BlockRef, LoopRef
from tilewright.sketch.analysis import constant_axes, constants_of, extent
from tilewright.sketch.rule import Answer, Draft, Tile
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Binary
from tilewright.symbolic.operations import BinaryOp

MOST_TERMS = 2048
"""Terms that are written out: F(4x4, 3x3) has 6^4."""
MOST_INNER = 64
"""Iterations of an inner loop."""


class ConstantMatrix:
    """A ``SketchRule``."""

    name = "constant_matrix"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        return Answer.APPLY_ALONE if is_product_with_constants(draft, block) else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        s, ref = draft.schedule, BlockRef(block.name)
        constants = constants_of(s.program, block)
        named = constant_axes(block, constants)
        for constant in constants:
            s.compute_inline(BlockRef(constant.name))
        s.skip_zeros(ref)
        outer: list[LoopRef] = []
        inner: list[LoopRef] = []
        written: list[LoopRef] = []
        for axis, loop in zip(block.axes, s.get_loops(ref), strict=True):
            if axis.var in named or axis.kind is IterKind.REDUCE:
                written.append(loop)
                continue
            sizes = draft.config.split(
                f"{block.name}.{axis.name}", extent(axis.extent), 2, filter=lambda sizes: sizes[-1] <= MOST_INNER
            )
            first, second = s.split(loop, (None, sizes[1]))
            outer.append(first)
            inner.append(second)
        s.reorder(*outer, *inner[:-1], *written, inner[-1])
        for loop in written:
            s.unroll(loop)
        terms = prod(extent(axis.extent) for axis in block.axes if axis.var in named or axis.kind is IterKind.REDUCE)
        draft.tiles[block.name] = Tile((tuple(outer), (), tuple(inner[:-1]), (), (inner[-1],)), inner[-1], terms)
        draft.written.add(block.name)
        draft.done.add(block.name)


def is_product_with_constants(draft: Draft, block: Block) -> bool:
    """Whether ``block`` adds up few products with constants at each of many places."""
    constants = constants_of(draft.schedule.program, block)
    if not constants or not isinstance(block.body, Store) or not _is_sum_of_products(block.body):
        return False
    named = constant_axes(block, constants)
    own = [axis for axis in block.axes if axis.var in named or axis.kind is IterKind.REDUCE]
    others = [axis for axis in block.axes if axis not in own and axis.kind is IterKind.SPATIAL]
    return bool(others) and prod(extent(axis.extent) for axis in own) <= MOST_TERMS


def _is_sum_of_products(store: Store) -> bool:
    value = store.value
    return isinstance(value, Binary) and value.op is BinaryOp.ADD and len([*factors(value.b)]) > 1
