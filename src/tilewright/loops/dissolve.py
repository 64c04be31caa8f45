"""Replaces blocks by their bodies, and moves the initialization of a reduction out of its reduction loops.

"``init`` runs when all reduction axes are 0" becomes: it runs just before the outermost loop that drives a reduction
axis, inside copies of the spatial loops that it needs. Where one loop drives spatial and reduction axes together (they
were fused), it stays in place under a condition.
"""

from dataclasses import dataclass

from tilewright.loops import visit
from tilewright.loops.ir import NOTHING, Alloc, Block, If, Loop, Stmt
from tilewright.loops.visit import seq
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import FALSE, TRUE, ZERO, Const, Expr, Var, equal
from tilewright.symbolic.traversal import all_of, substitute, vars_in


@dataclass(frozen=True, slots=True)
class _Hoisted:
    """An initialization that moves outwards, not yet wrapped in the loops between; goes before the loop ``before``."""

    before: Var
    driving: frozenset[Var]
    """The loops that drive reduction axes; the initialization runs in their first iterations."""
    stmt: Stmt

    def guarded(self, condition: Expr) -> "_Hoisted":
        first = substitute(condition, dict.fromkeys(self.driving, ZERO))
        return _Hoisted(self.before, self.driving, _guarded(first, self.stmt))

    def around(self, loop: Loop, var: Var) -> "_Hoisted":
        stmt = visit.substitute(self.stmt, {loop.var: var})
        return _Hoisted(self.before, self.driving, Loop(var, loop.extent, stmt, loop.kind))


def dissolve(stmt: Stmt) -> Stmt:
    """``stmt`` without blocks. Loops that are copied for an initialization get ``_init`` added to their names."""
    result, hoisted = _Dissolver(stmt).visit(stmt, ())
    assert not hoisted
    return result


class _Dissolver:
    def __init__(self, stmt: Stmt) -> None:
        self._taken = {node.var.name for node in visit.walk(stmt) if isinstance(node, Loop)}

    def visit(self, stmt: Stmt, path: tuple[Loop, ...]) -> tuple[Stmt, list[_Hoisted]]:
        """``stmt`` without blocks, and the initializations that must move further out; ``path``: the loops around."""
        if isinstance(stmt, Block):
            return self._block(stmt, path)
        inside = (*path, stmt) if isinstance(stmt, Loop) else path
        parts: list[Stmt] = []
        hoisted: list[_Hoisted] = []
        for child in visit.children(stmt):
            part, more = self.visit(child, inside)
            if isinstance(stmt, If):
                more = [item.guarded(stmt.condition) for item in more]
            parts.append(part)
            hoisted.extend(more)
        return self._leave(visit.with_children(stmt, tuple(parts)), hoisted)

    def _leave(self, stmt: Stmt, hoisted: list[_Hoisted]) -> tuple[Stmt, list[_Hoisted]]:
        """Place the initializations that stay inside ``stmt``; return the others."""
        match stmt:
            case Loop(var=var):
                here = [item.stmt for item in hoisted if item.before == var]
                return seq(*here, stmt), [self._past(stmt, item) for item in hoisted if item.before != var]
            case Alloc(buffer, body):
                here = [item.stmt for item in hoisted if buffer in visit.buffers(item.stmt)]
                return Alloc(buffer, seq(*here, body)), [item for item in hoisted if item.stmt not in here]
            case _:
                return stmt, hoisted

    def _past(self, loop: Loop, item: _Hoisted) -> _Hoisted:
        return item.around(loop, self._fresh(loop.var)) if loop.var in visit.free_vars(item.stmt) else item

    def _fresh(self, var: Var) -> Var:
        name = f"{var.name}_init"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return Var(name, var.dtype)

    def _block(self, block: Block, path: tuple[Loop, ...]) -> tuple[Stmt, list[_Hoisted]]:
        values = {axis.var: binding for axis, binding in zip(block.axes, block.bindings, strict=True)}
        body = visit.substitute(self._inside(block.body), values)
        guarded = _guarded(block.predicate, body)
        if block.init is None:
            return guarded, []
        init = visit.substitute(self._inside(block.init), values)
        reduced = [values[axis.var] for axis in block.axes if axis.kind is IterKind.REDUCE]
        others = [values[axis.var] for axis in block.axes if axis.kind is not IterKind.REDUCE]
        driving = vars_in(reduced) & {loop.var for loop in path}
        if not driving or driving & vars_in(others):
            first = all_of(block.predicate, *(equal(binding, ZERO) for binding in reduced))
            return seq(_guarded(first, init), guarded), []
        outermost = next(loop.var for loop in path if loop.var in driving)
        start = visit.substitute(init, dict.fromkeys(driving, ZERO))
        return guarded, [_Hoisted(outermost, driving, start).guarded(all_of(block.predicate, _is_inhabited(block)))]

    def _inside(self, stmt: Stmt) -> Stmt:
        """The inside of a block, in which all its initializations stay."""
        result, hoisted = self.visit(stmt, ())
        assert not hoisted
        return result


def _is_inhabited(block: Block) -> Expr:
    """Whether spatial axes with points are bound to a constant: then no loop guards an init outside."""
    constant = (pair for pair in zip(block.axes, block.bindings, strict=True) if isinstance(pair[1], Const))
    return all_of(*(binding < axis.extent for axis, binding in constant if axis.kind is not IterKind.REDUCE))


def _guarded(condition: Expr, body: Stmt) -> Stmt:
    return body if condition == TRUE else NOTHING if condition == FALSE else If(condition, body)
