"""Operations (compositions of graph operators) and inputs, which the generator combines to expressions.

A family is a set of operations and inputs that fit each other; rules are generated for each family separately.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import TypeAlias

from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.passes.rules.terms import Apply, Term
from tilewright.superopt.generate.extents import (
    Shape,
    Solver,
    literal,
    size_of,
)
from tilewright.tensor.domains import Domain, Modular

Typing: TypeAlias = Callable[[Solver, Sequence[Shape]], Shape]
"""Maps the shapes of operands to that of the result. Raises ``Mismatch`` for operands that do not fit."""
Building: TypeAlias = Callable[[Sequence[Term], Sequence[Shape], Shape], Term]
"""Returns a term, given the operands, their shapes and the shape of the result."""
Constant: TypeAlias = Callable[[Shape], Term]


class Role(Enum):
    """The permitted kinds of an operand."""

    ANY = "any"
    DATA = "data"
    """Values that depend on a variable that is not a weight."""
    WEIGHT = "weight"
    """Values of weights and constants only, which are known at compile time."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation with ``arity`` operands of the kinds ``roles``; if it ``commutes``, their order is irrelevant."""

    name: str
    typing: Typing
    building: Building
    roles: tuple[Role, ...]
    commutes: bool = False
    elementwise: bool = False
    """Each element of the result depends on the corresponding elements, or on scalars."""
    second_half: str | None = None
    """The operation that returns the other half, for the first half of a split."""

    @property
    def arity(self) -> int:
        return len(self.roles)


@dataclass(frozen=True, slots=True)
class Input:
    """A variable, or a constant whose term is determined by its shape.

    ``shape`` has names of dimensions of the family, or numbers; equal names mean equal extents within one input only.
    """

    name: str
    shape: tuple[str | int, ...]
    is_weight: bool = False
    constant: Constant | None = None

    def typed(self, solver: Solver, extents: Mapping[str, int]) -> Shape:
        """The shape with a symbol for each name; in variables, also for numbers, until an operation pins them."""
        if self.constant is None:
            return tuple(solver.fresh(size_of(extent)) for extent in self.concrete(extents))
        symbols = {name: solver.fresh(extents[name]) for name in self.shape if isinstance(name, str)}
        return tuple(literal(extent) if isinstance(extent, int) else symbols[extent] for extent in self.shape)

    def concrete(self, extents: Mapping[str, int]) -> Shape:
        """The shape, in numbers."""
        return tuple(literal(extent if isinstance(extent, int) else extents[extent]) for extent in self.shape)


@dataclass(frozen=True, slots=True)
class Family:
    """A set of operations and inputs.

    ``extents``: choices of sizes for the named dimensions. Values are computed at the first one; operands must fit each
    other at all of them, so that none fits by chance. All are even, so that they can be halved.
    """

    name: str
    inputs: tuple[Input, ...]
    operations: tuple[Operation, ...]
    extents: tuple[Mapping[str, int], ...]
    domain: Callable[[int], Domain] = Modular
    """The numbers by which values are compared, from a seed: those of a field, or with an order that functions keep."""
    first_of_kind: tuple[int, ...] = field(init=False)
    """For each input, the first interchangeable one."""

    def __post_init__(self) -> None:
        kinds = [(made.shape, made.is_weight, made.constant is None) for made in self.inputs]
        object.__setattr__(self, "first_of_kind", tuple(map(kinds.index, kinds)))

    @property
    def digest(self) -> str:
        """A hash of all properties on which terms depend."""
        lines = [f"{self.name} {self.extents}"]
        lines += [f"{i.name} {i.shape} {i.is_weight}" for i in self.inputs]
        lines += [f"{o.name} {[role.value for role in o.roles]} {o.commutes}" for o in self.operations]
        if type(made := self.domain(0)) is not Modular:
            lines.append(type(made).__name__)
        return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def of_name(family: Family, name: str) -> Operation:
    """The operation of ``family`` that is called ``name``."""
    return next(operation for operation in family.operations if operation.name == name)


def apply(name: str, *operands: Term, **attributes: Attribute) -> Apply:
    """The term of one operator."""
    return Apply(require(name), operands, tuple(attributes.items()))
