"""How large expressions are with all that they share written out: as trees, which is how texts and most passes see them.

``y = t + t``, ``z = y + y`` ... share their operands: a few objects are a tree that doubles with each step. Whatever
puts expressions into each other asks here first. So every expression of a program is a small tree, and passes may walk
it as one, recursively.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

MOST_NODES = 1 << 14
"""Of one expression that a user or an operator writes. Those of networks have some hundreds."""
MOST_INLINED = 1 << 10
"""Of a value into which a shared one is put: what would be larger stays in a buffer."""
DEEPEST = 128
"""Operations inside each other. Passes take up to four Python frames for each."""


class Tree(Protocol):
    """An expression, as far as its size goes."""

    def operands(self) -> "Iterable[Tree]":
        """The direct operands."""
        ...


@dataclass(frozen=True, slots=True)
class Size:
    """Of a tree: its operations and leaves, and how many of them are inside each other at most."""

    nodes: int
    depth: int

    @property
    def is_allowed(self) -> bool:
        """Whether an expression may be so large."""
        return self.nodes <= MOST_NODES and self.depth <= DEEPEST

    def __str__(self) -> str:
        return f"{self.nodes} operations and operands, up to {self.depth} inside each other"


def size_of(*exprs: Tree) -> Size:
    """The size of ``exprs`` as trees, all together. Each object is looked at once, and there is no recursion."""
    known: dict[int, Size] = {}
    stack: list[Tree] = [*exprs]
    while stack:
        node = stack[-1]
        missing = [operand for operand in node.operands() if id(operand) not in known]
        if missing:
            stack.extend(missing)
        else:
            known[id(stack.pop())] = _together([known[id(operand)] for operand in node.operands()])
    return _together([known[id(expr)] for expr in exprs])


def _together(parts: list[Size]) -> Size:
    return Size(1 + sum([part.nodes for part in parts]), 1 + max([part.depth for part in parts], default=0))
