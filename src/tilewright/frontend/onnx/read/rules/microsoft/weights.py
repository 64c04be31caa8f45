"""ONNX Runtime's operators on weights of few bits, of the domain ``com.microsoft``.

ONNX has no definition of these: inputs and attributes are checked here.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import f16, f32, u8
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Array, Value
from tilewright.ops.shapes import normalize_axis, same_extent

Codes: TypeAlias = NDArray[np.uint8]

_HALVES, _BYTES = 2, 4
"""The first ``accuracy_level`` that permits numbers of 16 bits, and of 8 bits."""


def _integer(request: Request, name: str, default: int | None = None) -> int:
    """An integer attribute, which is required without a ``default``. Raises ``InvalidModel``."""
    value = request.attributes.get(name, default)
    if not isinstance(value, int):
        raise request.invalid(f"the attribute {name} is {'missing' if value is None else 'no integer'}")
    return value


def _check_attributes(request: Request, known: Sequence[str]) -> None:
    for name in request.attributes:
        if name not in known:
            raise request.unsupported(f"attribute {name} is not supported (there is: {', '.join(known)})")


def _unpacked(packed: Array, bits: int) -> Codes:
    """Codes of ``bits`` in bytes, the first one lowest, along the last axis."""
    bytes_, mask = packed.view(np.uint8), np.uint8((1 << bits) - 1)
    parts = [bytes_ >> np.uint8(start) & mask for start in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*packed.shape[:-1], -1)


def _rows(request: Request, position: int, what: str, *shape: int) -> Array | None:
    """A constant optional input with as many elements as ``shape``, in that shape. Raises ``InvalidModel``."""
    array = request.array(position)
    if array is not None and array.size != np.prod(shape, dtype=object):
        raise request.invalid(f"{what} have the shape {list(array.shape)}, and {list(shape)} is needed")
    return None if array is None else array.reshape(shape)


def _required(request: Request, array: Array | None, what: str) -> Array:
    if array is None:
        raise request.invalid(f"{what} are missing")
    return array


def _matmul_n_bits(request: Request) -> Sequence[Value]:
    """``A`` times a weight ``[N, K]`` in blocks of columns, with scales, zero points and a bias."""
    _check_attributes(request, ("K", "N", "bits", "block_size", "accuracy_level", "weight_prepacked"))
    if _integer(request, "weight_prepacked", 0):
        raise request.unsupported(
            "weights in the layout of another processor are not supported; export them as they are"
        )
    a, bits, size = request.input(0), _integer(request, "bits", 4), _integer(request, "block_size")
    depth, columns = _integer(request, "K"), _integer(request, "N")
    if bits not in (2, 4, 8):
        raise request.unsupported(f"weights of {bits} bits are not supported; there are 2, 4 and 8")
    if min(depth, columns) < 1 or size < 16 or size & (size - 1):
        raise request.invalid(f"K={depth}, N={columns}, block_size={size}: blocks are powers of two from 16 on")
    if a.dtype not in (f32, f16) or not a.shape:
        raise request.unsupported(f"a product of {a!r} is not supported; cast it to float")
    blocks = -(-depth // size)
    packed = _required(request, _rows(request, 1, "the weights", columns, blocks, size * bits // 8), "the weights")
    if packed.dtype != np.uint8:
        raise request.unsupported(f"weights in {packed.dtype} are not supported; there is uint8")
    codes = _unpacked(packed, bits).reshape(columns, blocks * size)[:, :depth]
    scale = _required(request, _rows(request, 2, "the scales", columns, blocks), "the scales").astype(np.float32)
    zero = _zero_points(request, bits, columns, blocks)
    given = request.apply("Cast", a, to=f32)
    order = _order(request, depth, size)
    if order is not None:
        codes, given = codes[:, order], request.apply("Gather", given, request.constant(order), axis=-1)
    arrays: tuple[Array, ...] = (np.ascontiguousarray(codes), scale, zero)
    weight = map(request.constant, arrays)
    level = _integer(request, "accuracy_level", 0)
    digits = 1 if level >= _BYTES else 2 if level >= _HALVES else 3
    product = request.apply("WeightProduct", given, *weight, transposed=True, block_size=size, digits=digits)
    bias = request.optional(5)
    if bias is not None:
        product = request.apply("Add", product, request.apply("Cast", bias, to=f32))
    return [request.apply("Cast", product, to=a.dtype)]


def _zero_points(request: Request, bits: int, columns: int, blocks: int) -> Array:
    """For each column and block: packed in rows of bytes, or floats; by default the middle."""
    given = request.array(3)
    if given is None:
        return np.full((columns, blocks), 1 << (bits - 1), np.uint8)
    if given.dtype != np.uint8:
        floats = _required(request, _rows(request, 3, "the zero points", columns, blocks), "the zero points")
        return floats.astype(np.float32)
    packed = _rows(request, 3, "the zero points", columns, -(-blocks * bits // 8))
    return _unpacked(_required(request, packed, "the zero points"), bits)[:, :blocks]


def _order(request: Request, depth: int, size: int) -> NDArray[np.int64] | None:
    """The order of rows in which blocks are contiguous, if ``g_idx`` gives each row a block; None: as they are."""
    groups = request.integers(4)
    if groups is None:
        return None
    of_rows = np.array(groups[:depth], np.int64)
    expected = np.arange(depth) // size
    if len(of_rows) < depth:
        raise request.invalid(f"g_idx has {len(of_rows)} elements, and there are {depth} rows")
    order = np.argsort(of_rows, kind="stable")
    if np.array_equal(of_rows, expected):
        return None
    if not np.array_equal(of_rows[order], expected):
        raise request.unsupported(f"g_idx has blocks of other sizes than {size}; order the rows, and leave it out")
    return order


def _gather_block_quantized(request: Request) -> Sequence[Value]:
    """Rows of a table in blocks, by indices. Two codes may share a byte, along the last axis."""
    _check_attributes(request, ("gather_axis", "quantize_axis", "block_size", "bits"))
    data, indices, scales, zero = request.input(0), request.input(1), request.input(2), request.optional(3)
    rank, bits = len(data.shape), _integer(request, "bits", 4)
    gather, quantize = (
        normalize_axis(_integer(request, name, default), rank)
        for name, default in (("gather_axis", 0), ("quantize_axis", 1))
    )
    size = _integer(request, "block_size", 128)
    if gather == quantize or size < 16 or size & (size - 1):
        raise request.invalid(
            f"gather_axis {gather}, quantize_axis {quantize}, blocks of {size}: axes differ, and blocks "
            "are powers of two from 16 on"
        )
    if bits not in (4, 8):
        raise request.unsupported(f"tables of {bits} bits are not supported; there are 4 and 8")
    if len(scales.shape) != rank or not same_extent(scales.shape[gather], data.shape[gather]):
        raise request.unsupported(f"the scales {scales!r} are not those of each row of {data!r}; repeat them")
    is_packed = bits == 4 and data.dtype == u8 and request.importer.narrow(data) is None
    if is_packed and (gather == rank - 1 or quantize != rank - 1):
        raise request.unsupported("two codes in a byte must be along the last axis, which is that of the blocks")
    axis = quantize if quantize < gather else quantize + len(indices.shape) - 1
    rows, scale = (request.apply("Gather", value, indices, axis=gather) for value in (data, scales))
    zeros = None if zero is None else request.apply("Gather", zero, indices, axis=gather)
    if is_packed:
        rows, blocks = request.apply("UnpackCodes", rows), request.extent(scale, -1)
        if zeros is not None:  # the last byte of a row may have one too many
            whole = request.apply("UnpackCodes", zeros)
            zeros = request.apply("Slice", whole, starts=(0,), ends=(blocks,), axes=(len(whole.shape) - 1,))
    if zeros is None and data.dtype == u8 and request.importer.narrow(data) is None:
        zeros = request.apply("Expand", request.constant(np.array(1 << (bits - 1), np.uint8)), shape=scale.shape)
    return [request.apply("DequantizeLinear", rows, scale, zeros, axis=axis, block_size=size)]


RULES: Mapping[str, RuleFunction] = {
    "GatherBlockQuantized": _gather_block_quantized,
    "MatMulNBits": _matmul_n_bits,
}
