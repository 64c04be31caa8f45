"""Bounds checks: refuses accesses that are provably out of range, and adds checks to undecided ones.

An index over loop variables is decided by the facts at its place: the loops around it, run-time extents, and the
conditions that guard it. An index that is *data* (read from a buffer) is decided by its form only: a condition on data
does not hold for the next read of them, as another thread may write meanwhile. A ``Check`` is within its extent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.errors import BadProgram
from tilewright.loops.ir import Alloc, Block, Buffer, If, Loop, Seq, Stmt, Store, Stores
from tilewright.loops.program import Program
from tilewright.loops.visit import allocations, own_exprs, walk
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.check import Check, Origin, checked
from tilewright.symbolic.conditions import negated
from tilewright.symbolic.expr import TRUE, Binary, Const, Expr, Read, Select, Var, const
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import linear_form, prove
from tilewright.symbolic.traversal import conjuncts, free_vars, reads_in, rebuild, substitute


@dataclass(frozen=True, slots=True)
class _Place:
    """Facts at the place of an access.

    ``attained``: every variable takes all of its values there. ``bindings``: in a block, its axes in terms of the loops
    around it, whose facts are in ``outside``. ``own``: buffers allocated within the block, which only its hand-written
    loops write.
    """

    bounds: Bounds
    attained: bool
    block: str = ""
    bindings: Mapping[Var, Expr] = field(default_factory=dict[Var, Expr])
    outside: Bounds | None = None
    own: frozenset[str] = frozenset()

    def is_data(self, index: Expr) -> bool:
        """Whether ``index`` is read from memory that others may write."""
        return index.has_reads and any(read.source.name not in self.own for read in reads_in(index))

    def where(self, condition: Expr) -> "_Place":
        """The place, with ``condition`` as a fact."""
        if condition == TRUE:
            return self
        known = [part for part in conjuncts(condition) if not part.has_reads]
        return replace(self, bounds=self.bounds.assuming(*known), attained=False)


_Access = Callable[[_Place, Buffer, int, Expr], Expr]
"""Rewrites the index of a dimension of a buffer."""


def refuse_outside(program: Program) -> None:
    """Raise ``BadProgram`` if an access is provably outside of its buffer at an executed point."""
    _Walk(program, _refused).stmt(program.body, _Place(program.bounds, True))


def with_checked_data(program: Program) -> Program:
    """``program`` with a check of every data-dependent index, unless its form keeps it in range.

    Buffers private to an extern's loops (a permutation during a sort) are not checked.
    """
    if not _has_data(program):
        return program
    return _rewritten(
        program, lambda place, buffer, at, index: _checked(place, buffer, at, index, place.is_data(index))
    )


def _has_data(program: Program) -> bool:
    """Whether any index is read from memory."""
    for stmt in walk(program.body):
        stores = stmt.stores if isinstance(stmt, Stores) else (stmt,) if isinstance(stmt, Store) else ()
        indices = [index for store in stores for index in store.indices]
        indices += [index for expr in own_exprs(stmt) for read in reads_in(expr) for index in read.indices]
        if any(index.has_reads for index in indices):
            return True
    return False


def with_checks(program: Program) -> Program:
    """``program`` with a check of every index that is not provably in range.

    Raises ``BadProgram`` for one that is provably out of range.
    """
    return _rewritten(program, lambda place, buffer, at, index: _checked(place, buffer, at, index, True))


def _rewritten(program: Program, access: _Access) -> Program:
    body = _Walk(program, access).stmt(program.body, _Place(program.bounds, True))
    return program if body is program.body else replace(program, body=body)


class _Walk:
    """Traverses statements and expressions with the facts at each; ``access`` may change the indices."""

    def __init__(self, program: Program, access: _Access) -> None:
        self._program = program
        self._access = access

    def stmt(self, stmt: Stmt, place: _Place) -> Stmt:
        match stmt:
            case Store():
                return self._store(stmt, place)
            case Stores(stores):
                parts = tuple([self._store(store, place) for store in stores])
                return stmt if _same(parts, stores) else Stores(parts)
            case Seq(statements):
                inner = tuple([self.stmt(each, place) for each in statements])
                return stmt if _same(inner, statements) else Seq(inner)
            case If(condition, then, otherwise):
                tested = self.expr(condition, place)
                first = self.stmt(then, place.where(condition))
                second = None if otherwise is None else self.stmt(otherwise, place.where(negated(condition)))
                same = tested is condition and first is then and second is otherwise
                return stmt if same else If(tested, first, second)
            case Loop():
                return self._loop(stmt, place)
            case Alloc():
                return self._allocations(stmt, place)
            case Block():
                return self._block(stmt, place)
            case _:
                return stmt

    def _allocations(self, stmt: Alloc, place: _Place) -> Stmt:
        around, inner = allocations(stmt)
        own = place.own.union(alloc.buffer.name for alloc in around) if place.block else place.own
        body = self.stmt(inner, replace(place, own=own))
        if body is inner:
            return stmt
        for alloc in reversed(around):
            body = Alloc(alloc.buffer, body)
        return body

    def _loop(self, loop: Loop, place: _Place) -> Stmt:
        extent = self.expr(loop.extent, place)
        attained = place.attained and not extent.has_reads and free_vars(extent).isdisjoint(place.bounds.extents)
        bounds = place.bounds.extended({loop.var: loop.extent})
        if isinstance(loop.extent, Const) and loop.extent.value <= 0:
            return loop
        body = self.stmt(loop.body, replace(place, bounds=bounds, attained=attained))
        return loop if body is loop.body and extent is loop.extent else replace(loop, extent=extent, body=body)

    def _block(self, block: Block, place: _Place) -> Stmt:
        """Inside a block, only its own axes are visible."""
        if any(isinstance(axis.extent, Const) and axis.extent.value <= 0 for axis in block.axes):
            return block
        bounds = self._program.bounds.extended({axis.var: axis.extent for axis in block.axes})
        bindings = {axis.var: binding for axis, binding in zip(block.axes, block.bindings, strict=True)}
        loops = place.bounds.extents
        pairs = zip(block.axes, block.bindings, strict=True)
        all_points = all(isinstance(loop, Var) and loops.get(loop) == axis.extent for axis, loop in pairs)
        is_plain = block.predicate == TRUE and len(set(block.bindings)) == len(block.bindings)
        attained = place.attained and is_plain and all_points
        inside = _Place(bounds, attained, block.name, bindings, place.bounds.assuming(block.predicate))
        body = self.stmt(block.body, inside)
        init = None if block.init is None else self.stmt(block.init, replace(inside, attained=False))
        return block if body is block.body and init is block.init else replace(block, body=body, init=init)

    def _store(self, store: Store, place: _Place) -> Store:
        indices = self._indices(store.buffer, store.indices, place)
        value = self.expr(store.value, place)
        same = value is store.value and indices is store.indices
        return store if same else Store(store.buffer, indices, value)

    def expr(self, expr: Expr, place: _Place) -> Expr:
        if not expr.has_reads:
            return expr
        match expr:
            case Read(Buffer() as buffer, indices):
                changed = self._indices(buffer, indices, place)
                return expr if changed is indices else Read(buffer, changed)
            case Select(condition):
                sides = (place, place.where(condition), place.where(negated(condition)))
            case Binary(BinaryOp.AND, a, _) if a.dtype.is_bool:
                sides = (place, place.where(a))
            case Binary(BinaryOp.OR, a, _) if a.dtype.is_bool:
                sides = (place, place.where(negated(a)))
            case _:
                sides = (place,) * len(expr.operands())
        operands = tuple([self.expr(part, side) for part, side in zip(expr.operands(), sides, strict=True)])
        return expr if _same(operands, expr.operands()) else rebuild(expr, operands)

    def _indices(self, buffer: Buffer, indices: tuple[Expr, ...], place: _Place) -> tuple[Expr, ...]:
        inner = [self.expr(index, place) for index in indices]
        changed = tuple([self._access(place, buffer, at, index) for at, index in enumerate(inner)])
        return indices if _same(changed, indices) else changed


def _same(new: Sequence[object], old: Sequence[object]) -> bool:
    return all(one is other for one, other in zip(new, old, strict=True))


def _refused(place: _Place, buffer: Buffer, at: int, index: Expr) -> Expr:
    """The index itself. Raises ``BadProgram`` if it is provably out of range."""
    extent = buffer.shape[at]
    low, high = _reach(place, index)
    if prove(low < 0, place.bounds) or prove(high >= extent, place.bounds):
        where = f"block {place.block}: " if place.block else ""
        reach = f"`{index}` is {low} .. {high}" if low != high else f"`{index}` is {low}"
        raise BadProgram(
            f"{where}{buffer.name} is accessed outside of its shape: index {at}, {reach}, but the extent is {extent}; "
            "guard it (te.select), or change the shape"
        )
    return index


def _reach(place: _Place, index: Expr) -> tuple[Expr, Expr]:
    """The least and the largest value of ``index``, if known; else itself."""
    extents = place.bounds.extents
    if not place.attained or index.has_reads or isinstance(index, Const):
        return index, index
    form = linear_form(index, place.bounds)
    if not all(isinstance(atom, Var) and atom in extents for atom, _ in form.terms):
        return index, index
    low = high = const(form.constant)
    for atom, factor in form.terms:
        assert isinstance(atom, Var)
        last = (extents[atom] - 1) * factor
        low, high = (low, high + last) if factor > 0 else (low + last, high)
    return low, high


def _checked(place: _Place, buffer: Buffer, at: int, index: Expr, wanted: bool) -> Expr:
    extent = buffer.shape[at]
    if not wanted or is_inside(index, extent, place.bounds) or _is_inside_by_loops(index, extent, place):
        return index
    _refused(place, buffer, at, index)
    return checked(index, extent, Origin(place.block or "main", f"{buffer.name.replace('.', '_')}_{at}"))


def _is_inside_by_loops(index: Expr, extent: Expr, place: _Place) -> bool:
    """Whether that follows from the loops around the block: a buffer may be sized for the executed points only."""
    if place.outside is None or not place.bindings or place.bounds.facts:
        return False
    return is_inside(substitute(index, place.bindings), extent, place.outside)


def is_inside(index: Expr, extent: Expr, bounds: Bounds) -> bool:
    """Whether ``0 <= index < extent`` provably holds, for any data."""
    if isinstance(index, Check) and index.extent == extent:
        return True
    index, bounds = _with_variables(index, bounds)
    low, high = interval(index, bounds)
    if isinstance(extent, Const) and low is not None and low >= 0 and high is not None and high < extent.value:
        return True
    return prove(index >= 0, bounds) and prove(index < extent, bounds)


def _with_variables(index: Expr, bounds: Bounds) -> tuple[Expr, Bounds]:
    """``index`` with each check replaced by a variable over its extent.

    Equal checks get different variables: their data may change in between.
    """
    extents: dict[Var, Expr] = {}

    def opened(expr: Expr) -> Expr:
        if not expr.has_reads:
            return expr
        if isinstance(expr, Check):
            variable = Var(f"check@{len(extents)}")
            extents[variable] = expr.extent
            return variable
        return rebuild(expr, tuple([opened(operand) for operand in expr.operands()]))

    result = opened(index)
    return result, bounds.extended(extents) if extents else bounds
