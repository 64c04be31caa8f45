"""An alternative in one file: products with matrices of low rank, as ``docs/extending.md`` shows it.

Where the weight is ``a @ b`` with few columns of ``a``, ``x @ weight`` is ``(x @ a) @ b``: two thin products.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np

from tilewright.graph import Array, Node
from tilewright.ops.operator import require
from tilewright.passes.alternatives import OTHER_TERMS, Building, Facts, Way

MATMUL = require("MatMul")


class LowRank:
    """The alternative."""

    name = "low rank"

    def ways(self, node: Node, facts: Facts) -> Iterable[Way]:
        if node.op != MATMUL or node.inputs[1] is None:
            return
        array = facts.constants.get(node.inputs[1])
        if array is None or array.ndim != 2 or not np.isfinite(array).all():
            return
        a, b = factors(array)
        rank = len(b)
        if 0 < rank < min(array.shape) // 2:
            more = a.nbytes + b.nbytes - array.nbytes
            make = partial(two_products, a, b)
            yield Way(f"{self.name} {rank}", make=make, more_bytes=more, errors=OTHER_TERMS)


def two_products(a: Array, b: Array, node: Node, building: Building) -> None:
    x, weight, *_ = node.inputs
    assert weight is not None
    thin = building.add(MATMUL, [x, building.weight(weight, "a", lambda _: a)], node, "thin")
    building.add(MATMUL, [thin, building.weight(weight, "b", lambda _: b)], node)


def factors(array: Array) -> tuple[Array, Array]:
    """``a`` and ``b``, whose product is ``array`` up to rounding."""
    left, sizes, right = np.linalg.svd(array.astype(np.float64), full_matrices=False)
    rank = np.count_nonzero(sizes > 1e-6 * sizes[0])
    return (left * sizes)[:, :rank].astype(array.dtype), right[:rank].astype(array.dtype)


LOW_RANK = LowRank()
