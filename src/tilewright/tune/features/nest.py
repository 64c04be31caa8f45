"""Analyses the loops of a program, and how each access to a buffer moves along them, for features.

A ``Structure`` is derived once from a program. Where split factors are symbols, extents and strides are expressions
over them, so one structure describes all candidates of a sketch.

The analysis depends only on values of expressions, not on their form: the same program with its factors bound first,
which the simplifier then writes differently, has the same features. For this reason an ``init``, which schedules keep
within all loops of its block, counts as an access in all of them: the loops that it could be moved out of are not
visible if they have one iteration.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Alloc, Barrier, Block, Buffer, Call, If, Loop, LoopKind, Seq, Stmt, Store, Stores
from tilewright.loops.program import Program
from tilewright.symbolic.check import Check
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ZERO, Binary, Expr, Read, Var, cast
from tilewright.symbolic.linear import Polynomial, polynomial, to_expr
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import reads_in, substitute, transform, walk


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Operations on floats: sums and differences, products, quotients and remainders."""

    additions: int = 0
    multiplications: int = 0
    divisions: int = 0

    def __add__(self, other: "Arithmetic") -> "Arithmetic":
        return Arithmetic(
            self.additions + other.additions,
            self.multiplications + other.multiplications,
            self.divisions + other.divisions,
        )


@dataclass(frozen=True, slots=True)
class LoopSite:
    """A loop; ``level`` is 1 for an outermost one, ``arithmetic`` counts operations directly in it."""

    var: Var
    extent: Expr
    kind: LoopKind
    level: int
    arithmetic: Arithmetic = Arithmetic()


@dataclass(frozen=True, slots=True)
class Movement:
    """The change of a number along a loop, while all other loops are at 0."""

    stride: Expr
    """The difference between iterations, if it is constant."""
    value: Expr | None = None
    """Otherwise: the number as an expression of the loop's variable."""


@dataclass(frozen=True, slots=True)
class Step:
    """The movement of an access along ``loop`` (its position in the structure)."""

    loop: int
    place: Movement
    """The number of the accessed element."""
    reduction: Movement | None = None
    """For an ``init``: the sum of the reduction axes; it runs only where that is 0."""


@dataclass(frozen=True, slots=True)
class Touch:
    """An access to a buffer: the ``occurrence``-th in the program's order; ``steps``, outermost loop first."""

    buffer: str
    occurrence: int
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """``C_1`` for the second access to ``C``."""
        return f"{self.buffer}_{self.occurrence}"


@dataclass(frozen=True, slots=True)
class Structure:
    """All loops by first appearance, and all accesses, sorted by buffer; ``symbols``: variables in extents."""

    symbols: tuple[Var, ...]
    loops: tuple[LoopSite, ...]
    touches: tuple[Touch, ...]

    def touching(self, loop: int) -> Iterator[tuple[int, int]]:
        """The positions of the accesses inside ``loop``, and of their step along it."""
        step = self.loops[loop].level - 1
        for position, touch in enumerate(self.touches):
            if len(touch.steps) > step and touch.steps[step].loop == loop:
                yield position, step


def describe(program: Program) -> Structure:
    """The structure of ``program``, over its run-time extents, including symbolic split factors.

    Raises ``Unsupported`` for programs without loops, for calls and barriers, and for loop extents that depend on other
    loops or on data.
    """
    describer = _Describer()
    describer.visit(program.body, _Place())
    if not describer.loops:
        raise Unsupported(f"{program.name} has no loops, and so no features; there is nothing to be chosen for it")
    touches = sorted(describer.touches, key=lambda touch: (touch.buffer, touch.occurrence))
    return Structure(tuple(dim.var for dim in program.dims), tuple(describer.loops), tuple(touches))


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of a statement."""

    path: tuple[int, ...] = ()
    """The loops around it."""
    values: Mapping[Var, Expr] = field(default_factory=dict[Var, Expr])
    """The axes of the blocks around it, over these loops."""
    reduction: Expr | None = None
    """In an ``init``: the sum of the reduction axes, over these loops."""


class _Describer:
    def __init__(self) -> None:
        self.loops: list[LoopSite] = []
        self.touches: list[Touch] = []
        self._occurrences: dict[str, int] = {}

    def visit(self, stmt: Stmt, at: _Place) -> None:
        match stmt:
            case Loop():
                self._loop(stmt, at)
            case Block():
                self._block(stmt, at)
            case Seq(statements) | Stores(statements):
                for inner in statements:
                    self.visit(inner, at)
            case Alloc(_, body):
                self.visit(body, at)
            case If(condition, then, otherwise):
                self._value(condition, at)
                self.visit(then, at)
                if otherwise is not None:
                    self.visit(otherwise, at)
            case Store(buffer, indices, value):
                self._touch(buffer, indices, at)
                for expr in (*indices, value):
                    self._value(expr, at)
            case Call(_, callee):
                raise Unsupported(f"what `{callee}` accesses when it is called is not known; features need plain loops")
            case Barrier():
                raise Unsupported("barriers have no features")

    def _loop(self, loop: Loop, at: _Place) -> None:
        extent = substitute(loop.extent, at.values)
        varying = {self.loops[position].var for position in at.path}
        if extent.has_reads or not varying.isdisjoint(extent.variables):
            raise Unsupported(f"the extent {extent} of loop `{loop.var}` varies while the program runs")
        self.loops.append(LoopSite(loop.var, extent, loop.kind, len(at.path) + 1))
        self.visit(loop.body, replace(at, path=(*at.path, len(self.loops) - 1)))

    def _block(self, block: Block, at: _Place) -> None:
        bindings = [substitute(binding, at.values) for binding in block.bindings]
        pairs = list(zip(block.axes, bindings, strict=True))
        inside = replace(at, values={**at.values, **{axis.var: value for axis, value in pairs}})
        if block.init is not None:
            reduction = ZERO if at.reduction is None else at.reduction
            for axis, value in pairs:
                reduction = reduction + value if axis.kind is IterKind.REDUCE else reduction
            self.visit(block.init, replace(inside, reduction=reduction))
        self.visit(block.body, inside)

    def _value(self, expr: Expr, at: _Place) -> None:
        for read in reads_in(expr):
            if isinstance(read.source, Buffer):
                self._touch(read.source, read.indices, at)
        # An init runs far less often than the loops around it suggest.
        if at.path and at.reduction is None:
            site = self.loops[at.path[-1]]
            self.loops[at.path[-1]] = replace(site, arithmetic=site.arithmetic + _arithmetic(expr))

    def _touch(self, buffer: Buffer, indices: tuple[Expr, ...], at: _Place) -> None:
        occurrence = self._occurrences.get(buffer.name, 0)
        self._occurrences[buffer.name] = occurrence + 1
        place = substitute(_flat(buffer.shape, indices), at.values)
        places = self._movements(place, at.path)
        reductions = [None] * len(places) if at.reduction is None else self._movements(at.reduction, at.path)
        if places:
            steps = tuple(map(Step, at.path, places, reductions))
            self.touches.append(Touch(buffer.name, occurrence, steps))

    def _movements(self, number: Expr, path: tuple[int, ...]) -> list[Movement]:
        """The change of ``number`` along each loop of ``path``."""
        loops = [self.loops[position].var for position in path]
        terms = polynomial(number)
        if _is_linear(terms, frozenset(loops)):
            return [Movement(_factor(terms, var)) for var in loops]
        start = dict.fromkeys(loops, ZERO)
        return [_movement(substitute(number, {**start, var: var}), var) for var in loops]


def _flat(shape: tuple[Expr, ...], indices: tuple[Expr, ...]) -> Expr:
    """The offset of an element; data-dependent indices count as different as the positions of the data."""
    place: Expr = ZERO
    for extent, index in zip(shape, indices, strict=True):
        place = place * extent + transform(index, _as_place)
    return place


def _as_place(node: Expr) -> Expr | None:
    match node:
        case Read(source, indices):
            return cast(_flat(source.shape, indices), node.dtype)
        case Check(index):
            return index
        case _:
            return None


def _movement(number: Expr, var: Var) -> Movement:
    stride = _stride(number, var)
    return Movement(ZERO, number) if stride is None else Movement(stride)


def _stride(number: Expr, var: Var) -> Expr | None:
    """The coefficient of ``var`` in ``number``; None if it is not linear in it."""
    terms = polynomial(number)
    return _factor(terms, var) if _is_linear(terms, frozenset({var})) else None


def _is_linear(terms: Polynomial, variables: frozenset[Var]) -> bool:
    """Whether no term has more than one of ``variables`` as a factor."""
    for monomial in terms:
        varying = [atom for atom in monomial if not variables.isdisjoint(atom.variables)]
        if len(varying) > 1 or not all(isinstance(atom, Var) for atom in varying):
            return False
    return True


def _factor(terms: Polynomial, var: Var) -> Expr:
    """The coefficient of ``var`` in a sum that is linear in it."""
    return to_expr({tuple(a for a in monomial if a != var): c for monomial, c in terms.items() if var in monomial})


def _arithmetic(expr: Expr) -> Arithmetic:
    ops = [node.op for node in walk(expr) if isinstance(node, Binary) and node.dtype.is_float]
    return Arithmetic(
        sum(op in (BinaryOp.ADD, BinaryOp.SUB) for op in ops),
        sum(op is BinaryOp.MUL for op in ops),
        sum(op in (BinaryOp.DIV, BinaryOp.MOD, BinaryOp.TRUNCMOD) for op in ops),
    )
