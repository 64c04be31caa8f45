"""Normalizations of sums, as transformers have them between their layers, and of sums of embeddings."""

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.base.dtypes import i32, i64
from tilewright.frontend.onnx.read.rules import RULES as BY_ONNX
from tilewright.frontend.onnx.read.rules.microsoft.definition import Definition, number, same_shape_as, total
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value
from tilewright.ops.shapes import same_extent
from tilewright.symbolic.expr import ONE

_SMALL = 1e-12
"""The default ``epsilon`` of sums."""


def _skip_layer_normalization(request: Request) -> Sequence[Value]:
    """Of input + skip + bias, which is the last result."""
    whole = _sum(request, 4)
    scale, bias = request.input(2), request.optional(3)
    epsilon = request.number("epsilon", _SMALL)
    result = request.apply("LayerNormalization", whole, scale, bias, axis=-1, epsilon=epsilon)
    if request.outputs < 2:
        return [result]
    _, *statistics = request.apply_many("LayerNormalization", [whole, scale, bias], 3, axis=-1, epsilon=epsilon)
    return [result, *statistics, whole][: request.outputs]


def _skip_simplified_layer_normalization(request: Request) -> Sequence[Value]:
    """Of input + skip + bias, which is the last result, by the root of the mean square."""
    whole = _sum(request, 3)
    epsilon = request.number("epsilon", _SMALL)
    result = request.apply("RMSNormalization", whole, request.input(2), axis=-1, epsilon=epsilon)
    if request.outputs < 2:
        return [result]
    mean, square = (
        request.apply("ReduceMean", value, axes=(-1,)) for value in (whole, request.apply("Mul", whole, whole))
    )
    deviation = request.apply("Sqrt", request.apply("Add", square, number(request, epsilon, whole.dtype)))
    return [result, mean, request.apply("Reciprocal", deviation), whole][: request.outputs]


def _sum(request: Request, position: int) -> Value:
    data, skip = request.input(0), request.input(1)
    added = request.apply("Add", data, skip)
    same_shape_as(request, added, data, "the input and the skip")
    return same_shape_as(request, total(request, added, request.optional(position)), data, "the sum and the bias")


def _simplified_layer_normalization(request: Request) -> Sequence[Value]:
    data, scale = request.input(0), request.input(1)
    epsilon = request.number("epsilon", 1e-5)
    return [request.apply("RMSNormalization", data, scale, axis=request.integer("axis", -1), epsilon=epsilon)]


def _embed_layer_normalization(request: Request) -> Sequence[Value]:
    """Rows of tables of words, positions and segments, added and normalized; the lengths by the mask; the sum."""
    ids, segments, words, positions, segment_table = (request.optional(at) for at in range(5))
    if ids is None or words is None or positions is None or len(ids.shape) != 2:
        raise request.invalid("it needs ids [batch, sequence], and tables of words and positions")
    if (segments is None) != (segment_table is None):
        raise request.invalid("segment ids and the table of segments belong together; give both, or none")
    tables = [words, positions] if segment_table is None else [words, positions, segment_table]
    places = [ids, _positions(request, ids, request.optional(8)), segments]
    rows = [request.apply("Gather", table, at, axis=0) for table, at in zip(tables, places, strict=False)]
    return _embedded(request, rows, request.input(5), request.input(6), _lengths(request, ids))


def _quantized_embed_layer_normalization(request: Request) -> Sequence[Value]:
    """The same of tables, scale and bias in bytes; scales and zero points follow in the order of these."""
    ids, segments = request.input(0), request.optional(1)
    if len(ids.shape) != 2 or (segments is None) != (request.optional(4) is None):
        raise request.invalid("it needs ids [batch, sequence]; segment ids and their table belong together")

    def real(position: int) -> Value:
        scale, zero = request.input(position + 6), request.optional(position + 11)
        return request.apply("DequantizeLinear", request.input(position), scale, zero)

    tables = [real(2), real(3)] if segments is None else [real(2), real(3), real(4)]
    places = [ids, _positions(request, ids, None), segments]
    rows = [request.apply("Gather", table, at, axis=0) for table, at in zip(tables, places, strict=False)]
    return _embedded(request, rows, real(5), real(6), _lengths(request, ids))


def _embedded(request: Request, rows: Sequence[Value], scale: Value, bias: Value, lengths: Value) -> Sequence[Value]:
    """The normalized sum of the rows, the lengths, and the sum."""
    whole = total(request, *rows)
    epsilon = request.number("epsilon", _SMALL)
    result = request.apply("LayerNormalization", whole, scale, bias, axis=-1, epsilon=epsilon)
    return [result, lengths, whole][: request.outputs]


def _positions(request: Request, ids: Value, given: Value | None) -> Value:
    """``[sequence]``, or as they are given: ``[batch or 1, sequence]``."""
    if given is None:
        first, step = (number(request, start, i64) for start in (0, 1))
        return request.apply("Range", first, step, count=ids.shape[1])
    fits = len(given.shape) == 2 and same_extent(given.shape[1], ids.shape[1])
    if not fits or not (given.shape[0] == ONE or same_extent(given.shape[0], ids.shape[0])):
        raise request.invalid(f"the position ids {given!r} do not fit the ids {ids!r}")
    return given


def _lengths(request: Request, ids: Value) -> Value:
    """The number of ones in each row of the mask; 0 without one."""
    mask = request.optional(7)
    if mask is None:
        return request.apply("Expand", request.constant(np.array(0, np.int32)), shape=(ids.shape[0],))
    same_shape_as(request, mask, ids, "the mask and the ids")
    ones = request.apply("Cast", request.apply("Equal", mask, number(request, 1, mask.dtype)), to=i32)
    return request.apply("ReduceSum", ones, axes=(1,), keepdims=False)


_EPSILON: Mapping[str, type] = {"epsilon": float}

RULES: Mapping[str, RuleFunction] = {
    "EmbedLayerNormalization": Definition(_embed_layer_normalization, (7, 9), 3, {**_EPSILON, "mask_index_type": int}),
    "QEmbedLayerNormalization": Definition(
        _quantized_embed_layer_normalization, (13, 18), 2, {**_EPSILON, "mask_index_type": int}
    ),
    "SkipLayerNormalization": Definition(_skip_layer_normalization, (3, 5), 4, _EPSILON),
    "SkipSimplifiedLayerNormalization": Definition(_skip_simplified_layer_normalization, (3, 4), 4, _EPSILON),
}

OF_ONNX: Mapping[str, RuleFunction] = {
    "LayerNormalization": Definition(
        BY_ONNX["LayerNormalization"], (2, 3), 3, {**_EPSILON, "axis": int, "stash_type": int}
    ),
    "SimplifiedLayerNormalization": Definition(
        _simplified_layer_normalization, (2, 2), 1, {**_EPSILON, "axis": int, "stash_type": int}
    ),
}
"""What ONNX Runtime adds to ONNX's own domain; also where that has it from a later opset on."""
