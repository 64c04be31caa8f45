"""Attention of ONNX Runtime: with the projection to queries, keys and values, and without it.

Forms that only its GPU kernels have are refused: packed operands, and buffers that past and present share.
"""

from collections.abc import Mapping, Sequence

from tilewright.frontend.onnx.read.rules.microsoft import heads
from tilewright.frontend.onnx.read.rules.microsoft.definition import Definition, total
from tilewright.frontend.onnx.read.rules.microsoft.products import integer_product
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value
from tilewright.ops.shapes import same_shape, simplified
from tilewright.symbolic.expr import const


def _attention(request: Request) -> Sequence[Value]:
    projected = total(request, request.apply("MatMul", request.input(0), request.input(1)), request.optional(2))
    _refuse_input(request, 6, "past_sequence_length")
    return _of_projected(
        request, projected, mask=request.optional(3), past=request.optional(4), bias=request.optional(5)
    )


def _quantized_attention(request: Request) -> Sequence[Value]:
    """The projection is a product of integers."""
    data, weight, bias, scale, weight_scale = map(request.input, range(5))
    zeros = (request.optional(6), request.optional(7))
    projected = integer_product(request, (data, weight), (scale, weight_scale), zeros, bias)
    return _of_projected(request, projected, mask=request.optional(5), past=request.optional(8), bias=None)


def _of_projected(
    request: Request, projected: Value, *, mask: Value | None, past: Value | None, bias: Value | None
) -> Sequence[Value]:
    """Attention of ``[batch, sequence, queries + keys + values]``, and what is past next time."""
    for name in ("do_rotary", "past_present_share_buffer", "rotary_embedding_dim"):
        if request.integer(name, 0):
            raise request.unsupported(f"{name} is not supported, as ONNX Runtime has it for GPUs only; leave it out")
    whole, count = request.extent(projected, -1), request.integer("num_heads", 0)
    sizes = request.ints("qkv_hidden_sizes") or (whole // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != whole or min(sizes) < 1:
        raise request.invalid(f"queries, keys and values of the sizes {list(sizes)} do not make up {whole}")
    ends = (sizes[0], sizes[0] + sizes[1], whole)
    q, k, v = (
        heads.split(request, heads.part(request, projected, 2, end - size, end), count)
        for size, end in zip(sizes, ends, strict=True)
    )
    if past is not None:
        if not past.shape or past.shape[0] != const(2):
            raise request.invalid(f"the past {past!r} is not [2, batch, heads, sequence, size]")
        old = (request.apply("Squeeze", heads.part(request, past, 0, at, at + 1), axes=(0,)) for at in (0, 1))
        k, v = (heads.appended(request, before, new) for before, new in zip(old, (k, v), strict=True))
    result = _attended(request, q, k, v, mask, bias)
    if request.outputs == 1:
        return [result]
    if not same_shape(k.shape, v.shape):
        raise request.invalid("keys and values of different sizes have no common present; leave it out")
    return [result, request.apply("Concat", *(request.apply("Unsqueeze", x, axes=(0,)) for x in (k, v)), axis=0)]


def _multi_head_attention(request: Request) -> Sequence[Value]:
    query, key, value, bias = request.input(0), request.optional(1), request.optional(2), request.optional(3)
    if key is None or value is None:
        raise request.unsupported("packed queries, keys and values are not supported; optimize the model for CPUs")
    _refuse_input(request, 8, "past_sequence_length")
    _refuse_input(request, 9, "cache_indirection")
    count, is_split = request.integer("num_heads", 0), len(key.shape) == 4
    depth = request.extent(query, -1)
    parts = _bias_parts(request, bias, depth)
    q = heads.split(request, total(request, query, parts[0]), count)
    if is_split:  # these are projected already
        k, v = key, value
    else:
        k, v = (heads.split(request, total(request, x, b), count) for x, b in zip((key, value), parts[1:], strict=True))
    k, v = (heads.appended(request, request.optional(at), new) for at, new in ((6, k), (7, v)))
    result = _attended(request, q, k, v, request.optional(4), request.optional(5))
    return [result, k, v][: request.outputs]


def _bias_parts(request: Request, bias: Value | None, depth: int) -> tuple[Value | None, Value | None, Value | None]:
    """The bias of queries, keys and values."""
    if bias is None:
        return None, None, None
    whole = request.extent(bias, 0)
    if len(bias.shape) != 1 or whole <= 2 * depth:
        raise request.invalid(f"the bias {bias!r} is not one of queries and keys of {depth} each, and of values")
    q, k, v = (heads.part(request, bias, 0, *ends) for ends in ((0, depth), (depth, 2 * depth), (2 * depth, whole)))
    return q, k, v


def _attended(request: Request, q: Value, k: Value, v: Value, mask: Value | None, bias: Value | None) -> Value:
    """``[batch, sequence, hidden size]``."""
    keys = k.shape[2]
    added = [heads.padding(request, mask, q, keys)]
    if request.integer("unidirectional", 0):
        past = simplified(keys - q.shape[2])
        added.append(heads.causal(request, q.shape[2], past, q.dtype))
    if bias is not None:
        if len(bias.shape) != 4:
            raise request.invalid(f"the attention_bias {bias!r} has not four dimensions")
        bias = heads.fitted(request, bias, (*bias.shape[:2], q.shape[2], keys))
    scale = request.number("scale", 0.0)
    return heads.merged(request, heads.attention(request, q, k, v, [*added, bias], scale))


def _refuse_input(request: Request, position: int, name: str) -> None:
    if request.optional(position) is not None:
        raise request.unsupported(f"the input {name} is not supported; optimize the model for CPUs")


_COMMON: Mapping[str, type] = {"num_heads": int, "mask_filter_value": float, "unidirectional": int, "scale": float}
_PROJECTED: Mapping[str, type] = {
    **_COMMON,
    "do_rotary": int,
    "past_present_share_buffer": int,
    "rotary_embedding_dim": int,
}

RULES: Mapping[str, RuleFunction] = {
    "Attention": Definition(_attention, (2, 7), 2, {**_PROJECTED, "qkv_hidden_sizes": tuple}, required=["num_heads"]),
    "MultiHeadAttention": Definition(_multi_head_attention, (1, 10), 3, _COMMON, required=["num_heads"]),
    "QAttention": Definition(_quantized_attention, (5, 9), 2, _PROJECTED, required=["num_heads"]),
}
