"""Normalization: folds constants, canonicalizes slices, removes identities, duplicates and dead nodes.

Every pass keeps the graph's inputs and outputs, by name. An output of the graph always has a producing node, and so a
kernel that writes it.

These are not rewrite rules (``rules``): rules are about floats and may change roundings. These passes preserve values
of any dtype, bit for bit, and evaluate or compare nodes, which terms can't express.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from tilewright.base.errors import InvalidModel, OutOfBounds
from tilewright.base.exact import Exact
from tilewright.graph import Array, Graph, Node, Value, bytes_on_the_way, evaluate_node
from tilewright.graph.ir import walk_back
from tilewright.ops import Attribute, FusionKind, Trait
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import Const

FOLD_LIMIT = 1 << 26
"""Bytes: larger results are folded only if the inputs are as large, as they would enlarge the artifact (``Expand``)."""

OPAQUE_FOLD_LIMIT = 1 << 10
"""Elements: a body in loop IR is evaluated element by element, so only small ones are folded."""

MOST_FOLDED = 1 << 30
"""Bytes of all folded constants in use, unless the model's own constants are a quarter of that or more."""

_SEEN_ELEMENTS = 64
"""Number of elements of a constant that are compared before all are hashed."""


def normalize(graph: Graph, kept: Trait | None = None) -> Graph:
    """All passes, in the order in which each creates work for the next. Raises ``InvalidModel``.

    ``kept``: operators with this trait are not folded.
    """
    graph = eliminate_identities(canonical_slices(fold_constants(graph, kept)))
    return eliminate_dead_code(eliminate_common_subexpressions(graph))


def fold_constants(graph: Graph, kept: Trait | None = None) -> Graph:
    """Constant folding: evaluates nodes whose inputs are all constants, by the te evaluator.

    Intermediates are dropped. Nodes beyond the size limit stay: the limit follows from the model alone, so that equal
    models are compiled alike. Operators with the trait ``kept`` stay, too. Raises ``InvalidModel`` if a node reads
    outside of its input.
    """
    constants, leaving = dict(graph.constants), frozenset(graph.outputs)
    readers = Counter(value for node in graph.nodes for value in set(node.inputs) if value is not None)
    left = max(MOST_FOLDED, 4 * sum(array.nbytes for array in graph.constants.values()))
    nodes: list[Node] = []
    for node in graph.nodes:
        wanted = None if kept is not None and node.op.has(kept) else _bytes_if_foldable(node, constants)
        if wanted is None or wanted > left or not leaving.isdisjoint(node.outputs):
            nodes.append(node)
            continue
        constants.update(zip(node.outputs, _folded(node, constants), strict=True))
        left -= wanted
        for value in {value for value in node.inputs if value is not None}:
            readers[value] -= 1
            if not readers[value] and value not in graph.constants:
                left += constants.pop(value).nbytes
    return replace(graph, nodes=tuple(nodes), constants=constants)


def _bytes_if_foldable(node: Node, constants: Mapping[Value, Array]) -> int | None:
    """Bytes of the results of ``node``, if it is to be folded."""
    if node.dims or any(v is not None and v not in constants for v in node.inputs):
        return None
    shapes = [static(value.shape) for value in node.outputs]
    if not all(shape is not None for shape in shapes):
        return None
    if node.op.kind is FusionKind.OPAQUE and max(constants[v].size for v in node.inputs if v) > OPAQUE_FOLD_LIMIT:
        return None
    before = sum(constants[v].nbytes for v in node.inputs if v is not None)
    after = sum(value.dtype.itemsize * _count(shape) for value, shape in zip(node.outputs, shapes, strict=True))
    if after > max(FOLD_LIMIT, before) or bytes_on_the_way(node) > max(FOLD_LIMIT, 8 * before):
        return None
    return after


def _count(shape: tuple[int, ...] | None) -> int:
    return int(np.prod(shape or (), dtype=object))


def _folded(node: Node, constants: Mapping[Value, Array]) -> list[Array]:
    try:
        return evaluate_node(node, constants)
    except OutOfBounds as error:
        raise InvalidModel(f"{node.source or node.op.name}: {error}") from error


def canonical_slices(graph: Graph) -> Graph:
    """Slices in steps of 1 with bounds clipped to the dimension, counted from the front, as rules need them."""
    return replace(graph, nodes=tuple(map(_canonical, graph.nodes)))


def _canonical(node: Node) -> Node:
    data, given = node.inputs[0] if node.inputs else None, dict(node.attributes)
    if node.op.name != "Slice" or data is None:
        return node
    starts, ends = (_integers(given.get(name)) for name in ("starts", "ends"))
    steps, axes = _integers(given.get("steps")), _integers(given.get("axes"))
    if starts is None or ends is None or set(steps or ()) - {1}:
        return node
    places = [axis % len(data.shape) for axis in (range(len(starts)) if axes is None else axes)]
    extents = [data.shape[place] for place in places]
    known = [int(extent.value) for extent in extents if isinstance(extent, Const)]
    if len(known) < len(extents):
        return node
    cuts = [slice(*pair).indices(extent) for *pair, extent in zip(starts, ends, known, strict=True)]
    first, last = tuple(cut[0] for cut in cuts), tuple(max(cut[:2]) for cut in cuts)
    return replace(node, attributes=(("starts", first), ("ends", last), ("axes", tuple(places))))


def _integers(value: Attribute) -> tuple[int, ...] | None:
    """``value``, if it is a list of numbers that are known."""
    if not isinstance(value, tuple):
        return None
    numbers = tuple(number for number in value if isinstance(number, int))
    return numbers if len(numbers) == len(value) else None


def eliminate_identities(graph: Graph) -> Graph:
    """Without identity nodes, unless their output leaves the graph."""
    renamed: dict[Value, Value] = {}
    leaving = frozenset(graph.outputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        node = _renamed(node, renamed)
        source, result = node.inputs[0] if node.inputs else None, node.outputs[0]
        if source is not None and _does_nothing(node, source) and result not in leaving:
            renamed[result] = source
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _does_nothing(node: Node, source: Value) -> bool:
    result = node.outputs[0]
    return node.op.has(Trait.NEUTRAL) and (source.dtype, source.shape) == (result.dtype, result.shape)


def _renamed(node: Node, renamed: Mapping[Value, Value]) -> Node:
    if not any(value in renamed for value in node.inputs if value is not None):
        return node
    return replace(node, inputs=tuple(v if v is None else renamed.get(v, v) for v in node.inputs))


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """Merges nodes with equal operators, inputs and attributes (to the bit), and constants of equal bytes."""
    renamed: dict[Value, Value] = {}
    constants = dict(_unique_constants(graph, renamed))
    seen: dict[tuple[object, ...], Node] = {}
    leaving = frozenset(graph.outputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        node = _renamed(node, renamed)
        key = (node.op.name, node.inputs, Exact(node.attributes), len(node.outputs))
        twin = seen.get(key)
        if twin is None or not leaving.isdisjoint(node.outputs):
            seen.setdefault(key, node)
            nodes.append(node)
        else:
            renamed.update(zip(node.outputs, twin.outputs, strict=True))
    return replace(graph, nodes=tuple(nodes), constants=constants)


def _unique_constants(graph: Graph, renamed: dict[Value, Value]) -> Iterator[tuple[Value, Array]]:
    looks = {value: _look(array) for value, array in graph.constants.items()}
    alike, leaving = Counter(looks.values()), frozenset(graph.outputs)
    seen: dict[tuple[object, ...], Value] = {}
    for value, array in graph.constants.items():
        look = looks[value]
        key = (look, _digest(array) if alike[look] > 1 else b"")
        if key in seen and value not in leaving:
            renamed[value] = seen[key]
        else:
            seen.setdefault(key, value)
            yield value, array


def _look(array: Array) -> tuple[object, ...]:
    """A cheap key that differs for most different constants: hashing all weights would take long."""
    few = array.reshape(-1)[:: max(1, array.size // _SEEN_ELEMENTS)]
    return array.dtype, array.shape, few.tobytes()


def _digest(array: Array) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()


def eliminate_dead_code(graph: Graph) -> Graph:
    """Without nodes and constants that no output needs. Inputs are kept: they are the model's interface."""
    nodes = tuple(walk_back(graph))[::-1]
    used = {v for node in nodes for v in node.inputs} | set(graph.outputs)
    constants = {value: array for value, array in graph.constants.items() if value in used}
    return replace(graph, nodes=nodes, constants=constants)
