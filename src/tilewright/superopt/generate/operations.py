"""What the generator combines: operations (compositions of graph operators) and the inputs they are applied to.

A family is a set of operations and of inputs that fit each other; rules are generated for each family on its own.
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

Typing: TypeAlias = Callable[[Solver, Sequence[Shape]], Shape]
"""From the shapes of the operands to that of the result. Raises ``Mismatch`` for operands that do not fit."""
Building: TypeAlias = Callable[[Sequence[Term], Sequence[Shape], Shape], Term]
"""From the operands, their shapes and the result's to a term."""
Constant: TypeAlias = Callable[[Shape], Term]


class Role(Enum):
    """What an operand may be."""

    ANY = "any"
    DATA = "data"
    """What depends on a variable that is no weight."""
    WEIGHT = "weight"
    """What depends on weights and constants only: a convolution's weights are known when a model is compiled."""


@dataclass(frozen=True, slots=True)
class Operation:
    """``arity`` operands, which are of ``roles``; if it ``commutes``, their order is free."""

    name: str
    typing: Typing
    building: Building
    roles: tuple[Role, ...]
    commutes: bool = False
    elementwise: bool = False
    """Each element of the result follows from those in its place, or from a scalar."""
    second_half: str | None = None
    """The operation that makes what this one leaves of its operand."""

    @property
    def arity(self) -> int:
        return len(self.roles)


@dataclass(frozen=True, slots=True)
class Input:
    """A variable, or a constant whose term follows from its shape.

    ``shape`` names dimensions of the family, or gives numbers; equal names are equal extents in one input only.
    """

    name: str
    shape: tuple[str | int, ...]
    is_weight: bool = False
    constant: Constant | None = None

    def typed(self, solver: Solver, extents: Mapping[str, int]) -> Shape:
        """The shape, with a symbol for each name; a variable has them for numbers, too, until they are needed."""
        if self.constant is None:
            return tuple(solver.fresh(size_of(extent)) for extent in self.concrete(extents))
        symbols = {name: solver.fresh(extents[name]) for name in self.shape if isinstance(name, str)}
        return tuple(literal(extent) if isinstance(extent, int) else symbols[extent] for extent in self.shape)

    def concrete(self, extents: Mapping[str, int]) -> Shape:
        """The shape, in numbers."""
        return tuple(literal(extent if isinstance(extent, int) else extents[extent]) for extent in self.shape)


@dataclass(frozen=True, slots=True)
class Family:
    """Operations and the inputs of all their terms.

    ``extents``: of the named dimensions; operands must fit each other at all of them, so that none does by chance, and
    values are those at the first. All are even, so that they can be halved.
    """

    name: str
    inputs: tuple[Input, ...]
    operations: tuple[Operation, ...]
    extents: tuple[Mapping[str, int], ...]
    first_of_kind: tuple[int, ...] = field(init=False)
    """For each input, the first one that it could be exchanged with."""

    def __post_init__(self) -> None:
        kinds = [(made.shape, made.is_weight, made.constant is None) for made in self.inputs]
        object.__setattr__(self, "first_of_kind", tuple(map(kinds.index, kinds)))

    @property
    def digest(self) -> str:
        """Changes whenever a term can be another one."""
        lines = [f"{self.name} {self.extents}"]
        lines += [f"{i.name} {i.shape} {i.is_weight}" for i in self.inputs]
        lines += [f"{o.name} {[role.value for role in o.roles]} {o.commutes}" for o in self.operations]
        return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def apply(name: str, *operands: Term, **attributes: Attribute) -> Apply:
    """The term of one operator."""
    return Apply(require(name), operands, tuple(attributes.items()))
