"""The dot-product instructions of a target as tensor intrinsics: sums of a few products of narrow numbers.

Those of an architecture are declared in a file of its own. A target has one for each product, with as many accumulators
as a vector register has words: the first one declared that it has the features for.
"""

from functools import cache, lru_cache

from tilewright.base.dtypes import DType
from tilewright.kernels.arm_dot_products import arm_dot_products
from tilewright.kernels.dot_descriptions import WORD, has_limits, lanes_of, types_of
from tilewright.kernels.tile_products import known_tile_product
from tilewright.kernels.x86_dot_products import x86_dot_products
from tilewright.schedule.intrinsics import IntrinsicSet, TensorIntrinsic
from tilewright.target.target import Target


def dot_products(target: Target) -> IntrinsicSet:
    """The instructions of ``target``: of bytes in i32, of codes of 4 bits in i32, of bf16 in f32."""
    return IntrinsicSet(_chosen(frozenset(target.features), target.lanes(WORD)))


def product_of(target: Target, *types: DType, is_limited: bool = False) -> TensorIntrinsic | None:
    """The instruction of ``target`` for operands and accumulators of these ``types``, or None; the one for ``limited``
    weights, if ``is_limited``."""
    wanted = types, is_limited
    return next((one for one in dot_products(target).intrinsics if _kind(one) == wanted), None)


@cache
def all_dot_products() -> IntrinsicSet:
    """The instructions of all processors, and products of tiles: those that a trace or the text of a program may
    name."""
    return IntrinsicSet((*x86_dot_products(), *arm_dot_products()), (known_tile_product,))


@lru_cache(64)
def _chosen(features: frozenset[str], lanes: int) -> tuple[TensorIntrinsic, ...]:
    """Names of features tell architectures apart."""
    found: dict[tuple[tuple[DType, ...], bool], TensorIntrinsic] = {}
    for one in all_dot_products().intrinsics:
        if lanes_of(one) == lanes and one.update is not None and features.issuperset(one.update.features):
            found.setdefault(_kind(one), one)
    return tuple(found.values())


def _kind(intrinsic: TensorIntrinsic) -> tuple[tuple[DType, ...], bool]:
    return types_of(intrinsic), has_limits(intrinsic.block)
