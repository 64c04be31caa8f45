"""``skip_zeros``: leaves out the terms of a sum in which a factor that is known without any input is zero.

``C[i] += A[k] * M[k, i]``, with the numbers of a matrix ``M`` written into the program, becomes ``if M[k, i] != 0:
C[i] += A[k] * M[k, i]``. Once the loops over ``M`` are unrolled, conditions are decided when code is made, and what is
multiplied by zero is never read. (Zheng et al., OSDI 2020: sums over constant tensors, as in Winograd's convolutions.)
"""

import dataclasses
from collections.abc import Iterator
from functools import reduce
from operator import mul

from tilewright.loops.ir import Store
from tilewright.loops.program import Program
from tilewright.schedule.tree import BlockRef, block_at, refuse, rewrite
from tilewright.symbolic.expr import Binary, Expr, Read, const, equal, not_equal, select
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import all_of, free_vars


def skip_zeros(program: Program, block: BlockRef) -> tuple[Program, None]:
    """Add up only those terms of ``block``'s sum whose constant factors are not zero; nothing is multiplied by one.

    Products with zero count as zero, also those of an infinite number or NaN; a result of -0 may be 0. Refuses if the
    block is no plain sum of products, or if no factor depends on its axes alone.
    """
    place = block_at(program, block)
    store = place.stmt.body
    if place.stmt.init is None or not isinstance(store, Store):
        raise refuse(f"`{block}` is no sum", block)
    old = Read(store.buffer, store.indices)
    if not (isinstance(store.value, Binary) and store.value.op is BinaryOp.ADD and store.value.a == old):
        raise refuse(f"`{block}` adds nothing to what it has, or only where a condition holds", block)
    parts = [*factors(store.value.b)]
    known = [part for part in parts if free_vars(part) and not part.has_reads]
    others = [part for part in parts if part not in known]
    if not known or not others:
        raise refuse(
            f"no factor of the terms of `{block}` depends on its axes alone; inline the constants first", block
        )
    term = reduce(mul, others)
    for factor in known:
        term = select(equal(factor, const(1, factor.dtype)), term, term * factor)
    condition = all_of(*(not_equal(factor, const(0, factor.dtype)) for factor in known))
    body = dataclasses.replace(store, value=select(condition, old + term, old))
    return rewrite(program, place, dataclasses.replace(place.stmt, body=body)), None


def factors(expr: Expr) -> Iterator[Expr]:
    """What ``expr`` is the product of, from left to right; itself if it is none."""
    if isinstance(expr, Binary) and expr.op is BinaryOp.MUL:
        yield from factors(expr.a)
        yield from factors(expr.b)
    else:
        yield expr
