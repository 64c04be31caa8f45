"""The matrix units of a target, and the tensor intrinsics for products by them: one for each shape of a tile."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from tilewright.base.dtypes import DType
from tilewright.base.errors import BadInput
from tilewright.kernels.tile_descriptions import Terms, TileProduct, TileUnit, named
from tilewright.kernels.x86_tiles import x86_tile_units
from tilewright.schedule.intrinsics import TensorIntrinsic, decl_tensor_intrin
from tilewright.symbolic.expr import ZERO, Expr, cast
from tilewright.target.target import Target
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction


def tile_unit(target: Target, left: DType, right: DType) -> TileUnit | None:
    """The matrix unit of ``target`` for operands of these types, or None."""
    types = left, right
    return next((u for u in x86_tile_units() if (u.left, u.right) == types and target.has(u.feature)), None)


def tile_product(target: Target, left: DType, right: DType, *, rows: int, columns: int, depth: int) -> TensorIntrinsic:
    """The product of ``a [rows, depth]`` and ``b [depth/g, columns, g]`` by the matrix unit of ``target``, where ``g``
    numbers of a type are 32 bits: 2 of bf16, 4 bytes.

    Raises ``BadInput`` if the unit has no such product, and if there is no unit for the types.
    """
    unit = tile_unit(target, left, right)
    if unit is None:
        raise BadInput(f"{target} has no matrix unit for {left} and {right}; `te.dot_products` has what it has")
    sizes = (rows, columns), (depth // unit.group, unit.group)
    product = TileProduct(unit, *sizes, (((0, 1),), ((2, unit.group), (3, 1))), (((2, 1),), ((1, 1),), ((3, 1),)))
    if rows < 2 or depth < unit.group or depth % unit.group or not product.is_valid:
        raise BadInput(
            f"{unit.name} has no product of {rows} x {depth} and {depth} x {columns}: take at least 2 rows, columns in "
            f"multiples of {unit.columns}, and a depth in multiples of {unit.group}"
        )
    return declared_tiles(product)


def known_tile_product(name: str) -> TensorIntrinsic | None:
    """The intrinsic of this name; None if it is no product of tiles."""
    product = named(name, x86_tile_units())
    return None if product is None else declared_tiles(product)


@lru_cache(256)
def declared_tiles(product: TileProduct) -> TensorIntrinsic:
    """The intrinsic for ``product``; if its rows are open, their number is an extent of run time."""
    unit, split = product.unit, len(product.spatial)
    a = te.placeholder(_shape(product, product.left), unit.left, "a")
    b = te.placeholder(_shape(product, product.right), unit.right, "b")
    reduced = [te.reduce_axis((0, extent), name=f"x{split + place}") for place, extent in enumerate(product.reduced)]

    def body(*spatial: Expr) -> Reduction:
        axes = (*spatial, *(axis.var for axis in reduced))

        def at(indices: Sequence[Terms]) -> tuple[Expr, ...]:
            return tuple(sum((axes[axis] * factor for axis, factor in terms), ZERO) for terms in indices)

        return te.sum(cast(a[at(product.left)], unit.wide) * cast(b[at(product.right)], unit.wide), axis=tuple(reduced))

    each = tuple(((axis, 1),) for axis in range(split))
    c, name = te.compute(_shape(product, each), body, name="c"), product.name
    most = {_ROWS: product.spatial[product.rows]} if product.is_open else {}
    made = decl_tensor_intrin(
        c, name, implementations={name: unit.code(product)}, features=(unit.feature,), bounds=most
    )
    return replace(made, dense=frozenset({b.name}))


_ROWS = "rows"


def _shape(product: TileProduct, indices: Sequence[Terms]) -> tuple[int | Expr, ...]:
    """The shape of an operand with these ``indices``; a number of rows that is open has a dimension of its own."""
    own, sizes = ((product.rows, 1),), product.shape_of(indices)
    return tuple(
        te.var(_ROWS) if product.is_open and terms == own else size for terms, size in zip(indices, sizes, strict=True)
    )
