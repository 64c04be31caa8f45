"""Recognizes attention, where it is computed otherwise than by its parts (``alternatives.attention``).

The pattern is ``softmax(scale * q k + mask) v``, as exporters write it: with or without a scale and a mask, and with or
without a guard that makes weights of rows without a finite score 0. It comes after the search for a better graph, which
knows products and softmax, and before alternatives are chosen.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tilewright.base.dtypes import f32
from tilewright.graph import Graph, Node, Value
from tilewright.ops import Trait
from tilewright.ops.attention import swapped
from tilewright.ops.operator import Attribute, require
from tilewright.ops.shapes import normalize_axis, same_extent, same_shape, simplified
from tilewright.passes.alternatives import Facts, candidates
from tilewright.passes.alternatives.attention import WITH_SCORES
from tilewright.passes.recognize import Composite, Match, Recognition, raised
from tilewright.passes.rules.index import Index, index_of
from tilewright.passes.rules.terms import Apply, Number, Term, Variable, subterms
from tilewright.symbolic.expr import ONE, Const


def recognize_attention(graph: Graph, facts: Facts) -> Graph:
    """``graph`` with attention as one node, where one of the ways of ``facts`` promises to be faster than its parts.

    Parts that are no longer used remain.
    """
    if not any(node.op.name == "Softmax" for node in graph.nodes):
        return graph
    index = index_of(graph)
    found = (raised(node, index, {"MatMul": ATTENTIONS}) for node in graph.nodes)
    nodes = (new if new is old or _pays(new, facts) else old for old, new in zip(graph.nodes, found, strict=True))
    return replace(graph, nodes=tuple(nodes))


_EXPAND, _MUL = require("Expand"), require("Mul")


def _pays(node: Node, facts: Facts) -> bool:
    best = min(candidates(node, facts), key=lambda way: way.cycles)
    return best.make is not None and best.algorithm != WITH_SCORES.name


_Q, _K, _V, _MASK, _EMPTY, _SCALE = (Variable(name, (), name) for name in ("q", "k", "v", "mask", "empty", "scale"))


def _apply(op: str, *operands: Term, rest: str | None = None) -> Apply:
    return Apply(require(op), operands, (), rest)


def _patterns() -> Iterator[Recognition]:
    """The largest first, as parts of it match as well."""
    products = _apply("MatMul", _Q, _K)
    for scaled in (_apply("Mul", products, _SCALE), _apply("Div", products, _SCALE), products):
        for scores in (_apply("Add", scaled, _MASK), scaled):
            weights = _apply("Softmax", scores, rest="softmax")
            guards = (_apply("Where", guard, Number(0.0), weights) for guard in (_apply("IsNaN", weights), _EMPTY))
            for used in (*guards, weights):
                pattern = _apply("MatMul", used, _V)
                build = partial(_attention, pattern=pattern, scaled=scaled, scores=scores, weights=weights)
                yield Recognition("attention", pattern, build)


def _attention(match: Match, pattern: Apply, scaled: Apply, scores: Apply, weights: Apply) -> Composite | None:
    scale, shape = _scale(match, scaled), match.value(scores).shape
    axis = dict(match.node(weights).attributes).get("axis", -1)
    is_last = isinstance(axis, int) and normalize_axis(axis, len(shape)) == len(shape) - 1
    if scale is None or not is_last or not _is_private(match, pattern):
        return None
    operands = [match.value(term) for term in (_Q, _K, _V)]
    mask, empty = (match.binding.values.get(term) for term in (_MASK, _EMPTY))
    if any(value.dtype != f32 or len(value.shape) < 2 for value in operands) or (mask and mask.dtype != f32):
        return None
    used = pattern.operands[0]
    if any(not same_shape(match.value(term).shape, shape) for term in (scaled, used)):  # a mask may add dimensions
        return None
    if empty is not None and empty.shape and empty.shape[-1] != ONE:
        return None
    is_guarded = used != weights and empty is None
    attributes: dict[str, Attribute] = {"scale": scale, "is_guarded": is_guarded}
    rows = _rows(operands[1], match.index)
    if rows is not None:
        keys, factor = rows
        operands[1:], group = _shared(operands[0], keys, operands[2], match.index) or ([keys, operands[2]], 1)
        attributes |= {"scale": scale * factor, "are_rows": True, "group": group}
    return Composite("Attention", [*operands, mask, empty], attributes)


def _rows(keys: Value, index: Index) -> tuple[Value, float] | None:
    """What ``keys [..., d, n]`` are the transpose of, if they are that, and a factor on the way: exporters scale
    queries and keys."""
    scaled, factor = _unscaled(keys, index)
    transposed = _producer(scaled, index)
    if transposed is None or dict(transposed.attributes).get("perm") != swapped(len(keys.shape)):
        return None
    source = transposed.inputs[0]
    if source is None:
        return None
    rows, other = _unscaled(source, index)
    return rows, factor * other


def _unscaled(value: Value, index: Index) -> tuple[Value, float]:
    """The value that is multiplied with a constant number to get ``value``, and that number; or ``value``, and 1."""
    producer = _producer(value, index)
    if producer is not None and producer.op == _MUL:
        for at, other in enumerate(producer.inputs):
            source, array = producer.inputs[1 - at], None if other is None else index.arrays.get(other.name)
            if array is not None and array.size == 1 and source is not None and source.shape == value.shape:
                return source, float(array.reshape(-1)[0])
    return value, 1.0


def _shared(q: Value, rows: Value, v: Value, index: Index) -> tuple[list[Value], int] | None:
    """Keys as rows, and values, before each head of them was repeated for several heads of queries, and how often."""
    own, others = (_before_repetition(value, index) for value in (rows, v))
    if own is None or others is None or own[1] != others[1]:
        return None
    if len(q.shape) < 3 or not same_extent(q.shape[-3], rows.shape[-3]):  # one head of queries for all
        return None
    return [own[0], others[0]], own[1]


def _before_repetition(value: Value, index: Index) -> tuple[Value, int] | None:
    """The value whose heads ``[..., heads, m, n]`` are repeated, one after the other, and how often: it gets a new
    dimension, is expanded along it, and that is merged with the heads."""
    merged = _producer(value, index)
    expanded = _producer(merged.inputs[0], index) if merged is not None and merged.op.has(Trait.REGROUPS) else None
    parted = _producer(expanded.inputs[0], index) if expanded is not None and expanded.op == _EXPAND else None
    source = parted.inputs[0] if parted is not None and parted.op.has(Trait.REGROUPS) else None
    if expanded is None or parted is None or source is None or len(source.shape) < 3:
        return None
    *outer, heads, rows, columns = source.shape
    times = expanded.outputs[0].shape[-3]
    single, several = ((*outer, heads, extent, rows, columns) for extent in (ONE, times))
    if not isinstance(times, Const) or not same_shape(expanded.outputs[0].shape, several):
        return None
    repeated = (*outer, simplified(heads * times), rows, columns)
    fits = same_shape(parted.outputs[0].shape, single) and same_shape(value.shape, repeated)
    return (source, int(times.value)) if fits else None


def _producer(value: Value | None, index: Index) -> Node | None:
    return None if value is None else index.producers.get(value.name, (None,))[0]


def _scale(match: Match, scaled: Apply) -> float | None:
    """The factor of the products; None if it is no number."""
    if scaled.op.name == "MatMul":
        return 1.0
    number = match.number(_SCALE)
    return number if number is None or scaled.op.name == "Mul" else (1.0 / number if number else None)


def _is_private(match: Match, pattern: Apply) -> bool:
    """Whether nothing else uses what the match computes on the way."""
    inner = [match.value(term).name for term in subterms([pattern]) if isinstance(term, Apply) and term != pattern]
    members = {*inner, match.value(pattern).name}
    readers = (node for name in inner for node in match.index.readers.get(name, ()))
    is_read_inside = all(node.outputs[0].name in members for node in readers)
    return is_read_inside and match.index.leaving.isdisjoint(inner)


ATTENTIONS = tuple(_patterns())
"""The largest patterns first."""
