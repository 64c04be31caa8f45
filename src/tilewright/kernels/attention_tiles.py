"""Attention by a matrix unit: scores of some rows, their softmax, and the products with values, one after the other.

Both products are tiles over all columns, whose sums are stored to private memory; what is between them runs row by row
in vectors, while the rows are in cache. No score is written to memory that others see.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tilewright.kernels.contraction import Contraction, analyze
from tilewright.kernels.matrix_tiles import Pattern, pattern_of
from tilewright.kernels.nests import Nest
from tilewright.kernels.reductions import partial_results, pull_producers, vectorize_columns
from tilewright.kernels.schedules import REGISTERS, extent_of, inline_all, is_reduction, ref
from tilewright.kernels.tile_descriptions import TileProduct
from tilewright.kernels.tile_products import declared_tiles
from tilewright.loops.ir import Block
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, buffers_read, buffers_written, loops_of
from tilewright.space.knobs import Knob
from tilewright.symbolic.expr import Const
from tilewright.target.target import Target

LEAST_ROWS = 16
"""Of a register of the unit: fewer would leave most of it empty."""
MOST_ROWS = 512
"""Rows that are taken together although nothing of at least a register's height divides them."""
MOST_SCORES = 32768
"""Scores of the rows that are taken together: with the weights, they stay in the second cache."""


def row_counts(rows: int, keys: int) -> tuple[int, ...]:
    """How many rows may be taken together; none if that is not possible."""
    parts = tuple(n for n in range(LEAST_ROWS, rows + 1) if rows % n == 0 and n * keys <= MOST_SCORES)
    return parts or ((rows,) if LEAST_ROWS <= rows <= MOST_ROWS else ())


@dataclass(frozen=True, slots=True)
class AttentionTiles(Nest):
    """Knob: ``rows`` that are taken together."""

    products: tuple[str, str]
    """The blocks of scores, and of sums."""
    patterns: tuple[Pattern, Pattern]
    columns: tuple[int, int]
    """Keys, and elements of a value."""
    heads: int
    rows: int
    """Of a head."""
    lanes: int
    parallel: bool

    @property
    def steps(self) -> tuple[int, int]:
        """Groups of the reductions."""
        first, second = (prod(pattern.reduced[:-1]) for pattern in self.patterns)
        return first, second

    @staticmethod
    def of(s: Schedule, target: Target, parallel_work: int) -> "AttentionTiles | None":
        """The nest of a kernel with two products, of which the second reads what is made of the first."""
        if len(list(_products(s, target))) != 2 or s.program.outputs != 1:
            return None
        inline_all(s, frozenset(roles.broadcast for _, roles, _ in _products(s, target)))
        blocks, found = all_blocks(s.program.body), list(_products(s, target))
        extents = [int(axis.extent.value) if isinstance(axis.extent, Const) else 0 for axis in blocks[-1].axes]
        if len(found) != 2 or len(extents) < 2 or 0 in extents or not _is_chain(blocks):
            return None
        (scores, of_keys, first), (sums, of_values, second) = found
        *outer, rows, width = extents
        keys = int(str(scores.axes[of_keys.vector].extent))
        counts = row_counts(rows, keys)
        if not counts or len(sums.axes[: of_values.vector]) != len(outer) + 1:
            return None
        lanes = REGISTERS * target.lanes(8 * blocks[-1].writes[0].buffer.dtype.itemsize)
        points = prod(extents) * keys
        sizes = (scores.name, sums.name), (first, second), (keys, width), prod(outer), rows
        parallel = points >= parallel_work
        return AttentionTiles(blocks[-1].name, (Knob("rows", counts),), *sizes, lanes, parallel, points=points)

    def product(self, number: int, rows: int) -> TileProduct:
        """The first or the second product of so many rows."""
        pattern = self.patterns[number]
        made = pattern.product({pattern.spatial[-2]: rows, pattern.spatial[-1]: self.columns[number]})
        assert made is not None, "the unit has products of whole tiles"
        return made

    def schedule(self, s: Schedule, values: Mapping[str, int]) -> None:
        """See ``Nest``."""
        result = BlockRef(self.name)
        *outer, rows, _ = (ref(loop) for loop in loops_of(s.program, result))
        rows, _ = s.split(rows, (None, values["rows"]))
        around = [*outer, rows]
        pull_producers(s, result, rows)
        for block in [b for b in all_blocks(s.program.body) if is_reduction(b) and b.name not in self.products]:
            partial_results(s, BlockRef(block.name), self.lanes)
        for block in all_blocks(s.program.body):
            if block.name not in self.products:
                vectorize_columns(s, BlockRef(block.name), [*around, *_inner(s, block, around)[:1]], self.lanes)
        for number, name in enumerate(self.products):
            product = declared_tiles(self.product(number, values["rows"]))
            inner = [loop for loop in loops_of(s.program, BlockRef(name)) if ref(loop) not in around]
            s.tensorize(next(ref(loop) for loop in inner if extent_of(s, ref(loop)) > 1), product)
        for loop in around if self.parallel else ():
            if extent_of(s, loop) > 1:
                s.parallel(loop)


def _inner(s: Schedule, block: Block, around: list[LoopRef]) -> list[LoopRef]:
    """The loops around ``block`` inside of ``around``, of which the first one is that of the rows."""
    own = [ref(loop) for loop in loops_of(s.program, BlockRef(block.name)) if ref(loop) not in around]
    return [loop for loop in own if extent_of(s, loop) > 1]


def _products(s: Schedule, target: Target) -> Iterator[tuple[Block, Contraction, Pattern]]:
    """The products that the unit of ``target`` has."""
    for block in all_blocks(s.program.body):
        roles = analyze(block) if is_reduction(block) else None
        pattern = None if roles is None else pattern_of(block, roles, target)
        if roles is not None and pattern is not None:
            yield block, roles, pattern


def _is_chain(blocks: tuple[Block, ...]) -> bool:
    """Whether each block but the last is read by a later one."""
    pairs = ((block, blocks[place + 1 :]) for place, block in enumerate(blocks[:-1]))
    return all(any(buffers_written(block) & buffers_read(other) for other in later) for block, later in pairs)
