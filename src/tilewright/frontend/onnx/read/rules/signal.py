"""ONNX's signal processing: Fourier transforms as matrix products, and windows and filter banks as constants.

A transform of ``n`` points by a matrix takes ``n ** 2`` steps, but full vectors: for the lengths of speech models (a
few hundred) that is affordable. Sums of ``n`` terms accumulate more rounding than a fast transform, so they are
computed in f64.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import DType, f32, f64, i64
from tilewright.frontend.onnx.read.protos import dtype_of
from tilewright.frontend.onnx.read.rules.rule import Request, Rule, RuleFunction, same
from tilewright.graph import Value
from tilewright.ops.shapes import normalize_axis
from tilewright.symbolic.expr import as_expr

MAX_MATRIX = 1 << 24
"""Maximum elements of a constant computed here: the matrix of a transform (2048 complex points), a filter bank, a
window."""

_Matrix = NDArray[np.float64]


# Fourier transforms


def _dft(request: Request) -> Sequence[Value]:
    x = request.input(0)
    rank = len(x.shape)
    axis = request.integer("axis", 1) if request.opset < 20 else _scalar(request, 2, -2)
    if rank < 2 or not -rank <= axis < rank or axis % rank == rank - 1:
        raise request.invalid(f"axis {axis} is out of range for {x!r}, whose last dimension holds complex numbers")
    at = normalize_axis(axis, rank)
    parts, count = request.extent(x, rank - 1), request.extent(x, at)
    inverse, onesided = bool(request.integer("inverse", 0)), bool(request.integer("onesided", 0))
    to_real = inverse and onesided
    length = _scalar(request, 1, 2 * (count - 1) if to_real else count)
    if parts not in (1, 2) or length < 1:
        raise request.invalid(f"{x!r} should hold 1 or 2 parts of each number, and the length be positive: {length}")
    _check_size(request, min(length, count) * parts * length * 2)
    matrix = _from_half(min(count, length // 2 + 1), length) if to_real else _fourier(min(count, length), length)
    matrix = matrix.conj() / length if inverse else matrix
    if onesided and not to_real:
        matrix = matrix[:, : length // 2 + 1]
    real = _as_real(matrix, parts, 1 if to_real else 2)
    return [_transformed(request, x, at, real)]


def _stft(request: Request) -> Sequence[Value]:
    """Frames, then a product of all of them with the windowed Fourier matrix."""
    signal, window = request.input(0), request.optional(2)
    rank = len(signal.shape)
    if rank not in (2, 3):
        raise request.invalid(f"{signal!r} should have the shape [batch, samples, 1 or 2]")
    if window is not None and len(window.shape) != 1:
        raise request.invalid(f"the window {window!r} should be a vector, one weight for each sample of a frame")
    x = signal if rank == 3 else request.apply("Unsqueeze", signal, axes=(2,))
    samples, parts = request.extent(x, 1), request.extent(x, 2)
    default = samples if window is None else request.extent(window, 0)
    step, length = _scalar(request, 1, 0), _scalar(request, 3, default)
    if step < 1 or not 1 <= length <= samples or parts not in (1, 2) or (window is not None and default != length):
        raise request.invalid(f"frames of {length} every {step} do not fit {signal!r} and the window")
    _check_size(request, length * parts * length * 2)
    frames = request.apply("Frames", x, length=length, step=step)
    if window is not None:
        frames = request.apply("Mul", frames, request.apply("Unsqueeze", window, axes=(1,)))
    matrix = _fourier(length, length)
    if request.integer("onesided", 1):
        matrix = matrix[:, : length // 2 + 1]
    return [_transformed(request, frames, 2, _as_real(matrix, parts, 2))]


def _fourier(count: int, length: int) -> NDArray[np.complex128]:
    """``exp(-2 pi i n k / length)`` for the first ``count`` points; beyond these the signal is zero."""
    turns = np.outer(np.arange(count), np.arange(length)) % length
    return _roots(length)[turns]


def _roots(length: int) -> NDArray[np.complex128]:
    """``exp(-2 pi i k / length)`` for all ``k``, from angles of an eighth of a turn or less.

    Roots that mirror each other have the same bits, and those on the axes a part that is exactly zero, as in a fast
    transform: what cancels there leaves no rounding, which ``ArgMin`` or ``Sign`` would see.
    """
    quarter, rest = np.divmod(4 * np.arange(length), length)
    is_steep = 2 * rest > length
    angles = np.where(is_steep, length - rest, rest) * (np.pi / (2 * length))
    near = np.cos(angles)
    far = np.where(2 * rest == length, near, np.sin(angles))
    first = np.where(is_steep, far, near) - 1j * np.where(is_steep, near, far)
    return first * np.array([1, -1j, -1, 1j])[quarter]


def _from_half(count: int, length: int) -> NDArray[np.complex128]:
    """The same for half of a spectrum: all but the ends stand for two frequencies."""
    twice = np.where((np.arange(count) == 0) | (2 * np.arange(count) == length), 1.0, 2.0)
    return _fourier(count, length) * twice[:, None]


def _as_real(matrix: NDArray[np.complex128], parts: int, results: int) -> _Matrix:
    """The matrix on complex numbers with ``parts`` parts, interleaved in rows and columns: ``[n * parts, k *
    results]``."""
    blocks = np.array([[matrix.real, matrix.imag], [-matrix.imag, matrix.real]])[:parts, :results]
    return blocks.transpose(2, 0, 3, 1).reshape(matrix.shape[0] * parts, matrix.shape[1] * results)


def _transformed(request: Request, x: Value, axis: int, matrix: _Matrix) -> Value:
    """``x`` with ``axis`` and the parts of numbers (the last dimension) times ``matrix``."""
    rank = len(x.shape)
    parts = request.extent(x, rank - 1)
    order = (*(p for p in range(rank - 1) if p != axis), axis, rank - 1)
    used = matrix.shape[0] // parts
    if used < request.extent(x, axis):
        x = request.apply("Slice", x, starts=(0,), ends=(used,), axes=(axis,))
    moved = request.apply("Transpose", x, perm=order)
    rows = request.apply("Reshape", moved, shape=(*moved.shape[:-2], matrix.shape[0]))
    wide = request.apply("MatMul", request.apply("Cast", rows, to=f64), request.constant(matrix))
    product = request.apply("Cast", wide, to=x.dtype)
    results = 1 if _is_real_result(request) else 2
    numbers = request.apply("Reshape", product, shape=(*moved.shape[:-2], matrix.shape[1] // results, results))
    return request.apply("Transpose", numbers, perm=tuple(order.index(p) for p in range(rank)))


def _is_real_result(request: Request) -> bool:
    is_inverse = bool(request.integer("inverse", 0)) and bool(request.integer("onesided", 0))
    return request.op_type == "DFT" and is_inverse


def _check_size(request: Request, elements: int) -> None:
    if elements > MAX_MATRIX:
        raise request.unsupported(f"it needs a constant of {elements} elements, more than {MAX_MATRIX}; use fewer")


def _scalar(request: Request, position: int, default: int) -> int:
    """A constant input of one integer, or ``default`` if it is not given."""
    found = request.integers(position)
    if found is None:
        return default
    if len(found) != 1:
        raise request.invalid(f"input {position} must be one number, not {found}")
    return found[0]


# Constants


_WINDOWS = {
    "BlackmanWindow": (0.42, -0.5, 0.08),
    "HammingWindow": (25 / 46, -21 / 46),
    "HannWindow": (0.5, -0.5),
}
"""Weights of ``cos(2 pi j n / N)`` for j = 0, 1 ..."""


def _window(request: Request) -> Sequence[Value]:
    size = _scalar(request, 0, 0)
    if size < 0:
        raise request.invalid(f"the size {size} is negative; give one that is at least 0")
    _check_size(request, size)
    period = size if request.integer("periodic", 1) else size - 1
    angles = 2 * np.pi * np.arange(size) / max(period, 1)
    weights = _WINDOWS[request.op_type]
    window = np.sum([weight * np.cos(j * angles) for j, weight in enumerate(weights)], axis=0)
    return [request.constant(window.astype(_output_dtype(request).numpy))]


def _output_dtype(request: Request) -> DType:
    chosen = request.attributes.get("output_datatype")
    return dtype_of(chosen, request.place) if isinstance(chosen, int) else f32


def _mel_weight_matrix(request: Request) -> Sequence[Value]:
    """Triangles over the bins of a spectrum, at equal distances on the mel scale (as ONNX's definition has them)."""
    if any(request.importer.known(request.input(position)) is None for position in range(5)):
        return [_mel_weights_of_data(request)]
    bins, length, rate = (_scalar(request, position, 0) for position in range(3))
    edges = [_edge(request, position) for position in (3, 4)]
    if bins < 1 or length < 1 or rate < 1 or not 0 <= edges[0] < edges[1] < np.inf:
        raise request.invalid(
            f"{bins} bins from {edges[0]} to {edges[1]} Hz of {rate} Hz and {length} points: counts must be at least "
            "1, edges rise from 0 or more, and be finite"
        )
    _check_size(request, bins * (length // 2 + 1))
    low, high = (2595 * np.log10(1 + edge / 700) for edge in edges)
    mels = low + np.arange(bins + 2) * (high - low) / (bins + 2)
    points = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    frequencies = np.arange(length // 2 + 1)[:, None]
    if points[-1] > length // 2 + 1:
        raise request.invalid(f"the upper edge {edges[1]} Hz is beyond half of {rate} Hz")
    left, center, right = points[:-2], points[1:-1], points[2:]
    rising = (frequencies - left) / np.maximum(center - left, 1)
    falling = (right - frequencies) / np.maximum(right - center, 1)
    matrix = np.where((left <= frequencies) & (frequencies <= center) & (left < center), rising, 0.0)
    matrix = np.where((center <= frequencies) & (frequencies < right), falling, matrix)
    matrix = np.where((frequencies == center) & (left == center), np.where(right > center, matrix, 1.0), matrix)
    return [request.constant(matrix.astype(_output_dtype(request).numpy))]


def _mel_weights_of_data(request: Request) -> Value:
    """The same of numbers that are known only in a run: how many bins there are is then read as sizes."""

    def whole(value: Value) -> Value:
        return request.apply("Cast", request.apply("Reshape", value, shape=(1,)), to=i64)

    def wide(value: Value) -> Value:
        return request.apply("Cast", request.apply("Reshape", value, shape=(1,)), to=f64)

    def number(element: float, dtype: DType = f64) -> Value:
        return request.constant(np.array([element], dtype.numpy))

    def mel(edge: Value) -> Value:
        ratio = request.apply("Add", request.apply("Div", wide(edge), number(700.0)), number(1.0))
        return request.apply("Mul", request.apply("Log", ratio), number(2595 / np.log(10)))

    count, length = whole(request.input(0)), whole(request.input(1))
    half = request.apply("Add", request.apply("Div", length, number(2, i64)), number(1, i64))
    (bins,), (rows,) = request.sizes_of(count), request.sizes_of(half)
    low, high = mel(request.input(3)), mel(request.input(4))
    step = request.apply("Div", request.apply("Sub", high, low), wide(request.apply("Add", count, number(2, i64))))
    mels = request.apply("Range", low, step, count=as_expr(bins) + 2)
    hertz = request.apply("Exp", request.apply("Mul", mels, number(np.log(10) / 2595)))
    hertz = request.apply("Mul", request.apply("Sub", hertz, number(1.0)), number(700.0))
    scaled = request.apply("Mul", wide(request.apply("Add", length, number(1, i64))), hertz)
    points = request.apply("Floor", request.apply("Div", scaled, wide(request.input(2))))
    left, center, right = (
        request.apply("Slice", points, starts=(at,), ends=(as_expr(bins) + at,), axes=(0,)) for at in range(3)
    )
    places = request.apply("Range", number(0.0), number(1.0), count=rows)
    return _triangles(request, request.apply("Unsqueeze", places, axes=(1,)), (left, center, right))


def _triangles(request: Request, place: Value, corners: tuple[Value, Value, Value]) -> Value:
    """At each place how high each triangle is, which is 1 at its center."""
    left, center, right = corners
    zero, one = (request.constant(np.array(element, np.float64)) for element in (0.0, 1.0))

    def slope(distance: Value, ends: tuple[Value, Value]) -> Value:
        return request.apply("Div", distance, request.apply("Max", request.apply("Sub", *ends), one))

    def between(low: Value, high: Value) -> Value:
        return request.apply("And", request.apply("LessOrEqual", low, place), request.apply("Less", place, high))

    rising = slope(request.apply("Sub", place, left), (center, left))
    falling = slope(request.apply("Sub", right, place), (right, center))
    height = request.apply("Where", between(left, center), rising, zero)
    height = request.apply("Where", between(center, right), falling, height)
    height = request.apply("Where", request.apply("Equal", place, center), one, height)
    return request.apply("Cast", height, to=_output_dtype(request))


def _edge(request: Request, position: int) -> float:
    known = request.array(position)
    if known is None or known.size != 1:
        raise request.invalid(f"input {position} must be one number")
    return float(np.ravel(known)[0])


BY_BODY_OF_DATA = frozenset(_WINDOWS)
"""Operators whose rules make constants: of sizes that are data, they are imported by ONNX's function bodies."""

RULES: Mapping[str, RuleFunction] = {
    **dict.fromkeys(_WINDOWS, _window),
    "DFT": _dft,
    "MelWeightMatrix": _mel_weight_matrix,
    "ReverseSequence": Rule("ReverseSequence", same("batch_axis", "time_axis")),
    "STFT": _stft,
}
