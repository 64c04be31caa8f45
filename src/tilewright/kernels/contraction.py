"""Contractions (sums of products): finds the roles of a block's axes and operands.

A contraction is a reduction block whose value is a product of two operands: matrix products and all convolutions.
Its register tile keeps a box of the output in registers during the whole reduction:

    vector   the output's last axis, which one operand (the *panel*) reads with stride one; the other one broadcasts
    rows     an axis that the panel does not depend on: every panel load serves all rows
    panels   an axis that only the panel depends on, in addition to the vector axis (blocked layouts have it)
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

from tilewright.base.errors import InternalError
from tilewright.loops.ir import Block, Store
from tilewright.loops.program import Dim
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Var, const
from tilewright.symbolic.linear import constant_of, polynomial
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars, substitute, walk
from tilewright.target.machine import GUESSED_EXTENT


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a block's axes, by position; None if no axis has the role."""

    vector: int
    rows: int | None
    panels: int | None = None


@dataclass(frozen=True, slots=True)
class Contraction(Roles):
    """A sum of products."""

    panel: str = ""
    """The buffer of the operand that depends on the vector axis."""
    broadcast: str = ""
    """The buffer of the other operand."""
    panel_is_contiguous: bool = False
    """Whether the vector axis is the last dimension of the panel's buffer."""
    panel_axes: frozenset[int] = frozenset()
    """The spatial axes that the panel depends on."""


def analyze(block: Block) -> Contraction | None:
    """The roles of the axes, or None if ``block`` is not a sum of products with an axis to vectorize."""
    product = _product(block)
    if product is None or not isinstance(block.body, Store):
        return None
    vector = _vector_axis(block, block.body)
    if vector is None:
        return None
    var = block.axes[vector].var
    depends = [_depends_on(side) for side in product]
    if (var in depends[0]) is (var in depends[1]):
        return None
    panel, broadcast = (product[0], product[1]) if var in depends[0] else (product[1], product[0])
    if _slides(block, panel):
        return None
    return Contraction(
        vector,
        _last_spatial(block, lambda v: v not in _depends_on(panel), vector),
        _last_spatial(block, lambda v: v in _depends_on(panel) and v not in _depends_on(broadcast), vector),
        _source(panel),
        _source(broadcast),
        _is_contiguous(panel, var),
        frozenset(
            position
            for position, axis in enumerate(block.axes)
            if axis.kind is IterKind.SPATIAL and axis.var in _depends_on(panel)
        ),
    )


@dataclass(frozen=True, slots=True)
class RowRoles:
    """The roles of the axes of a sum of products of rows, by position."""

    columns: int
    rows: int | None
    """The axis that the factor of the columns does not depend on; None if there is none."""
    reduced: int
    """The axis along which both factors lie side by side."""


def row_roles(block: Block) -> RowRoles | None:
    """The roles of the axes, or None if ``block`` is not a sum of products of rows along one axis."""
    product = _product(block)
    reduced = [p for p, axis in enumerate(block.axes) if axis.kind is IterKind.REDUCE and not _is_unit(axis)]
    if product is None or len(reduced) != 1 or not all(_is_row(side, block.axes[reduced[0]].var) for side in product):
        return None
    own = [_depends_on(side) for side in product]
    found = [_last_spatial(block, lambda v, a=a, b=b: v in a and v not in b) for a, b in (own, own[::-1])]
    several = sorted(axis for axis in found if axis is not None)
    if not several:
        return None
    return RowRoles(several[-1], several[0] if len(several) > 1 else None, reduced[0])


def _is_row(operand: Expr, var: Var) -> bool:
    """Whether ``operand`` is an element of a float buffer whose last dimension ``var`` goes along."""
    if not isinstance(operand, Read) or not operand.dtype.is_float:
        return False
    *others, last = operand.indices
    return last == var and all(var not in free_vars(index) for index in others)


def window(block: Block) -> Roles | None:
    """The roles of the axes of another reduction (a depthwise convolution, a pool): lanes along the last dimension of
    the result, and rows along the last axis before it. None if the result has no such dimensions."""
    if block.init is None or not isinstance(block.body, Store):
        return None
    vector = _vector_axis(block, block.body)
    if vector is None or _is_unit(block.axes[vector]):
        return None
    return Roles(vector, _last_spatial(block, lambda _: True, vector))


def _slides(block: Block, operand: Expr) -> bool:
    """Whether all reduction axes move ``operand`` along the axes of the result, as in a depthwise convolution: then
    neighbours read the same elements, and no element is read for several filters.

    The channels of a group with several filters are not such an axis: a step of the groups is longer than all of it.
    """
    reduced = [axis for axis in block.axes if axis.kind is IterKind.REDUCE and not _is_unit(axis)]
    spatial = {axis.var for axis in block.axes if axis.kind is IterKind.SPATIAL and not _is_unit(axis)}
    indices = [index for node in walk(operand) if isinstance(node, Read) for index in node.indices]
    has_filters = bool(spatial - _depends_on(operand))

    def moves(index: Expr, axis: IterVar) -> bool:
        used = free_vars(index)
        return axis.var in used and bool(used & spatial) and not (has_filters and is_block(index, axis))

    return bool(reduced) and all(any(moves(index, axis) for index in indices) for axis in reduced)


def is_block(index: Expr, axis: IterVar) -> bool:
    """Whether ``index`` goes along ``axis`` step by step, and each step of others leads past all of it."""
    places, steps = polynomial(index), constant_of(polynomial(axis.extent))
    others = [abs(step) for place, step in places.items() if place and place != (axis.var,)]
    return places.get((axis.var,)) == 1 and (not others or (steps is not None and min(others) >= steps))


def _product(block: Block) -> tuple[Expr, Expr] | None:
    """The operands, if the block computes ``out = out + a * b``; the simplifier may have swapped integer terms."""
    if block.init is None or not isinstance(block.body, Store):
        return None
    match block.body.value:
        case Binary(BinaryOp.ADD, Read(), Binary(BinaryOp.MUL, a, b)) | Binary(
            BinaryOp.ADD, Binary(BinaryOp.MUL, a, b), Read()
        ) if _source(a) and _source(b):
            return a, b
        case _:
            return None


def _strip(expr: Expr) -> Expr:
    return _strip(expr.a) if isinstance(expr, Cast) else expr


def _source(operand: Expr) -> str:
    """The name of the only buffer that an operand reads, or nothing."""
    reads = {node.source.name for node in walk(operand) if isinstance(node, Read)}
    return reads.pop() if len(reads) == 1 else ""


def _depends_on(operand: Expr) -> frozenset[Var]:
    return free_vars(operand)


def _vector_axis(block: Block, store: Store) -> int | None:
    last = store.indices[-1] if store.indices else None
    for position, axis in enumerate(block.axes):
        if axis.var == last and axis.kind is IterKind.SPATIAL:
            return position
    return None


def _last_spatial(block: Block, wanted: Callable[[Var], bool], vector: int = -1) -> int | None:
    found: int | None = None
    for position, axis in enumerate(block.axes):
        if position != vector and axis.kind is IterKind.SPATIAL and not _is_unit(axis) and wanted(axis.var):
            found = position
    return found


def _is_unit(axis: IterVar) -> bool:
    return isinstance(axis.extent, Const) and int(axis.extent.value) == 1


def _is_contiguous(panel: Expr, var: Var) -> bool:
    """Whether the axis is the last dimension of the panel, or its position within a packed panel."""
    read = _strip(panel)
    if not isinstance(read, Read):
        return False
    match read.indices[-1]:
        case Var() as last:
            return last == var
        case Binary(BinaryOp.MOD, last, Const()):
            return last == var
        case _:
            return False


@dataclass(frozen=True, slots=True)
class Extents:
    """Estimated extents: those known only at run time count as their bound, or ``GUESSED_EXTENT``."""

    dims: tuple[Dim, ...]

    def __call__(self, axis: IterVar) -> int:
        """The extent of ``axis``."""
        return self.of(axis.extent)

    def points(self, axes: Iterable[IterVar]) -> int:
        """The number of points of ``axes``."""
        return prod(map(self, axes))

    def of(self, extent: Expr) -> int:
        """The estimate of ``extent``."""
        if isinstance(extent, Const):
            return int(extent.value)
        sizes: dict[Var, Expr] = {
            dim.var: const(GUESSED_EXTENT if dim.bound is None else dim.bound) for dim in self.dims
        }
        expected = substitute(extent, sizes)
        return int(expected.value) if isinstance(expected, Const) else GUESSED_EXTENT


@dataclass(frozen=True, slots=True)
class Tile:
    """A register tile: ``lanes`` of the vector axis, ``rows`` and ``panels`` of those axes (1 without the axis)."""

    lanes: int
    rows: int
    panels: int = 1

    def __post_init__(self) -> None:
        if min(self.lanes, self.rows, self.panels) < 1:
            raise InternalError(f"{self} is empty")
