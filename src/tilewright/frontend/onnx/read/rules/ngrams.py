"""ONNX's TfIdfVectorizer of integers: counts of n-grams in each row.

Each n-gram of the pool is compared with the numbers at each place of a row, and at a distance from each other of one to
``max_skip_count`` places more. One number alone has no distance, and is counted once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np

from tilewright.base.dtypes import f32, i64
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Array, Value
from tilewright.symbolic.expr import Const, Expr

_MODES = frozenset({"TF", "IDF", "TFIDF"})


@dataclass(frozen=True, slots=True)
class _Grams:
    """The n-grams of one length: ``[count, length]``, and the column of the result for each."""

    numbers: Array
    columns: tuple[int, ...]


def _tf_idf(request: Request) -> Sequence[Value]:
    data, mode = request.input(0), request.text("mode", "TF")
    if request.texts("pool_strings"):
        raise request.unsupported("n-grams of text have no native code; give pool_int64s, and numbers for words")
    if mode not in _MODES or len(data.shape) not in (1, 2):
        raise request.invalid(f"{data!r} must be one row or several, and the mode {mode} one of TF, IDF, TFIDF")
    columns = request.ints("ngram_indexes") or ()
    if not columns or min(columns) < 0:
        raise request.invalid(f"ngram_indexes {columns} are no columns, from 0 on")
    if len(set(columns)) < len(columns):
        raise request.unsupported("several n-grams in one column of ngram_indexes; give each a column, and add these")
    rows = request.apply("Cast", data, to=i64)
    if len(data.shape) == 1:
        rows = request.apply("Unsqueeze", rows, axes=(0,))
    counts = _weighted(request, _counts(request, rows, list(_pool(request, columns)), max(columns) + 1))
    return [request.apply("Squeeze", counts, axes=(0,)) if len(data.shape) == 1 else counts]


def _pool(request: Request, columns: Sequence[int]) -> Iterator[_Grams]:
    """The n-grams that are counted, by length."""
    pool, starts = request.ints("pool_int64s") or (), request.ints("ngram_counts") or ()
    bounds = [*pairwise((*starts, len(pool)))]
    if any(not 0 <= begin <= end or (end - begin) % n for n, (begin, end) in enumerate(bounds, 1)):
        raise request.invalid(f"ngram_counts {starts} do not divide {len(pool)} numbers into n-grams")
    if sum((end - begin) // n for n, (begin, end) in enumerate(bounds, 1)) != len(columns):
        raise request.invalid(f"ngram_indexes has {len(columns)} columns, and the pool another number of n-grams")
    shortest, longest = request.integer("min_gram_length", 1), request.integer("max_gram_length", 1)
    first = 0
    for length, (begin, end) in enumerate(bounds, 1):
        count = (end - begin) // length
        if count and shortest <= length <= longest:
            numbers = np.array(pool[begin:end], np.int64).reshape(count, length)
            yield _Grams(numbers, tuple(columns[first : first + count]))
        first += count


def _counts(request: Request, rows: Value, pool: Sequence[_Grams], width: int) -> Value:
    """How often each n-gram is in each row, ``[rows, width]``; columns without an n-gram are 0."""
    none = request.apply("Expand", request.constant(np.zeros((1, 1), np.float32)), shape=(_plain(rows.shape[0]), 1))
    parts, places, known = [none], [0] * width, 1
    for grams in pool:
        found = _found(request, rows, grams)
        if found is not None:
            parts.append(found)
            for column in grams.columns:
                places[column] = known
                known += 1
    together = request.apply_many("Concat", parts, 1, axis=1)[0]
    return request.apply("Gather", together, request.constant(np.array(places)), axis=1)


def _plain(extent: Expr) -> int | Expr:
    return int(extent.value) if isinstance(extent, Const) else extent


def _found(request: Request, rows: Value, grams: _Grams) -> Value | None:
    """How often each n-gram of one length is in each row; None if it is longer than a row."""
    length = grams.numbers.shape[1]
    distances = range(1, 2 if length == 1 else request.integer("max_skip_count", 0) + 2)
    extent = request.extent(rows, 1)
    fitting = [distance for distance in distances if (length - 1) * distance < extent]
    counts = [_at_distance(request, rows, grams.numbers, distance, extent) for distance in fitting]
    return reduce(lambda a, b: request.apply("Add", a, b), counts) if counts else None


def _at_distance(request: Request, rows: Value, numbers: Array, distance: int, extent: int) -> Value:
    """The same, for numbers that are ``distance`` places from each other."""
    count, length = numbers.shape
    places = extent - (length - 1) * distance
    equal: list[Value] = []
    for at in range(length):
        begin = at * distance
        there = request.apply("Slice", rows, starts=(begin,), ends=(begin + places,), axes=(1,))
        wanted = request.constant(numbers[:, at].reshape(1, count, 1))
        equal.append(request.apply("Equal", request.apply("Unsqueeze", there, axes=(1,)), wanted))
    all_equal = reduce(lambda a, b: request.apply("And", a, b), equal)
    return request.apply("ReduceSum", request.apply("Cast", all_equal, to=f32), axes=(2,), keepdims=False)


def _weighted(request: Request, counts: Value) -> Value:
    """TF: the counts; IDF: the weights of what is there; TFIDF: the weights times the counts."""
    mode, weights = request.text("mode", "TF"), request.numbers("weights")
    if mode == "TF":
        return counts
    if mode == "IDF":
        zero = request.constant(np.zeros((), np.float32))
        counts = request.apply("Cast", request.apply("Greater", counts, zero), to=f32)
    if not weights:
        return counts
    columns = request.ints("ngram_indexes") or ()
    if len(weights) != len(columns):
        raise request.invalid(f"there are {len(weights)} weights for {len(columns)} n-grams")
    if columns != tuple(range(len(columns))):
        raise request.unsupported(
            "weights of n-grams whose ngram_indexes are not 0, 1, 2 ... are not supported, as implementations take "
            "them for weights of columns; bring the n-grams into the order of their columns"
        )
    return request.apply("Mul", counts, request.constant(np.array(weights, np.float32)))


RULES: Mapping[str, RuleFunction] = {"TfIdfVectorizer": _tf_idf}
