"""The innermost statements of a pattern (``sketch.pattern``): as ``sites.py`` has them, with symbols for numbers.

An index is a sum: a constant, and for each loop a factor, which is a polynomial over the symbols. What is not linear is
a quotient or a remainder by such a polynomial (``Part``), which buffers of the size of a tile are indexed with.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Alloc, Block, Buffer, If, Loop, Seq, Stmt, Store, Stores
from tilewright.loops.program import Program
from tilewright.symbolic.check import Check
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Binary, Expr, Read, Var, const
from tilewright.symbolic.linear import Monomial, Polynomial, combine, multiply, polynomial
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import reads_in, transform_reads
from tilewright.tune.features.operations import NO_OPERATIONS, Mode, Operations, operations_in

Coefficient: TypeAlias = tuple[tuple[Monomial, int], ...]
"""A polynomial over symbols."""


@dataclass(frozen=True, slots=True)
class Part:
    """``number // divisor`` or ``number % divisor``. ``axes``: ``number`` over the axes of the block: factors, and
    extents."""

    is_remainder: bool
    number: "Form"
    divisor: Coefficient
    start: Coefficient
    axes: tuple[tuple[Coefficient, Expr], ...]

    @property
    def loops(self) -> frozenset[str]:
        """Those that it depends on."""
        return frozenset(loop for loop, _ in self.number.linear)


@dataclass(frozen=True, slots=True)
class Form:
    """``constant``, and factors of the variables of loops (by name) and of parts."""

    constant: Coefficient
    linear: tuple[tuple[str, Coefficient], ...]
    parts: tuple[tuple[Part, Coefficient], ...] = ()

    @property
    def loops(self) -> frozenset[str]:
        """Those that it depends on."""
        return frozenset(loop for loop, _ in self.linear).union(*(part.loops for part, _ in self.parts))


@dataclass(frozen=True, slots=True)
class OpenAccess:
    """What a statement does with one buffer: ``points`` has the form of each dimension, once for each place."""

    buffer: Buffer
    points: tuple[tuple[Form, ...], ...]
    is_read: bool
    is_written: bool


@dataclass(frozen=True, slots=True)
class OpenAllocated:
    """The shape of a buffer, and the loops around where it is made."""

    shape: tuple[Expr, ...]
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """An index or a value whose arithmetic depends on symbols: over the axes of a block, with their extents."""

    expr: Expr
    extents: tuple[tuple[Var, Expr], ...]


@dataclass(frozen=True, slots=True)
class OpenSite:
    """A statement. The access to ``buffer``, which it writes, is the first one."""

    block: str
    loops: tuple[str, ...]
    buffer: Buffer
    accesses: tuple[OpenAccess, ...]
    operations: Operations
    """Of one iteration, without those of ``indices``."""
    indices: tuple[Index, ...]
    spatial: frozenset[str]
    reducing: frozenset[str]
    allocated: OpenAllocated | None


@dataclass(frozen=True, slots=True)
class OpenSites:
    """All statements, and the extent of each loop."""

    sites: tuple[OpenSite, ...]
    extents: Mapping[str, Expr]


def open_sites(program: Program) -> OpenSites:
    """The statements of ``program``, in its order. Raises ``Unsupported`` for what only numbers tell."""
    walker = _Walker(frozenset(dim.var for dim in program.dims))
    walker.visit(program.body, _Scope((), None, {}, (), frozenset(), frozenset()))
    return OpenSites(tuple(walker.found), walker.extents)


@dataclass(frozen=True, slots=True)
class _Scope:
    loops: tuple[str, ...]
    block: str | None
    forms: Mapping[Var, Form]
    axes: tuple[tuple[Var, Expr], ...]
    spatial: frozenset[str]
    reducing: frozenset[str]


class _Walker:
    def __init__(self, symbols: frozenset[Var]) -> None:
        self.found: list[OpenSite] = []
        self.extents: dict[str, Expr] = {}
        self._symbols = symbols
        self._allocated: dict[str, OpenAllocated] = {}

    def visit(self, stmt: Stmt, at: _Scope) -> None:
        match stmt:
            case Loop():
                self._loop(stmt, at)
            case Block():
                self._block(stmt, at)
            case Seq(statements) | Stores(statements):
                for inner in statements:
                    self.visit(inner, at)
            case Alloc(buffer, body):
                self._allocated[buffer.name] = OpenAllocated(buffer.shape, at.loops)
                self.visit(body, at)
            case If(_, then, otherwise):
                self.visit(then, at)
                if otherwise is not None:
                    self.visit(otherwise, at)
            case Store():
                self._store(stmt, at)
            case _:
                raise Unsupported(f"a {type(stmt).__name__} is not looked at with symbols")

    def _loop(self, loop: Loop, at: _Scope) -> None:
        if loop.kind.is_of_device:
            raise Unsupported("loops of a device are not looked at with symbols")
        name = loop.var.name
        self.extents[name] = loop.extent
        forms = {**at.forms, loop.var: Form((), ((name, _ONE),))}
        inner = _Scope((*at.loops, name), at.block, forms, at.axes, at.spatial, at.reducing)
        self.visit(loop.body, inner)

    def _block(self, block: Block, at: _Scope) -> None:
        if at.block is not None:
            raise Unsupported("blocks within blocks are not looked at with symbols")
        forms: dict[Var, Form] = {}
        followed: dict[bool, frozenset[str]] = {True: at.spatial, False: at.reducing}
        for axis, binding in zip(block.axes, block.bindings, strict=True):
            forms[axis.var] = form = self._form(binding, at)
            followed[axis.kind is IterKind.SPATIAL] |= form.loops
        axes = tuple((axis.var, axis.extent) for axis in block.axes)
        self.visit(block.body, _Scope(at.loops, block.name, forms, axes, followed[True], followed[False]))

    def _store(self, store: Store, at: _Scope) -> None:
        if at.block is None:
            raise Unsupported("statements outside of blocks are not looked at with symbols")
        gathered: dict[str, _Gathered] = {}
        _add(gathered, store.buffer, self._point(store.indices, at), writes=True)
        for expr in (store.value, *store.indices):
            for read in reads_in(expr):
                if isinstance(read.source, Buffer):
                    _add(gathered, read.source, self._point(read.indices, at), writes=False)
        operations, indices = self._operations(store.value, at)
        accesses = tuple(one.access() for one in gathered.values())
        allocated = self._allocated.get(store.buffer.name)
        self.found.append(
            OpenSite(
                at.block,
                at.loops,
                store.buffer,
                accesses,
                operations,
                indices,
                at.spatial,
                at.reducing,
                allocated,
            )
        )

    def _operations(self, value: Expr, at: _Scope) -> tuple[Operations, tuple[Index, ...]]:
        """The operations of ``value`` that are the same for all numbers, and the indices that have others."""
        indices: list[Index] = []
        total = NO_OPERATIONS
        for read in reads_in(value):
            for index in read.indices:
                if not self._symbols.isdisjoint(index.variables):
                    indices.append(Index(index, at.axes))
                else:
                    total = total.plus(operations_in(index, Mode.REPAIRED))
        bare = transform_reads(value, lambda read: Read(read.source, tuple(const(0) for _ in read.indices)))
        if not self._symbols.isdisjoint(bare.variables):
            return total, (*indices, Index(bare, at.axes))
        return total.plus(operations_in(bare, Mode.REPAIRED)), tuple(indices)

    # --- forms ---------------------------------------------------------------------------------------------------

    def _point(self, indices: Iterable[Expr], at: _Scope) -> tuple[Form, ...]:
        return tuple(self._form(index, at) for index in indices)

    def _form(self, expr: Expr, at: _Scope) -> Form:
        """``expr`` over loops."""
        constant: Polynomial = {}
        linear: dict[str, Polynomial] = {}
        parts: dict[Part, Polynomial] = {}
        for monomial, factor in polynomial(expr).items():
            scale, atom = self._factored(monomial, factor)
            inner = Form(_ONE, ()) if atom is None else self._atom(atom, at)
            constant = combine(constant, multiply(dict(inner.constant), scale))
            for loop, own in inner.linear:
                linear[loop] = combine(linear.get(loop, {}), multiply(dict(own), scale))
            for part, own in inner.parts:
                parts[part] = combine(parts.get(part, {}), multiply(dict(own), scale))
        return Form(
            _frozen(constant),
            tuple([(loop, _frozen(own)) for loop, own in linear.items() if own]),
            tuple([(part, _frozen(own)) for part, own in parts.items() if own]),
        )

    def _factored(self, monomial: Monomial, factor: int) -> tuple[Polynomial, Expr | None]:
        """The part of a monomial that consists of symbols, and the other one."""
        known = tuple(atom for atom in monomial if atom.variables and atom.variables <= self._symbols)
        others = [atom for atom in monomial if atom not in known]
        if len(others) > 1:
            raise Unsupported("products of loops are not looked at with symbols")
        return {known: factor}, others[0] if others else None

    def _atom(self, atom: Expr, at: _Scope) -> Form:
        match atom:
            case Var() if atom in at.forms:
                return at.forms[atom]
            case Check():
                return self._form(atom.index, at)
            case Binary(BinaryOp.FLOORDIV | BinaryOp.MOD, number, divisor) if divisor.variables <= self._symbols:
                return Form((), (), ((self._part(atom.op is BinaryOp.MOD, number, divisor, at), _ONE),))
            case _:
                raise Unsupported(f"the index {atom} is not looked at with symbols")

    def _part(self, is_remainder: bool, number: Expr, divisor: Expr, at: _Scope) -> Part:
        form = self._form(number, at)
        if form.parts:
            raise Unsupported("parts of parts of an index are not looked at with symbols")
        if not divisor.variables and any(monomial for _, own in form.linear for monomial, _ in own):
            raise Unsupported("how parts by a number are written depends on what divides it")
        extents = dict(at.axes)
        start: Polynomial = {}
        axes: list[tuple[Coefficient, Expr]] = []
        for monomial, factor in polynomial(number).items():
            scale, axis = self._factored(monomial, factor)
            if axis is None:
                start = combine(start, scale)
            elif isinstance(axis, Var) and axis in extents:
                axes.append((_frozen(scale), extents[axis]))
            else:
                raise Unsupported("parts of loops are not looked at with symbols")
        return Part(is_remainder, form, _frozen(polynomial(divisor)), _frozen(start), tuple(axes))


_ONE: Coefficient = (((), 1),)


def _frozen(terms: Polynomial) -> Coefficient:
    return tuple(sorted(terms.items(), key=lambda item: tuple(map(str, item[0]))))


@dataclass(slots=True)
class _Gathered:
    """An access in the making."""

    buffer: Buffer
    points: dict[tuple[Form, ...], None]
    is_read: bool = False
    is_written: bool = False

    def access(self) -> OpenAccess:
        return OpenAccess(self.buffer, tuple(self.points), self.is_read, self.is_written)


def _add(gathered: dict[str, _Gathered], buffer: Buffer, point: tuple[Form, ...], *, writes: bool) -> None:
    found = gathered.setdefault(buffer.name, _Gathered(buffer, {}))
    found.points[point] = None
    found.is_written |= writes
    found.is_read |= not writes


def symbol_terms(expr: Expr, symbols: frozenset[Var]) -> list[Expr]:
    """The largest parts of ``expr`` that are over symbols only."""
    if expr.variables and expr.variables <= symbols:
        return [expr]
    return [found for operand in expr.operands() for found in symbol_terms(operand, symbols)]
