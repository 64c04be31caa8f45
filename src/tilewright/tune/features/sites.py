"""The innermost statements of a scheduled program: the loops around each, and where in buffers it is, over these loops.

An index is a *form*: a constant and a sum of terms, each a factor of a loop's variable, or of what is not linear in
loops (``fused // 8``). Loops that run once are none. What is known at run time only is taken to be as large as it may
be, or ``GUESSED_EXTENT``; what conditions leave out is not looked at, nor are inits, which run far less often.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod

from tilewright.base.errors import Unsupported
from tilewright.loops.ir import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    Call,
    Callee,
    If,
    Loop,
    LoopKind,
    Seq,
    Stmt,
    Store,
    Stores,
)
from tilewright.loops.program import Intrinsic, Program
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.check import Check
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ZERO, Const, Expr, Var, const
from tilewright.symbolic.linear import LinearForm, linear_form_of, polynomial
from tilewright.symbolic.traversal import reads_in, substitute
from tilewright.target.machine import GUESSED_EXTENT
from tilewright.tune.features.operations import NO_OPERATIONS, Mode, Operations, operations_in


@dataclass(frozen=True, slots=True)
class LoopAround:
    """A loop; ``number`` tells it from all others of the program."""

    number: int
    var: Var
    extent: int
    kind: LoopKind


@dataclass(frozen=True, slots=True)
class Access:
    """What a statement does with one buffer: ``points`` has the index of each dimension, and how many elements it is of
    (more than one in a region that an intrinsic takes), once for each different place."""

    buffer: Buffer
    shape: tuple[int, ...]
    points: tuple[tuple[tuple[LinearForm, int], ...], ...]
    is_read: bool
    is_written: bool

    @property
    def elements(self) -> int:
        """That one iteration accesses."""
        return sum(prod(extent for _, extent in point) for point in self.points)


@dataclass(frozen=True, slots=True)
class Allocated:
    """Where a buffer exists: how many elements it has, and how many times it is made."""

    elements: int
    times: int


@dataclass(frozen=True, slots=True)
class Site:
    """A statement. ``accesses``: that to ``buffer``, which it writes, is the first one."""

    loops: tuple[LoopAround, ...]
    buffer: Buffer
    accesses: tuple[Access, ...]
    operations: Operations
    """Of one iteration."""
    spatial: frozenset[Var]
    """The loops that axes follow along which different elements are written; and the others:"""
    reducing: frozenset[Var]
    allocated: Allocated | None
    """None for the program's results."""


def sites(program: Program, mode: Mode) -> list[Site]:
    """The statements of ``program``, in its order.

    Raises ``Unsupported`` for calls of other programs, and for loops that run as often as data say.
    """
    walker = _Walker(program, mode)
    walker.visit(program.body, _Scope.outermost(program))
    return walker.found


@dataclass(frozen=True, slots=True)
class _Scope:
    """What variables are, over loops: ``forms``, and ``values``, which are over the variables of ``outer``.

    ``known``: forms that were made here. Scopes whose ``forms`` are the same share it.
    """

    outer: "_Scope | None"
    loops: tuple[LoopAround, ...]
    forms: Mapping[Expr, LinearForm]
    values: Mapping[Var, Expr]
    spatial: frozenset[Var] = frozenset()
    reducing: frozenset[Var] = frozenset()
    known: dict[Expr, LinearForm] = field(default_factory=dict[Expr, LinearForm])

    @staticmethod
    def outermost(program: Program) -> "_Scope":
        sizes: dict[Var, Expr] = {
            dim.var: const(GUESSED_EXTENT if dim.bound is None else dim.bound) for dim in program.dims
        }
        return _Scope(None, (), {var: _form(size) for var, size in sizes.items()}, sizes)

    def within(self, loop: LoopAround) -> "_Scope":
        if loop.extent == 1:
            once: dict[Expr, LinearForm] = {**self.forms, loop.var: _form(ZERO)}
            return _Scope(self, self.loops, once, {loop.var: ZERO}, self.spatial, self.reducing)
        return replace(self, loops=(*self.loops, loop))

    def of_block(self, block: Block) -> "_Scope":
        forms: dict[Expr, LinearForm] = dict(self.forms)
        followed: dict[bool, set[Var]] = {True: set(), False: set()}
        for axis, binding in zip(block.axes, block.bindings, strict=True):
            form = self.form(binding)
            forms[axis.var] = form
            for term, _ in form.terms:
                followed[axis.kind is IterKind.SPATIAL].update(term.variables)
        values = {axis.var: binding for axis, binding in zip(block.axes, block.bindings, strict=True)}
        spatial, reducing = self.spatial | followed[True], self.reducing | followed[False]
        return _Scope(self, self.loops, forms, values, spatial, reducing)

    def form(self, expr: Expr) -> LinearForm:
        """``expr`` over loops."""
        found = self.forms.get(expr) or self.known.get(expr)
        if found is None:
            self.known[expr] = found = self._composed(_form(expr))
        return found

    def _composed(self, form: LinearForm) -> LinearForm:
        constant, terms = form.constant, dict[Expr, int]()
        for atom, factor in form.terms:
            inner = self.forms.get(atom) or self._atom(atom)
            constant += factor * inner.constant
            for term, own in inner.terms:
                terms[term] = terms.get(term, 0) + factor * own
        return LinearForm(constant, tuple([item for item in terms.items() if item[1]]))

    def _atom(self, atom: Expr) -> LinearForm:
        if isinstance(atom, Var):
            return LinearForm(0, ((atom, 1),))
        resolved = self.resolved(atom)
        while isinstance(resolved, Check):
            resolved = resolved.index
        return _form(resolved)

    def resolved(self, expr: Expr) -> Expr:
        """``expr``, with the variables of loops only."""
        inner = substitute(expr, self.values) if self.values else expr
        return inner if self.outer is None else self.outer.resolved(inner)


class _Walker:
    def __init__(self, program: Program, mode: Mode) -> None:
        self.found: list[Site] = []
        self._mode = mode
        self._intrinsics = {intrinsic.name: intrinsic for intrinsic in program.intrinsics}
        self._loops = 0
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._allocated: dict[str, Allocated] = {}

    def visit(self, stmt: Stmt, at: _Scope) -> None:
        match stmt:
            case Loop():
                self._loops += 1
                extent = max(_size(stmt.extent, at), 1)
                self.visit(stmt.body, at.within(LoopAround(self._loops, stmt.var, extent, stmt.kind)))
            case Block():
                self.visit(stmt.body, at.of_block(stmt))
            case Seq(statements) | Stores(statements):
                for inner in statements:
                    self.visit(inner, at)
            case Alloc(buffer, body):
                times = prod(loop.extent for loop in at.loops)
                self._allocated[buffer.name] = Allocated(prod(self._shape(buffer, at)), times)
                self.visit(body, at)
            case If(_, then, otherwise):
                self.visit(then, at)
                if otherwise is not None:
                    self.visit(otherwise, at)
            case Store():
                touched = _Touched()
                touched.add(stmt.buffer, tuple([(at.form(index), 1) for index in stmt.indices]), writes=True)
                for expr in (stmt.value, *stmt.indices):
                    for read in reads_in(expr):
                        if isinstance(read.source, Buffer):
                            touched.add(read.source, tuple([(at.form(index), 1) for index in read.indices]))
                self._add(at, touched, operations_in(stmt.value, self._mode))
            case Call():
                self._call(stmt, at)
            case Barrier():
                pass

    def _call(self, call: Call, at: _Scope) -> None:
        if call.kind is Callee.KERNEL:
            raise Unsupported(f"what `{call.callee}` computes when it is called is not known; features need its loops")
        touched = _Touched()
        count = len(call.args)
        for position in reversed(range(count)):
            ranges = call.args[position].ranges
            point = tuple([(at.form(start), _size(extent, at)) for start, extent in ranges])
            touched.add(call.args[position].buffer, point, writes=position >= count - call.outputs)
        intrinsic = self._intrinsics.get(call.callee)
        self._add(at, touched, NO_OPERATIONS if intrinsic is None else _operations_of(intrinsic, self._mode))

    def _add(self, at: _Scope, touched: "_Touched", operations: Operations) -> None:
        accesses = tuple([one.with_shape(self._shape(one.buffer, at)) for one in touched.buffers.values()])
        buffer = accesses[0].buffer
        allocated = self._allocated.get(buffer.name)
        self.found.append(Site(at.loops, buffer, accesses, operations, at.spatial, at.reducing, allocated))

    def _shape(self, buffer: Buffer, at: _Scope) -> tuple[int, ...]:
        known = self._shapes.get(buffer.name)
        if known is None:
            self._shapes[buffer.name] = known = tuple([max(_size(extent, at), 1) for extent in buffer.shape])
        return known


class _Gathered:
    """An access in the making."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.points: dict[tuple[tuple[LinearForm, int], ...], None] = {}
        self.is_read = False
        self.is_written = False

    def with_shape(self, shape: tuple[int, ...]) -> Access:
        return Access(self.buffer, shape, tuple(self.points), self.is_read, self.is_written)


class _Touched:
    """The accesses of one statement, by buffer."""

    def __init__(self) -> None:
        self.buffers: dict[str, _Gathered] = {}

    def add(self, buffer: Buffer, point: tuple[tuple[LinearForm, int], ...], *, writes: bool = False) -> None:
        found = self.buffers.setdefault(buffer.name, _Gathered(buffer))
        found.points[point] = None
        found.is_written |= writes
        found.is_read |= not writes


@lru_cache(maxsize=1 << 14)
def _form(expr: Expr) -> LinearForm:
    return linear_form_of(polynomial(expr))


def _size(extent: Expr, at: _Scope) -> int:
    """The largest value of an extent."""
    if isinstance(extent, Const):
        return int(extent.value)
    known = interval(at.resolved(extent), Bounds({loop.var: loop.extent for loop in at.loops})).hi
    if known is None:
        raise Unsupported(f"the extent {extent} is data; features need loops whose extents have a bound")
    return known


@lru_cache(maxsize=256)
def _operations_of(intrinsic: Intrinsic, mode: Mode) -> Operations:
    """Those of a call: what is computed by the program that says what it does."""
    total = NO_OPERATIONS
    for site in sites(intrinsic.description, mode):
        total = total.plus(site.operations.times(prod(loop.extent for loop in site.loops)))
    return total
