"""Stores a box of elements that are contiguous across the lanes: transposes it in registers, and stores rows.

In ``for x in unrolled(12): for c in vectorized(16): out[.., c, .., x] = value`` the lanes of each vector are far apart,
and would be scattered. But the elements of one lane over the iterations of ``x`` are contiguous: so all vectors are
computed first, transposed, and stored along ``x``. (It converts the blocked result of a convolution to the plain
layout.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tilewright.backend.cpu.offsets import LinearForm, flat_form
from tilewright.backend.cpu.text import FunctionText
from tilewright.backend.cpu.values import Value
from tilewright.loops.ir import Loop, LoopKind, Store
from tilewright.symbolic.expr import Const, Read, Var
from tilewright.symbolic.traversal import free_vars, walk

CHUNK_BYTES = 16
"""Elements are interleaved within chunks of this many bytes, and then whole chunks are moved: vector units have
instructions for both."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """``rows`` iterations of ``row``, of ``lanes`` lanes each, stored by ``store``."""

    row: Var
    rows: int
    lane: Var
    lanes: int
    store: Store


def crossing(loop: Loop) -> Crossing | None:
    """The box that ``loop`` stores, if that is its only effect, and elements are contiguous along the loop but far
    apart along its lanes."""
    inner = loop.body
    if not isinstance(inner, Loop) or (loop.kind, inner.kind) != (LoopKind.UNROLLED, LoopKind.VECTORIZED):
        return None
    match loop.extent, inner.extent, inner.body:
        case Const(int(rows)), Const(int(lanes)), Store(buffer, indices) as store:
            stride = _lane_stride(flat_form(buffer, indices), loop.var, inner.var)
        case _:
            return None
    chunk = CHUNK_BYTES // buffer.dtype.itemsize
    if not lanes >= chunk > 1 or not 2 <= rows <= stride or _reads_itself(store):
        return None
    return Crossing(loop.var, rows, inner.var, lanes, store)


def _lane_stride(form: LinearForm, row: Var, lane: Var) -> int:
    """The stride along ``lane`` if that along ``row`` is 1; 0 for other accesses."""
    factors = dict(form.terms)
    others = [atom for atom in factors if atom not in (row, lane)]
    if factors.get(row) != 1 or any({row, lane} & free_vars(atom) for atom in others):
        return 0
    return factors.get(lane, 0)


def _reads_itself(store: Store) -> bool:
    """Whether the stored value, or its index, depends on the buffer."""
    nodes = [node for expr in (store.value, *store.indices) for node in walk(expr)]
    return any(isinstance(node, Read) and node.source == store.buffer for node in nodes)


def transpose(text: FunctionText, rows: Sequence[Value]) -> list[Value]:
    """``rows`` (at most as many as lanes) transposed: a vector per lane, with ``len(rows)`` valid lanes."""
    lanes = 1 << (rows[0].lanes - 1).bit_length()
    table: list[Value | None] = [*(_widened(text, row, lanes) for row in rows), *[None] * (lanes - len(rows))]
    network = _network(lanes, CHUNK_BYTES // rows[0].dtype.itemsize)
    for span, masks in network.stages:
        for first in (place for place in range(lanes) if not place & span):
            a, b = table[first], table[first + span]
            if a is not None:
                table[first], table[first + span] = (_shuffled(text, a, b, mask) for mask in masks)
    made = [table[place] for place in network.places[: rows[0].lanes]]
    return [value for value in made if value is not None]


def _widened(text: FunctionText, row: Value, lanes: int) -> Value:
    """``row`` with ``lanes`` lanes; the added ones are undefined."""
    if row.lanes == lanes:
        return row
    picked = ", ".join(f"i32 {lane}" if lane < row.lanes else "i32 poison" for lane in range(lanes))
    line = f"shufflevector {row.typed}, {row.type} poison, <{lanes} x i32> <{picked}>"
    return Value(text.pure(line, row.depth), row.dtype, lanes, row.depth)


def _shuffled(text: FunctionText, a: Value, b: Value | None, mask: Sequence[int]) -> Value:
    """The lanes of ``a`` and ``b`` (None: undefined) that ``mask`` selects."""
    picked = ", ".join(f"i32 {lane}" for lane in mask)
    other, depth = ("poison", a.depth) if b is None else (b.text, max(a.depth, b.depth))
    line = f"shufflevector {a.typed}, {a.type} {other}, <{a.lanes} x i32> <{picked}>"
    return Value(text.pure(line, depth), a.dtype, a.lanes, depth)


Mask = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Network:
    """Each stage combines vectors that are ``span`` apart, by two masks; at the end the vector of each lane is in
    place."""

    stages: tuple[tuple[int, tuple[Mask, Mask]], ...]
    places: tuple[int, ...]


@cache
def _network(lanes: int, chunk: int) -> _Network:
    """Masks that interleave halves of chunks, in units of 1, 2, ... elements; then separate even and odd chunks."""
    inside = [(unit, _interleaving(lanes, chunk, unit)) for unit in _powers(1, chunk)]
    stages = (*inside, *((span, _even_and_odd(lanes, chunk)) for span in _powers(chunk, lanes)))
    first_row = [[(row, lane) for lane in range(lanes)] for row in range(lanes)]
    for span, masks in stages:
        for place in (place for place in range(lanes) if not place & span):
            both = first_row[place] + first_row[place + span]
            first_row[place], first_row[place + span] = ([both[lane] for lane in mask] for mask in masks)
    columns = [vector[0][1] for vector in first_row]
    return _Network(stages, tuple(columns.index(lane) for lane in range(lanes)))


def _powers(start: int, end: int) -> list[int]:
    """``start, 2 * start, ...`` below ``end``."""
    return [start << shift for shift in range((end // start).bit_length() - 1)]


def _interleaving(lanes: int, chunk: int, unit: int) -> tuple[Mask, Mask]:
    """The first (second) halves of all chunks of two vectors, unit by unit."""

    def mask(half: int) -> Mask:
        starts = [base + half * chunk // 2 + at for base in range(0, lanes, chunk) for at in range(0, chunk // 2, unit)]
        return tuple(start + vector + place for start in starts for vector in (0, lanes) for place in range(unit))

    return mask(0), mask(1)


def _even_and_odd(lanes: int, chunk: int) -> tuple[Mask, Mask]:
    """The even (odd) chunks of one vector, then those of the other."""
    bases = [vector + base for vector in (0, lanes) for base in range(0, lanes, 2 * chunk)]
    first, second = ([base + odd + place for base in bases for place in range(chunk)] for odd in (0, chunk))
    return tuple(first), tuple(second)
