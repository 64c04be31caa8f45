"""Attention of several heads, written so that it is recognized as one operator (``passes.attention``).

Queries, keys and values are ``[batch, heads, sequence, size]``. What masks add to scores broadcasts to ``[batch, heads,
queries, keys]``.
"""

import math
from collections.abc import Iterable

from tilewright.base.dtypes import DType, i64
from tilewright.frontend.onnx.read.rules.microsoft.definition import number, total
from tilewright.frontend.onnx.read.rules.rule import Request
from tilewright.graph import Value
from tilewright.ops.shapes import Shape, element_count, same_extent, show, simplified
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr


def split(request: Request, value: Value, heads: int) -> Value:
    """``[batch, sequence, heads * size]`` by heads. Raises ``InvalidModel``."""
    if len(value.shape) != 3:
        raise request.invalid(f"{value!r} is not [batch, sequence, hidden size]")
    hidden = request.extent(value, 2)
    if heads < 1 or hidden % heads:
        raise request.invalid(f"{heads} heads do not divide the hidden size {hidden} of {value!r}")
    shape = (*value.shape[:2], heads, hidden // heads)
    return request.apply("Transpose", request.apply("Reshape", value, shape=shape, allow_zero=True), perm=(0, 2, 1, 3))


def merged(request: Request, value: Value) -> Value:
    """``[batch, sequence, heads * size]``."""
    batch, heads, length, size = value.shape
    moved = request.apply("Transpose", value, perm=(0, 2, 1, 3))
    return request.apply("Reshape", moved, shape=(batch, length, element_count((heads, size))), allow_zero=True)


def part(request: Request, value: Value, axis: int, begin: int, end: int) -> Value:
    """The elements from ``begin`` to ``end`` along ``axis``."""
    return request.apply("Slice", value, starts=(begin,), ends=(end,), axes=(axis,))


def appended(request: Request, past: Value | None, new: Value) -> Value:
    """Keys or values after those of the ``past``, if there is one. Raises ``InvalidModel``."""
    if past is None:
        return new
    places = (0, 1, 3)
    if len(past.shape) != 4 or not all(same_extent(past.shape[p], new.shape[p]) for p in places):
        raise request.invalid(f"the past {past!r} does not fit {new!r}")
    return request.apply("Concat", past, new, axis=2)


def attention(
    request: Request, q: Value, k: Value, v: Value, added: Iterable[Value | None], scale: float, cap: float = 0.0
) -> Value:
    """``softmax(scale * q k + added) v``; ``scale`` is the root of 1 / size if it is 0.

    ``cap``: scores are first bounded smoothly to that magnitude, if it is not 0.
    """
    keys = request.apply("Transpose", k, perm=(*range(len(k.shape) - 2), len(k.shape) - 1, len(k.shape) - 2))
    factor = scale or 1 / math.sqrt(request.extent(q, -1))
    scores = request.apply("Mul", request.apply("MatMul", q, keys), number(request, factor, q.dtype))
    if cap:
        bound = number(request, cap, q.dtype)
        scores = request.apply("Mul", request.apply("Tanh", request.apply("Div", scores, bound)), bound)
    masks = [mask for mask in added if mask is not None]
    if masks:  # all in one, as attention is recognized with one
        scores = request.apply("Add", scores, total(request, *masks))
    return request.apply("MatMul", request.apply("Softmax", scores, axis=-1), v)


def positions(request: Request, count: Expr, first: Expr = ZERO) -> Value:
    """``count`` numbers from ``first`` on."""
    start = request.importer.symbolic_value((first,), (), i64, request.place)
    return request.apply("Range", start, number(request, 1, i64), count=count)


def causal(request: Request, queries: Expr, past: Expr, dtype: DType) -> Value | None:
    """What hides keys after each of the ``queries``, which follow ``past`` others; None if there are none."""
    if queries == ONE:
        return None
    rows = request.apply("Unsqueeze", positions(request, queries, past), axes=(1,))
    columns = positions(request, simplified(past + queries))
    hidden = request.apply("Greater", columns, rows)
    return request.apply("Where", hidden, number(request, -math.inf, dtype), number(request, 0, dtype))


def padding(request: Request, mask: Value | None, q: Value, keys: Expr) -> Value | None:
    """What a mask of ONNX Runtime adds: ``mask_filter_value`` where keys are not to be seen.

    The mask is ``[batch, keys]`` or ``[batch, queries, keys]``, positive where they are; ``[batch]``, the number of
    keys to see; or ``[2 * batch]``, ends and then begins. Raises ``InvalidModel``, ``UnsupportedModel``.
    """
    if mask is None:
        return None
    seen = _seen(request, mask, q, keys)
    hidden = number(request, request.number("mask_filter_value", -10000.0), q.dtype)
    return request.apply("Where", seen, number(request, 0, q.dtype), hidden)


def fitted(request: Request, value: Value, shape: Shape) -> Value:
    """``value``, which has this ``shape``: what is known only at run time is checked there.

    Raises ``InvalidModel`` if it has another shape.
    """
    for axis, (own, wanted) in enumerate(zip(value.shape, shape, strict=True)):
        if same_extent(own, wanted):
            continue
        if isinstance(own, Const) and isinstance(wanted, Const):
            raise request.invalid(f"{value!r} should have the shape {show(shape)}")
        for difference in (own - wanted, wanted - own):
            request.importer.symbolic.require(simplified(difference))
        value = request.apply("Gather", value, positions(request, wanted), axis=axis)
    return value


def _seen(request: Request, mask: Value, q: Value, keys: Expr) -> Value:
    batch, queries = q.shape[0], q.shape[2]
    if len(mask.shape) in (2, 3):
        wanted = (batch, keys) if len(mask.shape) == 2 else (batch, queries, keys)
        mask = fitted(request, mask, wanted)
        positive = request.apply("Greater", mask, number(request, 0, mask.dtype))
        return request.apply("Unsqueeze", positive, axes=(1, 2) if len(mask.shape) == 2 else (1,))
    if len(mask.shape) != 1:
        raise request.unsupported(f"a mask with {len(mask.shape)} dimensions is not supported; there is 1, 2 and 3")
    places, column = positions(request, keys), (1, 2, 3)
    if same_extent(mask.shape[0], batch):
        return request.apply("Less", places, _long(request, request.apply("Unsqueeze", mask, axes=column)))
    if not same_extent(mask.shape[0], simplified(batch * 2)):
        raise request.unsupported(
            f"the mask {mask!r} is not of [batch], [2 * batch], or [batch, keys]; give the latter"
        )
    both = request.apply("Reshape", mask, shape=(2, batch, 1, 1, 1), allow_zero=True)
    ends, begins = (
        _long(request, request.apply("Squeeze", part(request, both, 0, at, at + 1), axes=(0,))) for at in (0, 1)
    )
    return request.apply("And", request.apply("Less", places, ends), request.apply("GreaterOrEqual", places, begins))


def _long(request: Request, value: Value) -> Value:
    return request.apply("Cast", value, to=i64)
