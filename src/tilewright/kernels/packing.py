"""Packed constants: weights laid out at compile time as the kernel will read them.

A packed operand is a te program: the plain tensor is computed from the packed one by an index map (``W[k, n] =
P[n // 32, k, n % 32]``), and inlined by the schedule. So the kernel's meaning is stated and checked as any other.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import Expr, Var, const
from tilewright.tensor.build import compute, placeholder
from tilewright.tensor.ir import Tensor


@dataclass(frozen=True, slots=True)
class Packing:
    """The layout of one constant: where each element of the plain array lies in the packed one."""

    index_map: IndexMap
    name: str
    """A suffix for the name of what is packed."""

    @staticmethod
    def panels(lanes: int) -> "Packing":
        """Columns of a matrix in panels of ``lanes``, each panel row after row: ``[n / lanes, k, lanes]``."""
        k, n = Var("k"), Var("n")
        return Packing(IndexMap((k, n), (n // lanes, k, n % lanes)), f"panels{lanes}")

    def shape(self, plain: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The packed shape, rounded up where the extents do not divide."""
        return self.index_map.shape(plain)

    def unpacked(self, tensor: Tensor) -> Tensor:
        """A te tensor equal to the constant ``tensor``, read from a placeholder of the same name in packed layout."""
        packed = placeholder(self.shape(tensor.shape), tensor.dtype, tensor.name)
        return compute(tensor.shape, lambda *index: packed[self.index_map.apply(index)], name=f"{tensor.name}_plain")

    def apply(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """``array`` in packed layout; what is padded is zero."""
        shape = tuple(int(str(extent)) for extent in self.shape(tuple(const(e) for e in array.shape)))
        result = np.zeros(shape, array.dtype)
        grids = np.ogrid[tuple(slice(0, extent) for extent in array.shape)]
        where = compile_exprs(self.index_map.results, self.index_map.variables)(*grids)
        result[tuple(np.broadcast_arrays(*where))] = array
        return result
