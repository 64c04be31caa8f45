"""Attention with scores in memory, block by block (``ops.block_attention``), or in tiles (``ops.pair_attention``).

Both take the same products. Scores in memory are written and read twice. In blocks, operands are copied, each row of a
block takes some operations of its own, and blocks at the borders may not be full.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import log2, prod

import numpy as np

from tilewright.base.dtypes import bf16, f32
from tilewright.cost.kernels import sum_cycles
from tilewright.graph import Node, Value
from tilewright.kernels.attention_tiles import row_counts
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops.attention import swapped
from tilewright.ops.operator import Attribute, require
from tilewright.ops.shapes import simplified, static
from tilewright.passes.alternatives.api import Building, Errors, Facts, Way
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr, const
from tilewright.target.target import Target

ATTENTION = require("Attention")

_ROWS = 6
"""Queries of a tile in registers: with four vectors of keys it fills 32 registers, with two of them 16."""
_KEYS = 128
"""Keys of a block: with more of them sums are rescaled less often, with fewer they stay in the first cache."""
_WIDEST = 256
"""Elements of a query, and of a value, up to which the tiles of a worker stay in its first cache."""
_GUESSED = 512
"""The length of a sequence known at run time only: blocks lose less for short ones than they gain for long ones."""
_PAIR, _COLUMNS = 2, 16
"""Numbers that are multiplied together, and columns of a tile."""
_RESCALED = Errors(has_own_terms=False)
"""Sums are rescaled on the way, by rounded powers of e."""


class WithScores:
    """The operators one after another."""

    name = "scores in memory"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op == ATTENTION:
            in_pairs = node.outputs[0].name in facts.narrow.weights
            cycles = _Sizes.of(node).cycles_with_scores(facts.target, _PAIR if in_pairs else 1)
            yield Way(self.name, cycles, make=partial(_with_scores, in_pairs))


class InBlocks:
    """One kernel, after one that copies keys into panels."""

    name = "blocks of keys"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op == ATTENTION and _is_possible(node):
            cycles = _Sizes.of(node).cycles_in_blocks(facts.target)
            yield Way(self.name, cycles, make=partial(_in_blocks, facts.target), errors=_RESCALED)


class InTiles:
    """By a matrix unit, in bfloat16: one kernel, after those that pack keys and values in pairs."""

    name = "pairs in tiles"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op == ATTENTION and facts.narrow.is_everywhere and _fits_tiles(node, facts.target):
            yield Way(self.name, _Sizes.of(node).cycles_in_tiles(facts.target), make=_in_tiles)


WITH_SCORES, IN_BLOCKS, IN_TILES = WithScores(), InBlocks(), InTiles()


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of products ``[heads, queries, depth] x [heads, depth, keys] x [heads, keys, width]``."""

    heads: int
    queries: int
    keys: int
    depth: int
    width: int

    @staticmethod
    def of(node: Node) -> "_Sizes":
        """The estimated sizes of a node."""
        q, _, v, *_ = _operands(node)
        heads = prod(map(_size, node.outputs[0].shape[:-2]))
        return _Sizes(heads, *map(_size, (q.shape[-2], v.shape[-2], q.shape[-1], v.shape[-1])))

    def cycles_with_scores(self, target: Target, together: int) -> float:
        """The products, so many at a time, and the scores written, read by a softmax, written and read again."""
        scores = self.heads * self.queries * self.keys * f32.itemsize
        rate = target.machine.near_bytes if scores <= target.l2_bytes else target.machine.far_bytes
        return self._products(self.queries, self.keys, target) / together + 4 * scores / rate

    def cycles_in_blocks(self, target: Target) -> float:
        """The products of whole tiles and blocks, the operations of each row of a block, and copies of the operands."""
        machine, lanes = target.machine, target.lanes(f32.bits)
        queries, blocks = -(-self.queries // _ROWS) * _ROWS, -(-self.keys // _KEYS)
        of_row = machine.operation_cycles * (self.width / lanes + 3 * log2(lanes))
        operands = (self.queries * self.depth + self.keys * (self.depth + self.width)) * self.heads * f32.itemsize
        rate = machine.near_bytes if operands <= target.l2_bytes else machine.far_bytes
        rows = self.heads * queries * blocks * of_row
        return self._products(queries, blocks * _KEYS, target) + rows + 2 * operands / rate

    def cycles_in_tiles(self, target: Target) -> float:
        """The products by the unit, the operations of each row, and copies of the operands in pairs."""
        machine, lanes = target.machine, target.lanes(f32.bits)
        operands = self.keys * (self.depth + self.width) * self.heads * (f32.itemsize + bf16.itemsize)
        of_row = machine.operation_cycles * (self.width / lanes + 3 * log2(lanes))
        copies = operands / machine.near_bytes + 2 * machine.kernel_start
        products = self._products(self.queries, self.keys, target) / (_PAIR * machine.matrix_gain)
        return products + self.heads * self.queries * of_row + copies

    def _products(self, queries: int, keys: int, target: Target) -> float:
        return sum_cycles(self.heads * queries * keys * (self.depth + self.width), 0, target)


def _size(extent: Expr) -> int:
    return int(extent.value) if isinstance(extent, Const) else _GUESSED


def _operands(node: Node) -> tuple[Value, Value, Value, Value | None, Value | None]:
    """Queries, keys, values, the mask, and which rows are empty."""
    q, keys, v, mask, empty = (*node.inputs, None, None)[:5]
    assert q is not None and keys is not None and v is not None, "attention has three operands"
    return q, keys, v, mask, empty


def _is_possible(node: Node) -> bool:
    """Whether all are matrices of f32, those of queries and values not too wide."""
    q, keys, v, mask, _ = _operands(node)
    known = all(isinstance(width, Const) and 0 < int(width.value) <= _WIDEST for width in (q.shape[-1], v.shape[-1]))
    are_matrices = all(value.dtype == f32 and len(value.shape) > 1 for value in (q, keys, v))
    return known and are_matrices and v.shape[-2] != ZERO and (mask is None or mask.dtype == f32)


def _fits_tiles(node: Node, target: Target) -> bool:
    """Whether there are whole tiles: of known sizes, of as many heads of all operands."""
    q, keys, v, *_ = _operands(node)
    shapes = [static(value.shape) for value in (q, keys, v)]
    if tile_unit(target, bf16, bf16) is None or _group(node) != 1 or {x.dtype for x in (q, keys, v)} != {f32}:
        return False
    if any(shape is None or len(shape) < _PAIR or 0 in shape for shape in shapes):
        return False
    (*heads, rows, depth), (*of_keys, _, _), (*of_values, count, width) = (shape for shape in shapes if shape)
    are_whole = depth % _PAIR == 0 == width % _COLUMNS
    return heads == of_keys == of_values and are_whole and bool(row_counts(rows, _padded(count)))


def _padded(keys: int) -> int:
    """The columns of whole tiles."""
    return -(-keys // _COLUMNS) * _COLUMNS


def _in_tiles(node: Node, building: Building) -> None:
    q, keys, v, mask, empty = _operands(node)
    given = dict(node.attributes)
    depth, count, width = (int(str(extent)) for extent in (q.shape[-1], v.shape[-2], v.shape[-1]))
    of_keys = {"rows": depth, "columns": _padded(count), "are_columns": bool(given.get("are_rows"))}
    panels = building.add(require("Pairs"), [keys], node, "keys", of_keys)
    values = building.add(require("Pairs"), [v], node, "values", {"rows": _padded(count), "columns": width})
    attributes: dict[str, Attribute] = {name: given[name] for name in ("scale", "is_guarded") if name in given}
    inputs = [q, panels, values, mask, empty]
    building.add(require("PairAttention"), inputs, node, attributes={**attributes, "count": count})


def _in_blocks(target: Target, node: Node, building: Building) -> None:
    """Queries of a group of heads are rows of one matrix: these heads have the same keys."""
    q, keys, v, mask, empty = _operands(node)
    given, group = dict(node.attributes), _group(node)
    building.narrow[node.outputs[0].name] = frozenset()  # its products are of float32
    lanes = target.lanes(f32.bits)
    columns = lanes * (4 if target.vector_registers >= 4 * (_ROWS + 1) + 1 else 2)
    width = -(-_KEYS // columns) * columns
    sizes: dict[str, Attribute] = {"rows": _ROWS, "lanes": lanes, "columns": columns}
    panels = keys
    if given.get("are_rows") and not isinstance(v.shape[-2], Const):  # a cache of keys is not written again
        sizes |= {"are_rows": True, "width": width}
    else:
        panels = building.add(require("KeyPanels"), [_columns(node, building)], node, "panels", {"width": width})
    attributes = {**{name: given[name] for name in ("scale", "is_guarded") if name in given}, **sizes}
    if group == 1:
        building.add(require("BlockAttention"), [q, panels, v, mask, empty], node, attributes=attributes)
        return
    q, mask, empty = (_as_rows(value, group, node, building) for value in (q, mask, empty))
    made = building.add(
        require("BlockAttention"), [q, panels, v, mask, empty], node, "rows", {**attributes, "group": group}
    )
    building.add(require("Reshape"), [made], node, attributes={"shape": node.outputs[0].shape})


def _group(node: Node) -> int:
    """The heads of queries for each of keys and values."""
    return int(str(dict(node.attributes).get("group", 1)))


def _columns(node: Node, building: Building) -> Value:
    """The keys ``[..., d, n]``."""
    keys = _operands(node)[1]
    if not dict(node.attributes).get("are_rows"):
        return keys
    return building.add(require("Transpose"), [keys], node, "columns", {"perm": swapped(len(keys.shape))})


def _as_rows(value: Value | None, group: int, node: Node, building: Building) -> Value | None:
    """``[..., heads, m, n]`` as ``[..., heads / group, group * m, n]``; what is the same for all heads stays."""
    if value is None or len(value.shape) < 3 or value.shape[-3] == ONE:
        return value
    *outer, heads, rows, columns = value.shape
    shape = (*outer, simplified(heads // group), simplified(rows * group), columns)
    return building.add(require("Reshape"), [value], node, "rows", {"shape": shape})


def _with_scores(in_pairs: bool, node: Node, building: Building) -> None:
    q, keys, v, mask, empty = _operands(node)
    attributes, group = dict(node.attributes), _group(node)
    scale = np.array(attributes.get("scale", 1.0), np.float32)
    keys = _columns(node, building)

    def add(op: str, *inputs: Value, **given: Attribute) -> Value:
        return building.add(require(op), inputs, node, op.lower(), given)

    def grouped(value: Value) -> Value:
        """With a dimension for the heads of a group."""
        if group == 1 or len(value.shape) < 3:
            return value
        *outer, heads, rows, columns = value.shape
        if value in (keys, v) or heads == ONE:
            return add("Unsqueeze", value, axes=(len(value.shape) - 2,))
        return add("Reshape", value, shape=(*outer, simplified(heads // group), const(group), rows, columns))

    columns, rows = grouped(keys), grouped(v)
    scores = add("MatMul", grouped(q), columns)
    if in_pairs:
        building.narrow |= {scores.name: frozenset({columns.name}), node.outputs[0].name: frozenset({rows.name})}
    if scale != 1.0:
        scores = add("Mul", scores, building.constant(f"{scores.name}.scale", scale))
    if mask is not None:
        scores = add("Add", scores, grouped(mask))
    weights = add("Softmax", scores, axis=-1)
    none = building.constant(f"{weights.name}.none", np.array(0, np.float32))
    if attributes.get("is_guarded"):
        weights = add("Where", add("IsNaN", weights), none, weights)
    if empty is not None:
        weights = add("Where", grouped(empty), none, weights)
    if in_pairs:
        building.rounded.add(weights.name)
    if group == 1:
        building.add(require("MatMul"), [weights, rows], node)
        return
    made = add("MatMul", weights, rows)
    building.add(require("Reshape"), [made], node, attributes={"shape": node.outputs[0].shape})
