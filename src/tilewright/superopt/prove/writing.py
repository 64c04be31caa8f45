"""Writes terms in normal form as text for provers: applications of functions, which are declared at first use.

Sorts are ``T`` (terms), ``S`` (shapes: lists of extents, last dimension first, leading dimensions being the tail),
``Window`` (strides, pads and dilations together) and the prover's integers. One function stands for each operator,
count of operands and form of attributes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from tilewright.base.errors import BadProgram
from tilewright.ops import Attribute
from tilewright.passes.rules.generic_points import element
from tilewright.passes.rules.term_shapes import SHAPED, WINDOW, WINDOW_LISTS, Shape, target_shape
from tilewright.passes.rules.terms import Apply, Number, Term, Variable
from tilewright.symbolic.expr import Binary, Const, Expr, Unary, Var
from tilewright.symbolic.operations import BinaryOp, UnaryOp


class Named(Enum):
    """Kinds of names in a rule."""

    TERM = "t"
    INTEGER = "i"
    LEADING = "s"
    WINDOW = "w"


@dataclass(slots=True)
class Writer(ABC):
    """Writes terms; subclasses define the prover's language and the text for names."""

    functions: dict[str, str]
    """Declarations of all functions, by name."""
    texts: dict[Term, str] = field(default_factory=dict[Term, str])
    """Names of terms that have been named."""

    INTEGER: ClassVar[str] = "Int"
    NIL: ClassVar[str] = "Nil"

    @abstractmethod
    def named(self, what: Named, name: str) -> str:
        """The text for a name of kind ``what``."""

    @abstractmethod
    def number(self, value: float) -> str:
        """A number as a term."""

    @abstractmethod
    def literal(self, value: int) -> str:
        """An integer."""

    @abstractmethod
    def arithmetic(self, op: BinaryOp, a: str, b: str) -> str:
        """The sum, difference, product or quotient of two integers. Raises ``BadProgram`` for anything else."""

    @abstractmethod
    def declared(self, kind: str, sorts: Sequence[str], result: str) -> str:
        """The name of the function of this kind for arguments of ``sorts``; it is declared at first use."""

    def kind(self, term: Apply) -> str:
        """The name of the operator, with its count of operands and form of attributes."""
        return f"{term.op.name}.{term.output}"

    def term(self, term: Term) -> str:
        if term in self.texts:
            return self.texts[term]
        match term:
            case Variable(name):
                return self.named(Named.TERM, name)
            case Number(value):
                return self.number(value)
            case Apply():
                operands = [(self.term(operand), "T") for operand in term.operands]
                return self._applied(self.kind(term), [*operands, *self._attributes(term)], "T")

    def _attributes(self, term: Apply) -> Iterator[tuple[str, str]]:
        """The text and the sort of each attribute."""
        lists: list[tuple[str, str]] = []
        for name, value in term.attributes:
            if term.op.name in SHAPED and isinstance(value, tuple):
                yield self.target(target_shape([item for item in value if isinstance(item, int | Expr)])), "S"
            elif name == WINDOW:
                yield self.named(Named.WINDOW, str(value)), "Window"
            else:
                items = value if isinstance(value, tuple) else (value,)
                texts = ((self._attribute(item), self.INTEGER) for item in items)
                if name in WINDOW_LISTS:
                    lists += texts
                else:
                    yield from texts
        if lists:
            yield self._applied("Window", lists, "Window"), "Window"

    def _applied(self, kind: str, arguments: Sequence[tuple[str, str]], result: str) -> str:
        function = self.declared(kind, [sort for _, sort in arguments], result)
        return f"({function} {' '.join(text for text, _ in arguments)})"

    def _attribute(self, value: Attribute) -> str:
        if isinstance(value, int | Expr) and not isinstance(value, bool):
            return self.integer(value)
        return str(element(repr(value)))

    def integer(self, value: Expr | int) -> str:
        match value:
            case int():
                return self.literal(value)
            case Const(number):
                return self.literal(int(number))
            case Var(name):
                return self.named(Named.INTEGER, name)
            case Unary(UnaryOp.NEG, a):
                return self.arithmetic(BinaryOp.SUB, self.literal(0), self.integer(a))
            case Binary(op, a, b):
                return self.arithmetic(op, self.integer(a), self.integer(b))
            case _:
                raise BadProgram(f"the extent `{value}` is no sum, difference, product or quotient")

    def target(self, shape: Shape) -> str:
        """A shape as an attribute."""
        return self.shape(shape)

    def shape(self, shape: Shape) -> str:
        names = [self.named(Named.LEADING, name) for name in sorted(shape.leading)]
        text = names.pop() if names else self.NIL
        for name in names:
            text = f"(Both {name} {text})"
        for extent in shape.dims:
            text = f"(D {self.integer(extent)} {text})"
        return text
