"""The blocks of a placed program: what they are, and which part of each buffer a tile of the result needs.

Buffers consist of tiles of a memory (their last two dimensions); *positions* are those of the other dimensions. An
index is a sum of axes, so a part of ``n`` positions along each axis reads ``1 + sum of factor * (n - 1)`` positions of
an operand. From the result back to the loads, this says what a tile of the result needs of everything.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from math import prod

from tilewright.backend.vta.compiler.elementwise import chain_of
from tilewright.backend.vta.compiler.places import passing, shared
from tilewright.backend.vta.config import ACCUMULATOR_BITS, Config, Scratchpad
from tilewright.backend.vta.memories import memories
from tilewright.backend.vta.schedules.roles import factors_of, fetches
from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Alloc, Block, Seq, Stmt, Store
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.schedule.tree import all_blocks, buffers_of
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Const, Expr, Read, Var
from tilewright.symbolic.simplify import linear_form
from tilewright.symbolic.traversal import reads_in

Positions = tuple[int, ...]
"""How many positions of each dimension, or of each axis."""


class Kind(Enum):
    """What a block does."""

    RESULT = "result"
    """Stores."""
    PRODUCT = "product"
    """Sums up products, by GEMM."""
    COMPUTED = "computed"
    """Everything else on accumulators, by ALU."""
    LOADED = "loaded"
    """Copies from device memory."""


@dataclass(frozen=True, slots=True)
class Index:
    """Positions along a dimension that a block reads: a sum over axes, and what several reads add to its extent."""

    terms: tuple[tuple[int, int], ...]
    extra: int
    is_whole: bool = False
    """Whether it is no such sum: then all is taken to be read."""

    def positions(self, along: Positions) -> int:
        """How many, for so many of each axis."""
        return 1 + self.extra + sum(abs(factor) * (along[axis] - 1) for axis, factor in self.terms)


@dataclass(frozen=True, slots=True)
class Part:
    """A block. Its axes are those over positions of its result, then those that are summed over."""

    name: str
    kind: Kind
    buffer: str
    pad: Scratchpad
    """The memory of what it writes; of the result, ``out``."""
    summed: Positions
    """Extents of summed axes; a product's last one, which is in its tiles, left out."""
    reads: tuple[tuple[str, tuple[Index, ...]], ...]
    passes: int
    """Over each tile that it writes: resets, and operations of ALU, of which those of two operands count twice."""


@dataclass(frozen=True, slots=True)
class Needed:
    """What a tile of the result needs: positions of each buffer; products of each block; accumulators, each as often as
    ALU goes over it."""

    regions: Mapping[str, Positions]
    products: Mapping[str, int]
    passed: int


@dataclass(frozen=True)
class Computation:
    """All blocks in order, the result last. ``extents``: positions of each buffer."""

    parts: tuple[Part, ...]
    extents: Mapping[str, Positions]
    roots: Mapping[str, str]
    """Of each buffer in acc, the one whose tiles it takes."""
    passing: frozenset[str]
    """Roots that all virtual threads have in one place."""
    _known: dict[Positions, Needed] = field(default_factory=dict[Positions, Needed], compare=False, repr=False)

    @property
    def result(self) -> Part:
        """What is stored."""
        return self.parts[-1]

    @property
    def sizes(self) -> Positions:
        """Positions of the result."""
        return self.extents[self.result.buffer]

    @cached_property
    def named(self) -> Mapping[str, Part]:
        """The blocks by name."""
        return {part.name: part for part in self.parts}

    @cached_property
    def products(self) -> tuple[Part, ...]:
        """The blocks for GEMM."""
        return tuple(part for part in self.parts if part.kind is Kind.PRODUCT)

    @cached_property
    def loads(self) -> tuple[Part, ...]:
        """The blocks that copy to the chip."""
        return tuple(part for part in self.parts if part.kind is Kind.LOADED)

    @cached_property
    def passes(self) -> int:
        """Over accumulators, for each tile of the result."""
        return sum(part.passes for part in self.parts)

    @cached_property
    def readers(self) -> Mapping[str, tuple[Part, ...]]:
        """Of each buffer, the blocks that read it."""
        return {
            part.buffer: tuple(other for other in self.parts if part.buffer in dict(other.reads)) for part in self.parts
        }

    def product_of(self, load: Part) -> Part | None:
        """The one product that a block loads a factor of."""
        readers = self.readers[load.buffer]
        return readers[0] if len(readers) == 1 and readers[0].kind is Kind.PRODUCT else None

    def factors(self, product: Part) -> tuple[Part, ...]:
        """What loads the factors of a product."""
        return self._factors[product.name]

    @cached_property
    def _factors(self) -> Mapping[str, tuple[Part, ...]]:
        return {
            product.name: tuple(load for load in self.loads if load.buffer in dict(product.reads))
            for product in self.products
        }

    def needed(self, sizes: Positions) -> "Needed":
        """What a tile of the result needs. Answers are kept: candidates have sizes in common."""
        if sizes not in self._known:
            self._known[sizes] = self._needed(sizes)
        return self._known[sizes]

    def _needed(self, sizes: Positions) -> "Needed":
        found: dict[str, Positions] = {self.result.buffer: sizes}
        for part in reversed(self.parts):
            along = (*found.get(part.buffer, self.extents[part.buffer]), *part.summed)
            for buffer, _ in part.reads:
                own, before = self.read(part, buffer, along), found.get(buffer)
                found[buffer] = own if before is None else tuple(map(max, own, before))
        tiles = {part.name: prod(found[part.buffer]) for part in self.parts}
        return Needed(
            found,
            {part.name: tiles[part.name] * prod(part.summed) for part in self.products},
            sum(part.passes * tiles[part.name] for part in self.parts),
        )

    def read(self, part: Part, buffer: str, along: Positions) -> Positions:
        """Positions of a buffer that a block reads for so many of each of its axes."""
        return tuple(
            limit if index.is_whole else min(limit, index.positions(along))
            for index, limit in zip(dict(part.reads)[buffer], self.extents[buffer], strict=True)
        )

    @cached_property
    def dependence(self) -> Mapping[str, frozenset[int]]:
        """The dimensions of the result along which the needed part of each buffer moves."""
        moving: dict[str, tuple[frozenset[int], ...]] = {
            self.result.buffer: tuple(frozenset({place}) for place in range(len(self.sizes)))
        }
        for part in reversed(self.parts):
            along = (*moving[part.buffer], *(frozenset[int]() for _ in part.summed))
            for buffer, indices in part.reads:
                everywhere = frozenset[int]().union(*along)
                own = tuple(
                    everywhere if index.is_whole else frozenset[int]().union(*(along[axis] for axis, _ in index.terms))
                    for index in indices
                )
                before = moving.get(buffer, tuple(frozenset[int]() for _ in own))
                moving[buffer] = tuple(a | b for a, b in zip(own, before, strict=True))
        return {buffer: frozenset[int]().union(*sets) for buffer, sets in moving.items()}


def computation_of(program: Program, config: Config) -> Computation:
    """The blocks of a placed program. Raises ``Unsupported`` for what the accelerator can't compute."""
    buffers = [stmt.buffer for stmt in walk(program.body) if isinstance(stmt, Alloc)]
    body = Seq(tuple(_nests(program.body)))
    together = shared(buffers, body, config)
    blocks = sorted(all_blocks(program.body), key=lambda block: block.writes[0].buffer == program.results[0])
    parts = tuple(_part(block, program, config, together) for block in blocks)
    extents = {name: _positions(buffer.shape) for name, buffer in buffers_of(program).items()}
    roots = {buffer.name: _root(buffer.name, together) for buffer in buffers if buffer.memory == memories(config).acc}
    return Computation(parts, extents, roots, passing(buffers, body, together, config))


def _nests(stmt: Stmt) -> Iterator[Stmt]:
    """The nests of a program, without allocations around them."""
    match stmt:
        case Seq(statements):
            for inner in statements:
                yield from _nests(inner)
        case Alloc(body=body):
            yield from _nests(body)
        case _:
            yield stmt


def _root(name: str, together: Mapping[str, str]) -> str:
    while name in together:
        name = together[name]
    return name


def _positions(shape: Sequence[Expr]) -> Positions:
    return tuple(_extent(extent) for extent in shape[:-2])


def _extent(extent: Expr) -> int:
    if not isinstance(extent, Const):
        raise Unsupported(f"an extent is {extent}: the accelerator's programs have fixed ones; compile one for each")
    return int(extent.value)


def _part(block: Block, program: Program, config: Config, together: Mapping[str, str]) -> Part:
    kind, written = _kind(block, program), block.writes[0].buffer
    spatial = [axis for axis in block.axes if axis.kind is IterKind.SPATIAL]
    reduced = [axis for axis in block.axes if axis.kind is not IterKind.SPATIAL]
    reduced = reduced[:-1] if kind is Kind.PRODUCT else reduced
    places = {axis.var: place for place, axis in enumerate((*spatial[:-2], *reduced))}
    bounds = Bounds({axis.var: _extent(axis.extent) for axis in block.axes})
    reads = () if kind is Kind.LOADED else _readings(block, places, bounds)
    summed = tuple(_extent(axis.extent) for axis in reduced)
    passes = _passes(block, kind, summed, written.name in together, config)
    return Part(block.name, kind, written.name, _pad(block, kind, config), summed, reads, passes)


def _kind(block: Block, program: Program) -> Kind:
    if block.writes[0].buffer == program.results[0]:
        return Kind.RESULT
    if fetches(block, program.params):
        return Kind.LOADED
    return Kind.PRODUCT if factors_of(block) is not None else Kind.COMPUTED


def _pad(block: Block, kind: Kind, config: Config) -> Scratchpad:
    if kind is Kind.RESULT:
        return Scratchpad.OUT
    pad = memories(config).pad(block.writes[0].buffer.memory)
    assert pad is not None, "the program is placed"
    is_narrow = kind is Kind.LOADED and pad is Scratchpad.ACC and block.writes[0].buffer.dtype.bits < ACCUMULATOR_BITS
    return Scratchpad.ACC8 if is_narrow else pad


def _value(block: Block) -> Expr:
    if not isinstance(block.body, Store):
        raise Unsupported(f"block `{block.name}` is no single store")
    return block.body.value


def _readings(block: Block, places: Mapping[Var, int], bounds: Bounds) -> tuple[tuple[str, tuple[Index, ...]], ...]:
    """What a block reads of each buffer; several reads of one are together one part of it."""
    found: dict[str, list[tuple[tuple[tuple[tuple[int, int], ...] | None, int], ...]]] = {}
    for read in reads_in(_value(block)):
        if read.source != block.writes[0].buffer:
            indices = tuple(_linear(index, places, bounds) for index in read.indices[:-2])
            found.setdefault(read.source.name, []).append(indices)
    return tuple((buffer, tuple(map(_together, zip(*own, strict=True)))) for buffer, own in found.items())


def _linear(index: Expr, places: Mapping[Var, int], bounds: Bounds) -> tuple[tuple[tuple[int, int], ...] | None, int]:
    """The axes that an index adds up, and where it begins; None if it is no sum of axes."""
    linear = linear_form(index, bounds)
    terms = [(places.get(term), factor) if isinstance(term, Var) else (None, factor) for term, factor in linear.terms]
    known = tuple((place, factor) for place, factor in terms if place is not None)
    return (known if len(known) == len(terms) else None), linear.constant


def _together(indices: Sequence[tuple[tuple[tuple[int, int], ...] | None, int]]) -> Index:
    terms, starts = [terms for terms, _ in indices], [start for _, start in indices]
    first = terms[0]
    if first is None or any(other != first for other in terms):
        return Index((), 0, is_whole=True)
    return Index(first, max(starts) - min(starts))


_COPY = 3
"""Passes to bring an accumulator to another place: its reset, and an addition of two operands."""


def _passes(block: Block, kind: Kind, summed: Positions, is_in_place: bool, config: Config) -> int:
    match kind:
        case Kind.RESULT | Kind.LOADED:
            return 0
        case Kind.PRODUCT:
            return 1
        case Kind.COMPUTED if summed:
            return 1 + 2 * prod(summed)
        case Kind.COMPUTED:
            chain = chain_of(_value(block), config)
            own = sum(1 if isinstance(one.operand, int) else 2 for one in chain.operations)
            start = 0 if is_in_place else _COPY if isinstance(chain.start, Read) else 2
            return own + start
