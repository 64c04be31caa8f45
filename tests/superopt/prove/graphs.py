"""An enumerator of graphs, of the kind of TASO's (Jia et al., SOSP 2019, and the program they released).

It is here to be another one: it shares nothing with ``tilewright.superopt``. Where that enumerates values, this visits
graphs, depth first, one operator after the other; two graphs with equal outputs are a rule. As in TASO, constants are
operators, groups of a convolution follow from its shapes, and ``split`` undoes the last concatenation. Unlike there,
relu is a random function, the average is a mean, and tensors are residues modulo a prime.

Left out are graphs of three operators side by side: what they say, their parts say.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.int64]
Tree: TypeAlias = tuple["str | int | Tree", ...]
"""``("input", name)`` or ``(operator, *operands)``; the axis of ``concat`` and ``split`` is part of the name."""
Cut: TypeAlias = tuple[int, "Cut | None", "Cut | None"]
"""Where an axis was concatenated last, and the cuts of both parts."""

PRIME = 67_108_859  # below 2^26: 64 bits hold the sum of 2^11 products

DIMENSIONS: Sequence[dict[str, int]] = (
    {"m": 2, "k": 4, "n": 2, "c": 4, "h": 5, "w": 5},
    {"m": 3, "k": 5, "n": 1, "c": 3, "h": 4, "w": 6},
    {"m": 5, "k": 3, "n": 3, "c": 2, "h": 5, "w": 4},
    {"m": 1, "k": 2, "n": 2, "c": 5, "h": 3, "w": 3},
    {"m": 4, "k": 7, "n": 1, "c": 2, "h": 6, "w": 5},
)
"""Extents: those of TASO's generator, and four others."""

INPUTS: dict[str, tuple[str | int, ...]] = {
    **dict.fromkeys(("x1", "x2", "x3"), ("m", "k")),
    **dict.fromkeys(("w1", "w2", "w3"), ("k", "k")),
    **dict.fromkeys(("i1", "i2", "i3"), ("n", "c", "h", "w")),
    **dict.fromkeys(("u1", "u2", "u3"), ("c", "c", 3, 3)),
    **dict.fromkeys(("v1", "v2", "v3"), ("c", "c", 1, 3)),
    **dict.fromkeys(("y1", "y2", "y3"), ("c", "c", 3, 1)),
    "d1": ("c", 1, 3, 3),
    "s1": (),
}
CONSTANTS: dict[str, tuple[str | int, ...]] = {
    "cpool": ("c", 1, 3, 3),
    "iconv": ("c", "c", 3, 3),
    "imm": ("k", "k"),
    "one": ("n", "c", "h", "w"),
}
_WEIGHTS = frozenset(name for name in INPUTS if name[0] in "uvyd")
_BOTH = ("add", "mul", "concat0", "concat1")
"""Operators of two tensors of one rank, the first of which stands before the second."""
_UNARY = ("avgpool", "maxpool", "enlarge", "relu", "split0", "split1", "transpose")
_LARGEST = 512


class IllTyped(Exception):
    """Operands do not fit."""


@dataclass(frozen=True)
class Tensor:
    """Residues, and where each axis was concatenated last."""

    data: Array
    cuts: tuple[Cut | None, ...]

    @property
    def key(self) -> bytes:
        """What tells it from others."""
        return blake2b(repr((self.data.shape, self.cuts)).encode() + self.data.tobytes(), digest_size=16).digest()


def tensor(data: Array) -> Tensor:
    return Tensor(np.asarray(data % PRIME), (None,) * data.ndim)


def inputs(dimensions: dict[str, int], seed: int) -> dict[str, Tensor]:
    """A random tensor for each input."""
    random = np.random.default_rng(seed)
    shapes = {name: _shape(extents, dimensions) for name, extents in INPUTS.items()}
    return {name: tensor(random.integers(0, PRIME, shape, dtype=np.int64)) for name, shape in shapes.items()}


def constant(name: str, dimensions: dict[str, int]) -> Tensor:
    shape = _shape(CONSTANTS[name], dimensions)
    if name == "cpool":
        return tensor(np.full(shape, pow(9, -1, PRIME), np.int64))
    if name == "imm":
        return tensor(np.eye(shape[0], dtype=np.int64))
    if name == "one":
        return tensor(np.ones(shape, np.int64))
    kernel = np.zeros(shape, np.int64)
    kernel[:, :, 1, 1] = np.eye(shape[0], dtype=np.int64)
    return tensor(kernel)


def _shape(extents: tuple[str | int, ...], dimensions: dict[str, int]) -> tuple[int, ...]:
    return tuple(dimensions[extent] if isinstance(extent, str) else extent for extent in extents)


# Operators


def applied(op: str, operands: Sequence[Tensor], seed: int = 0) -> list[Tensor]:
    """The results of one operator; ``seed`` chooses the random function and the order. Raises ``IllTyped``."""
    match op:
        case "add" | "mul":
            return [_elementwise(op, *operands)]
        case "scale":
            return [_scaled(*operands)]
        case "matmul":
            return [_matmul(*operands)]
        case "conv":
            return [_conv(*operands)]
        case "convrelu":
            return [_relu(_conv(*operands), seed)]
        case "relu":
            return [_relu(operands[0], seed)]
        case "concat0" | "concat1":
            return [_concat(int(op[-1]), *operands)]
        case "split0" | "split1":
            return _split(int(op[-1]), operands[0])
        case "transpose":
            return [_transpose(operands[0])]
        case "avgpool" | "maxpool":
            return [_pool(op, operands[0], seed)]
        case _:
            return [_enlarge(operands[0])]


def _need(condition: bool) -> None:
    if not condition:
        raise IllTyped


def _elementwise(op: str, a: Tensor, b: Tensor) -> Tensor:
    _need(a.data.shape == b.data.shape and a.data.ndim > 0)
    cuts = tuple(x if x == y else None for x, y in zip(a.cuts, b.cuts, strict=True))
    return Tensor((a.data + b.data if op == "add" else a.data * b.data) % PRIME, cuts)


def _scaled(a: Tensor, scalar: Tensor) -> Tensor:
    _need(a.data.ndim > 0 and scalar.data.ndim == 0)
    return Tensor(a.data * scalar.data % PRIME, a.cuts)


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    _need(a.data.ndim == b.data.ndim == 2 and a.data.shape[1] == b.data.shape[0])
    return Tensor(a.data @ b.data % PRIME, (a.cuts[0], b.cuts[1]))


def _conv(x: Tensor, weight: Tensor) -> Tensor:
    """As many groups as the shapes say; padded so that the size stays."""
    _need(x.data.ndim == weight.data.ndim == 4)
    filters, depth, *kernel = weight.data.shape
    groups, rest = divmod(x.data.shape[1], depth)
    _need(groups > 0 and not rest and filters % groups == 0 and all(extent in (1, 3) for extent in kernel))
    before = [extent // 2 for extent in kernel]
    padded = np.pad(x.data, [(0, 0), (0, 0), *((width, width) for width in before)])
    high, wide = x.data.shape[2:]
    grouped = padded.reshape(len(padded), groups, depth, *padded.shape[2:])
    taps = weight.data.reshape(groups, filters // groups, depth, *kernel)
    total = np.zeros((len(padded), groups, filters // groups, high, wide), np.int64)
    for r, s in product(*map(range, kernel)):
        window = grouped[:, :, :, r : r + high, s : s + wide]
        total += np.einsum("ngchw,gfc->ngfhw", window, taps[..., r, s]) % PRIME
    return Tensor((total % PRIME).reshape(len(padded), filters, high, wide), (x.cuts[0], weight.cuts[0], *x.cuts[2:]))


def _mixed(data: Array, seed: int) -> NDArray[np.uint64]:
    """A random order of the residues."""
    bits = (data.astype(np.uint64) + np.uint64(1 + seed * PRIME)) * np.uint64(0x9E37_79B9_7F4A_7C15)
    return (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58_476D_1CE4_E5B9)


def _relu(a: Tensor, seed: int) -> Tensor:
    _need(a.data.ndim > 0)
    return Tensor((_mixed(a.data, seed) % np.uint64(PRIME)).astype(np.int64), a.cuts)


def _concat(axis: int, a: Tensor, b: Tensor) -> Tensor:
    rank = a.data.ndim
    _need(b.data.ndim == rank and rank in (2, 4))
    _need(all(at == axis or a.data.shape[at] == b.data.shape[at] for at in range(rank)))
    cuts = [x if x == y else None for x, y in zip(a.cuts, b.cuts, strict=True)]
    cuts[axis] = (a.data.shape[axis], a.cuts[axis], b.cuts[axis])
    return Tensor(np.concatenate([a.data, b.data], axis), tuple(cuts))


def _split(axis: int, a: Tensor) -> list[Tensor]:
    _need(a.data.ndim in (2, 4))
    cut = a.cuts[axis]
    if cut is None:
        raise IllTyped
    parts = np.split(a.data, [cut[0]], axis)
    return [
        Tensor(np.ascontiguousarray(part), tuple(inner if at == axis else old for at, old in enumerate(a.cuts)))
        for part, inner in zip(parts, cut[1:], strict=True)
    ]


def _transpose(a: Tensor) -> Tensor:
    _need(a.data.ndim == 2)
    return Tensor(np.ascontiguousarray(a.data.T), a.cuts[::-1])


def _pool(op: str, a: Tensor, seed: int) -> Tensor:
    _need(a.data.ndim == 4)
    high, wide = a.data.shape[2:]
    windows = list(product(range(3), range(3)))
    if op == "avgpool":
        padded = np.pad(a.data, [(0, 0), (0, 0), (1, 1), (1, 1)])
        total = sum((padded[:, :, r : r + high, s : s + wide] for r, s in windows), np.zeros_like(a.data))
        return Tensor(total % PRIME * pow(9, -1, PRIME) % PRIME, a.cuts)
    best, rank = a.data.copy(), _mixed(a.data, seed)
    around = [(0, 0), (0, 0), (1, 1), (1, 1)]
    values, ranks = np.pad(a.data, around), np.pad(rank, around)
    for r, s in windows:
        better = ranks[:, :, r : r + high, s : s + wide] > rank
        rank = np.where(better, ranks[:, :, r : r + high, s : s + wide], rank)
        best = np.where(better, values[:, :, r : r + high, s : s + wide], best)
    return Tensor(best, a.cuts)


def _enlarge(a: Tensor) -> Tensor:
    _need(a.data.ndim == 4 and a.data.shape[2:] in {(1, 3), (3, 1)})
    around = [(0, 0), (0, 0), *(((3 - extent) // 2,) * 2 for extent in a.data.shape[2:])]
    return Tensor(np.pad(a.data, around), a.cuts)


# Graphs


@dataclass(frozen=True)
class Rule:
    """Equal outputs of two graphs."""

    sources: tuple[Tree, ...]
    targets: tuple[Tree, ...]


@dataclass(frozen=True)
class _Graph:
    """Tensors in order: by number of their value, with their trees; which of them nobody reads."""

    values: tuple[int, ...]
    trees: tuple[Tree, ...]
    unused: tuple[int, ...] = ()
    last: tuple[str, tuple[int, ...]] = ("", ())
    """The operator that was appended last, and the values that it reads."""
    made: int = 0
    """How many tensors the last operator made."""


@dataclass
class Search:
    """All graphs of up to ``depth`` operators, and the rules among them.

    They are visited twice: first, what they make is counted; then those are compared that make what another one does.
    """

    depth: int
    visited: int = 0
    rules: dict[tuple[tuple[Tree, ...], tuple[Tree, ...]], Rule] = field(default_factory=dict)
    _tensors: list[Tensor | None] = field(default_factory=list)
    """By number; what is made last is not kept."""
    _made_by: list[tuple[str, tuple[int, ...], int]] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)
    _results: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)
    _keys: "array[int]" = field(default_factory=lambda: array("q"))
    _repeated: frozenset[int] | None = None
    _seen: dict[tuple[int, ...], tuple[Tree, ...]] = field(default_factory=dict)

    def run(self) -> list[Rule]:
        start = [self._number(value, (name, (), 0)) for name, value in inputs(DIMENSIONS[0], 1).items()]
        for number, value in zip(start, inputs(DIMENSIONS[0], 1).values(), strict=True):
            self._tensors[number] = value
        graph = _Graph(tuple(start), tuple(("input", name) for name in INPUTS))
        self._extend(graph, self.depth)
        found, counts = np.unique(np.frombuffer(self._keys, np.int64), return_counts=True)
        self._repeated = frozenset(found[counts > 1].tolist())
        self._extend(graph, self.depth)
        return without_instances(list(self.rules.values()))

    def _number(self, value: Tensor, made_by: tuple[str, tuple[int, ...], int]) -> int:
        if value.key not in self._numbers:
            self._numbers[value.key] = len(self._tensors)
            self._tensors.append(None)
            self._made_by.append(made_by)
        return self._numbers[value.key]

    def _tensor(self, number: int) -> Tensor:
        found = self._tensors[number]
        if found is None:
            op, operands, output = self._made_by[number]
            made = [constant(op, DIMENSIONS[0])] if op in CONSTANTS else applied(op, list(map(self._tensor, operands)))
            found = self._tensors[number] = made[output]
        return found

    def _extend(self, graph: _Graph, left: int) -> None:
        for op, places in self._applications(graph, must_join=len(graph.unused) > 1 and left == 1):
            larger = self._appended(graph, op, places)
            if larger is not None:
                self._visit(larger)
                if left > 1:
                    self._extend(larger, left - 1)

    def _appended(self, graph: _Graph, op: str, places: tuple[int, ...]) -> _Graph | None:
        """``graph`` with one more operator; None if that computes what is there already, or comes in another order."""
        count = len(graph.values)
        reads = tuple(graph.values[place] for place in places)
        if all(place < count - graph.made for place in places) and (op, reads) <= graph.last:
            return None
        found = self._apply(op, reads)
        if not found or any(value in graph.values for value in found):
            return None
        operands = tuple(graph.trees[place] for place in places)
        trees = [(op, *operands)] if len(found) == 1 else [(f"{op}.{half}", *operands) for half in range(2)]
        unused = (*(place for place in graph.unused if place not in places), *range(count, count + len(found)))
        return _Graph(graph.values + found, (*graph.trees, *trees), unused, (op, reads), len(found))

    def _applications(self, graph: _Graph, *, must_join: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Operators and places of operands; not those of inputs only if they ``must_join`` what is there."""
        if not must_join:
            yield from ((name, ()) for name in CONSTANTS)
        first = len(INPUTS) if must_join else 0
        for place in range(first, len(graph.values)):
            yield from ((op, (place,)) for op in _UNARY if op != "enlarge" or place < len(INPUTS))
        for a in range(len(graph.values)):
            for b in range(first if a < first else 0, len(graph.values)):
                yield from ((op, (a, b)) for op in self._joining(graph, a, b))

    def _joining(self, graph: _Graph, a: int, b: int) -> Sequence[str]:
        """Operators of two operands that may fit."""
        left, right = (self._tensor(graph.values[place]).data.ndim for place in (a, b))
        match left, right:
            case 2, 2:
                return ("matmul", *_BOTH) if a < b else ("matmul", "add", "mul") if a == b else ("matmul",)
            case 4, 4:
                convolutions = () if graph.trees[a][-1] in _WEIGHTS else ("conv", "convrelu")
                return (*convolutions, *_BOTH) if a < b else (*convolutions, *_BOTH[:2]) if a == b else convolutions
            case 2 | 4, 0:
                return ("scale",)
            case _:
                return ()

    def _apply(self, op: str, operands: tuple[int, ...]) -> tuple[int, ...]:
        key = (op, operands)
        if key not in self._results:
            self._results[key] = self._evaluated(op, operands)
        return self._results[key]

    def _evaluated(self, op: str, operands: tuple[int, ...]) -> tuple[int, ...]:
        try:
            made = [constant(op, DIMENSIONS[0])] if op in CONSTANTS else applied(op, list(map(self._tensor, operands)))
        except IllTyped:
            return ()
        if made[0].data.size > _LARGEST:
            return ()
        return tuple(self._number(value, (op, operands, output)) for output, value in enumerate(made))

    def _visit(self, graph: _Graph) -> None:
        ordered = sorted(graph.unused, key=lambda place: graph.values[place])
        key = tuple(graph.values[place] for place in ordered)
        if self._repeated is None:
            self.visited += 1
            self._keys.append(hash(key))
        elif hash(key) in self._repeated:
            self._compare(key, tuple(graph.trees[place] for place in ordered))

    def _compare(self, key: tuple[int, ...], trees: tuple[Tree, ...]) -> None:
        known = self._seen.setdefault(key, trees)
        if known == trees or _is_congruence(known, trees):
            return
        if not (in_order(known) or in_order(trees)) or _leaves_of(known) & _leaves_of(trees):
            return
        if any(tree[1:] == () for tree in known + trees if len(known) > 1):  # a constant side by side with something
            return
        sides = renamed(known + trees, len(known)), renamed(trees + known, len(known))
        self.rules.setdefault(min(sides, key=repr), Rule(*sides[0]))


# Which rules say something new (TASO, section 2.3)


def parts_of(tree: Tree) -> Iterator[Tree]:
    yield tree
    for operand in tree[1:]:
        if isinstance(operand, tuple):
            yield from parts_of(operand)


def names_in(trees: Sequence[Tree]) -> list[str]:
    """Inputs, in the order of their first occurrence."""
    return list(dict.fromkeys(str(part[1]) for tree in trees for part in parts_of(tree) if part[0] == "input"))


def in_order(trees: Sequence[Tree]) -> bool:
    """Whether ``x1`` comes before ``x2``."""
    counts: dict[str, int] = {}
    for name in names_in(trees):
        counts[name[0]] = counts.get(name[0], 0) + 1
        if name[1:] != str(counts[name[0]]):
            return False
    return True


def renamed(trees: Sequence[Tree], count: int) -> tuple[tuple[Tree, ...], tuple[Tree, ...]]:
    """The first ``count`` trees and the others, their inputs in order."""
    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    for name in names_in(trees):
        counts[name[0]] = counts.get(name[0], 0) + 1
        names[name] = f"{name[0]}{counts[name[0]]}"

    def visit(tree: Tree) -> Tree:
        if tree[0] == "input":
            return ("input", names[str(tree[1])])
        return (tree[0], *(visit(operand) for operand in tree[1:] if isinstance(operand, tuple)))

    made = tuple(map(visit, trees))
    return made[:count], made[count:]


def _leaves_of(trees: Sequence[Tree]) -> set[Tree]:
    """What is computed of inputs only."""
    return {
        part
        for tree in trees
        for part in parts_of(tree)
        if part[0] != "input" and part[1:] and all(isinstance(o, tuple) and o[0] == "input" for o in part[1:])
    }


def _is_congruence(one: Sequence[Tree], other: Sequence[Tree]) -> bool:
    """Whether both end with one operator, and differ in one operand."""
    if len(one) > 1 or len(other) > 1 or one[0][0] != other[0][0] or len(one[0]) != len(other[0]):
        return False
    return sum(a != b for a, b in zip(one[0][1:], other[0][1:], strict=True)) <= 1


def without_instances(rules: Sequence[Rule]) -> list[Rule]:
    """Without those that another one becomes when names are changed; two names may become one."""
    ordered = sorted(rules, key=lambda rule: -len(names_in(rule.sources + rule.targets)))
    general: dict[str, list[tuple[str, ...]]] = {}
    kept: list[Rule] = []
    for rule in ordered:
        sides = [_taken_apart(rule.sources + rule.targets), _taken_apart(rule.targets + rule.sources)]
        if not any(_becomes(names, own) for shape, own in sides for names in general.get(shape, ())):
            kept.append(rule)
        for shape, own in sides:
            general.setdefault(shape, []).append(own)
    return kept


def _taken_apart(trees: Sequence[Tree]) -> tuple[str, tuple[str, ...]]:
    """The operators, and the names of inputs at all places."""
    names: list[str] = []

    def visit(tree: Tree) -> str:
        if tree[0] == "input":
            names.append(str(tree[1]))
            return "_"
        return f"{tree[0]}({', '.join(visit(operand) for operand in tree[1:] if isinstance(operand, tuple))})"

    return "; ".join(map(visit, trees)), tuple(names)


def _becomes(general: Sequence[str], special: Sequence[str]) -> bool:
    """Whether names of one kind, or products' operands, are put in the place of ``general`` ones."""
    known: dict[str, str] = {}
    return all(
        known.setdefault(a, b) == b and (a[0] == b[0] or {a[0], b[0]} == {"x", "w"})
        for a, b in zip(general, special, strict=True)
    )


# Other extents


def evaluated(tree: Tree, given: dict[str, Tensor], dimensions: dict[str, int], seed: int) -> Tensor:
    """Raises ``IllTyped``."""
    op = str(tree[0])
    if op == "input":
        return given[str(tree[1])]
    if op in CONSTANTS:
        return constant(op, dimensions)
    operands = [evaluated(operand, given, dimensions, seed) for operand in tree[1:] if isinstance(operand, tuple)]
    base, _, half = op.partition(".")
    return applied(base, operands, seed)[int(half or 0)]


def holds(rule: Rule) -> bool:
    """Whether both sides are well-typed and equal at all extents, relu being another function at each."""
    for seed, dimensions in enumerate(DIMENSIONS, start=1):
        given = inputs(dimensions, seed)
        try:
            sides = [
                [evaluated(tree, given, dimensions, seed).data for tree in s] for s in (rule.sources, rule.targets)
            ]
        except IllTyped:
            return False
        if not all(map(np.array_equal, *sides)):
            return False
    return True
