"""Indices and conditions of a nest as sums over loops: what is computed once, before a nest runs many times.

``8 * yo + yi - 1`` has the constant -1 and the loops ``yo`` (8) and ``yi`` (1). Loops of the *environment* have a value
when an instruction is made; the other ones are the instruction's own. What is not linear (``f // 4``) is evaluated, and
can only be made of loops of the environment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Buffer
from tilewright.loops.scalars import IntEvaluator, Value, int_evaluator
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import TRUE, ZERO, Binary, Const, Expr, Source, Var, const
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import linear_form, simplify
from tilewright.symbolic.traversal import conjuncts, free_vars

Env: TypeAlias = Mapping[str, int]
"""The values of loops, by name."""
Steps: TypeAlias = dict[str, int]
"""What one iteration of a loop adds, by name; loops that add nothing are left out."""


def no_data(source: Source, at: tuple[int, ...]) -> Value:
    """For ``int_evaluator``: the accelerator's programs do not depend on data."""
    raise Unsupported(f"an index reads {source.name}{list(at)}: the accelerator has no indices that are data")


@dataclass(frozen=True, slots=True)
class Form:
    """A sum over loops."""

    constant: int
    loops: tuple[tuple[str, int], ...]
    others: tuple[tuple[IntEvaluator, int], ...] = ()
    fixed: frozenset[str] = frozenset()
    """Loops that must be of the environment."""

    def at(self, env: Env) -> tuple[int, Steps]:
        """The sum of what ``env`` decides, and the steps of the other loops."""
        base, steps = self.constant, Steps()
        for name, factor in self.loops:
            if name in env:
                base += factor * env[name]
            else:
                steps[name] = factor
        for evaluate, factor in self.others:
            base += factor * evaluate(env)
        return base, steps


def form_of(expr: Expr, bounds: Bounds) -> Form:
    """An index as a form."""
    linear = linear_form(expr, bounds)
    loops = [(term.name, factor) for term, factor in linear.terms if type(term) is Var]
    others = [(term, factor) for term, factor in linear.terms if type(term) is not Var]
    fixed = frozenset(var.name for term, _ in others for var in free_vars(term))
    return Form(
        linear.constant, tuple(loops), tuple((int_evaluator(term, no_data), factor) for term, factor in others), fixed
    )


def flat(buffer: Buffer, indices: Sequence[Expr], bounds: Bounds) -> Form:
    """The position of an element in a buffer, in elements, row-major."""
    position: Expr = ZERO
    for index, size in zip(indices, extents(buffer), strict=True):
        position = position * size + index
    return form_of(position, bounds)


def extents(buffer: Buffer) -> tuple[int, ...]:
    """The shape of a buffer. Raises ``Unsupported`` for run-time extents."""
    return tuple(constant(extent, f"{buffer.name} has the extent") for extent in buffer.shape)


def constant(extent: Expr, what: str) -> int:
    """A number. Raises ``Unsupported`` if it is known at run time only."""
    if not isinstance(extent, Const):
        raise Unsupported(f"{what} {extent}: the accelerator's programs have fixed extents; compile one for each")
    return int(extent.value)


def conditions_of(condition: Expr, bounds: Bounds) -> tuple[Form, ...]:
    """Forms that are all at least 0 where ``condition`` holds. Raises ``Unsupported`` for other than comparisons."""
    found: list[Form] = []
    for part in conjuncts(simplify(condition, bounds)):
        if part != TRUE:
            found += [form_of(expr, bounds) for expr in _at_least_zero(part)]
    return tuple(found)


def _at_least_zero(condition: Expr) -> tuple[Expr, ...]:
    match condition:
        case Binary(BinaryOp.LT, a, b):
            return (b - a - 1,)
        case Binary(BinaryOp.LE, a, b):
            return (b - a,)
        case Binary(BinaryOp.GT, a, b):
            return (a - b - 1,)
        case Binary(BinaryOp.GE, a, b):
            return (a - b,)
        case Binary(BinaryOp.EQ, a, b):
            return a - b, b - a
        case Const(value=False):
            return (const(-1),)
        case _:
            raise Unsupported(f"the condition `{condition}` is no comparison of indices")
