"""How large expressions are with all that they share written out: as trees, as texts and most passes see them.

``y = t + t``, ``z = y + y`` ... share their operands: a few objects are a tree that doubles with each step. Whatever
puts expressions into each other asks here first. So every expression of a program is a small tree, and passes may walk
it as one, recursively.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

MOST_NODES = 1 << 14
"""Of one expression that a user or an operator writes. Those of networks have some hundreds."""
MOST_INLINED = 1200
"""Of a value into which one is put that is read several times: what would be larger stays in a buffer. The largest of
networks is an activation after Winograd's transform, which it reads three times: 1104."""
SMALL = 64
MOST_OF_SMALL = 1 << 12
"""The same where at most ``SMALL`` is put into it: such values (an element found elsewhere) do not double."""
DEEPEST = 128
"""Operations inside each other. Passes take up to four Python frames for each."""


class Tree(Protocol):
    """An expression, as far as its size goes."""

    def operands(self) -> "Sequence[Tree]":
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


def is_small(expr: Tree) -> bool:
    """Whether ``expr`` has few nodes, and so few levels: nearly every one has, and this is fast to find out."""
    stack: list[Tree] = [expr]
    for _ in range(DEEPEST):
        stack.extend(stack.pop().operands())
        if not stack:
            return True
    return False


def size_of(*exprs: Tree) -> Size:
    """The size of ``exprs`` as trees, all together. Each object is looked at once, and there is no recursion."""
    known: dict[int, tuple[int, int]] = {}
    stack: list[Tree] = [*exprs]
    while stack:
        node = stack[-1]
        operands = node.operands()
        parts = [known.get(id(operand)) for operand in operands]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            stack.extend([operand for operand, part in zip(operands, parts, strict=True) if part is None])
            continue
        stack.pop()
        known[id(node)] = 1 + sum([nodes for nodes, _ in found]), 1 + max([depth for _, depth in found], default=0)
    sizes = [known[id(expr)] for expr in exprs]
    return Size(sum([nodes for nodes, _ in sizes]), max([depth for _, depth in sizes], default=0))
