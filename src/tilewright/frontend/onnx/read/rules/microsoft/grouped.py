"""Rotary embeddings, and attention in which groups of heads share keys and values."""

import math
from collections.abc import Mapping, Sequence

from tilewright.base.dtypes import i64
from tilewright.frontend.onnx.read.rules.microsoft import heads
from tilewright.frontend.onnx.read.rules.microsoft.definition import Definition, number
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value
from tilewright.ops.shapes import same_extent, same_shape, simplified
from tilewright.symbolic.expr import ONE, Expr, as_expr, const, maximum


def _rotary_embedding(request: Request) -> Sequence[Value]:
    data, places, cosines, sines = map(request.input, range(4))
    if request.integer("is_packed_batching", 0) or request.number("scale", 1.0) != 1.0:
        raise request.unsupported("is_packed_batching and scale are not supported; leave them out")
    is_split = len(data.shape) == 4
    x = data if is_split else heads.split(request, data, _head_count(request, data, cosines))
    if same_shape(places.shape, (ONE,)):
        places = request.apply("Add", heads.positions(request, x.shape[2]), request.apply("Cast", places, to=i64))
    turned = _rotated(request, x, places, (cosines, sines), interleaved=bool(request.integer("interleaved", 0)))
    return [turned if is_split else heads.merged(request, turned)]


def _head_count(request: Request, data: Value, cosines: Value) -> int:
    given = request.integer("num_heads", 0)
    if request.integer("rotary_embedding_dim", 0):
        return given
    return request.extent(data, -1) // max(2 * request.extent(cosines, -1), 1)


def _rotated(request: Request, x: Value, places: Value, tables: tuple[Value, Value], *, interleaved: bool) -> Value:
    """``x [batch, heads, sequence, size]`` with pairs of its first elements turned, as many as ``tables`` has columns.

    A pair is an element and the one a half further, or a neighbour if they are ``interleaved``. ``places``: the rows of
    the tables, ``[sequence]`` or ``[batch, sequence]``.
    """
    half, size = request.extent(tables[0], -1), request.extent(x, -1)
    if any(len(table.shape) != 2 or request.extent(table, -1) != half for table in tables) or not 2 * half <= size:
        raise request.invalid(f"tables {tables[0]!r} and {tables[1]!r} do not fit heads of {size}")
    cosine, sine = (_of_heads(request, request.apply("Gather", table, places, axis=0)) for table in tables)
    turned = heads.part(request, x, 3, 0, 2 * half)
    if interleaved:
        pairs = request.apply("Reshape", turned, shape=(*x.shape[:3], half, 2), allow_zero=True)
        first, second = (
            request.apply("Squeeze", heads.part(request, pairs, 4, at, at + 1), axes=(4,)) for at in (0, 1)
        )
    else:
        first, second = (heads.part(request, turned, 3, at, at + half) for at in (0, half))
    both = (
        request.apply("Sub", request.apply("Mul", first, cosine), request.apply("Mul", second, sine)),
        request.apply("Add", request.apply("Mul", first, sine), request.apply("Mul", second, cosine)),
    )
    if interleaved:
        joined = request.apply("Concat", *(request.apply("Unsqueeze", one, axes=(4,)) for one in both), axis=4)
        parts = [request.apply("Reshape", joined, shape=turned.shape, allow_zero=True)]
    else:
        parts = [*both]
    rest = [heads.part(request, x, 3, 2 * half, size)] if 2 * half < size else []
    return request.apply("Concat", *parts, *rest, axis=3) if len(parts) + len(rest) > 1 else parts[0]


def _of_heads(request: Request, rows: Value) -> Value:
    """Rows of a table, the same for all heads."""
    return request.apply("Unsqueeze", rows, axes=(len(rows.shape) - 2,))


def _group_query_attention(request: Request) -> Sequence[Value]:
    """Queries follow what is past: in batch element ``b`` there are ``seqlens_k[b] + 1`` keys with the new ones.

    Keys and values that are beyond these in the present are those of the past there, or 0.
    """
    _check(request)
    count, groups = request.integer("num_heads", 0), request.integer("kv_num_heads", 0)
    q, k, v = _operands(request, count, groups)
    batch, length = q.shape[0], q.shape[2]
    past, past_values, lengths = request.optional(3), request.optional(4), request.input(5)
    whole = _whole(request)
    if len(lengths.shape) == 2:
        lengths = request.apply("Reshape", lengths, shape=(batch,))
    begins = _begins(request, lengths, length, whole)
    if request.integer("do_rotary", 0):
        places = request.optional(9)
        if places is None:
            places = request.apply(
                "Add", request.apply("Unsqueeze", begins, axes=(1,)), heads.positions(request, length)
            )
        tables, interleaved = (request.input(7), request.input(8)), bool(request.integer("rotary_interleaved", 0))
        q, k = (_rotated(request, x, places, tables, interleaved=interleaved) for x in (q, k))
    before = const(0) if past is None else past.shape[2]
    room = simplified(maximum(before, whole))
    k, v = (_stored(request, old, new, begins, room) for old, new in ((past, k), (past_values, v)))
    shape = (batch, groups, count // groups, length, q.shape[3])
    grouped = request.apply("Reshape", q, shape=shape, allow_zero=True)
    keys, values = (request.apply("Unsqueeze", x, axes=(2,)) for x in (k, v))
    added = [_hidden(request, begins, length, room, q), _grouped_bias(request, groups, count, length, room)]
    scale, cap = request.number("scale", 0.0), request.number("softcap", 0.0)
    result = heads.attention(request, grouped, keys, values, added, scale, cap)
    result = request.apply("Reshape", result, shape=(batch, count, length, result.shape[-1]), allow_zero=True)
    return [heads.merged(request, result), k, v][: request.outputs]


def _check(request: Request) -> None:
    count, groups = request.integer("num_heads", 0), request.integer("kv_num_heads", 0)
    if groups < 1 or count % groups:
        raise request.invalid(f"{count} heads can't be divided into {groups} groups")
    if request.integer("smooth_softmax", 0) > 0 or any(request.optional(at) is not None for at in range(11, 14)):
        raise request.unsupported("smooth_softmax, head_sink and quantized caches are not supported; leave them out")
    if request.integer("qk_output", 0) or (request.optional(3) is None) != (request.optional(4) is None):
        raise request.unsupported("qk_output is not supported, and past keys and values belong together")


def _operands(request: Request, count: int, groups: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values by heads; in one input, if there is only one."""
    query, key, value = request.input(0), request.optional(1), request.optional(2)
    if key is None or value is None:
        size = request.extent(query, -1) // (count + 2 * groups)
        ends = (count * size, (count + groups) * size, (count + 2 * groups) * size)
        query, key, value = (
            heads.part(request, query, 2, begin, end) for begin, end in zip((0, *ends), ends, strict=False)
        )
    q, k, v = (heads.split(request, x, n) for x, n in ((query, count), (key, groups), (value, groups)))
    return q, k, v


def _whole(request: Request) -> Expr:
    """The number of keys with the new ones, which must follow from the shapes of inputs."""
    numbers = request.extents(6)
    if numbers is None or len(numbers) != 1:
        raise request.invalid("total_sequence_length is not one number")
    return as_expr(numbers[0])


def _begins(request: Request, lengths: Value, length: Expr, whole: Expr) -> Value:
    """The position of the first query of each batch element: 0 if nothing is past."""
    if same_extent(length, whole):
        return request.apply("Mul", request.apply("Cast", lengths, to=i64), number(request, 0, i64))
    after = request.apply("Add", request.apply("Cast", lengths, to=i64), number(request, 1, i64))
    new, total = (request.importer.symbolic_value((extent,), (), i64, request.place) for extent in (length, whole))
    is_first = request.apply("Equal", new, total)
    return request.apply("Where", is_first, number(request, 0, i64), request.apply("Sub", after, new))


def _stored(request: Request, old: Value | None, new: Value, begins: Value, room: Expr) -> Value:
    """Keys or values of ``room`` places: the ``old`` ones, with the ``new`` ones from ``begins`` on."""
    batch, groups, length, size = new.shape
    before = const(0) if old is None else old.shape[2]
    if old is None and same_extent(room, length):
        return new
    missing = simplified(room - before)
    if old is None:
        kept = request.apply("Expand", number(request, 0, new.dtype), shape=(batch, groups, room, size))
    elif missing == const(0):
        kept = old
    else:
        empty = request.apply("Expand", number(request, 0, new.dtype), shape=(batch, groups, missing, size))
        kept = heads.appended(request, old, empty)
    return request.apply("TensorScatter", kept, new, begins, axis=2)


def _hidden(request: Request, begins: Value, length: Expr, room: Expr, q: Value) -> Value:
    """What hides keys after each query, and those before its window: ``[batch, 1, 1, length, room]``."""
    column = request.apply("Unsqueeze", begins, axes=(1, 2, 3, 4))
    rows = request.apply("Unsqueeze", heads.positions(request, length), axes=(1,))
    queries, keys = request.apply("Add", column, rows), heads.positions(request, room)
    hidden = request.apply("Greater", keys, queries)
    window = request.integer("local_window_size", -1)
    if window > 0:
        distance = request.apply("Sub", queries, keys)
        far = request.apply("GreaterOrEqual", distance, number(request, window, i64))
        hidden = request.apply("Or", hidden, far)
    return request.apply("Where", hidden, number(request, -math.inf, q.dtype), number(request, 0, q.dtype))


def _grouped_bias(request: Request, groups: int, count: int, length: Expr, room: Expr) -> Value | None:
    """``[batch or 1, heads or 1, length, room]`` by groups."""
    bias = request.optional(10)
    if bias is None:
        return None
    if len(bias.shape) != 4:
        raise request.invalid(f"the attention_bias {bias!r} has not four dimensions")
    bias = heads.fitted(request, bias, (*bias.shape[:2], length, room))
    if bias.shape[1] == ONE:
        return request.apply("Unsqueeze", bias, axes=(2,))
    shape = (bias.shape[0], groups, count // groups, length, room)
    return request.apply("Reshape", bias, shape=shape, allow_zero=True)


_GROUPED: Mapping[str, type] = {
    "do_rotary": int,
    "kv_num_heads": int,
    "local_window_size": int,
    "num_heads": int,
    "qk_output": int,
    "rotary_interleaved": int,
    "scale": float,
    "smooth_softmax": int,
    "softcap": float,
}
_ROTARY: Mapping[str, type] = {
    "interleaved": int,
    "is_packed_batching": int,
    "num_heads": int,
    "rotary_embedding_dim": int,
    "scale": float,
}

RULES: Mapping[str, RuleFunction] = {
    "GroupQueryAttention": Definition(
        _group_query_attention, (7, 14), 3, _GROUPED, required=["num_heads", "kv_num_heads"]
    ),
    "RotaryEmbedding": Definition(_rotary_embedding, (4, 4), 1, _ROTARY),
}
