"""Limits the size of expressions counted as trees, with shared operands counted at each use.

``y = t + t``, ``z = y + y`` ... share operands: a few objects, but a tree that doubles at each step. Every inlining
checks these limits first, so that passes may walk any expression recursively as a tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

MOST_NODES = 1 << 14
"""Limit for one expression that a user or an operator writes. Those of networks have some hundreds of nodes."""
MOST_INLINED = 1200
"""Limit for inlining a value that is read several times: a larger one stays in a buffer. The largest in networks is an
activation after Winograd's transform, which reads it three times: 1104."""
SMALL = 96
MOST_OF_SMALL = 1 << 12
"""The same limit if the inlined value has at most ``SMALL`` nodes: such values (an element found elsewhere) do not
double."""
DEEPEST = 128
"""Maximum depth of nesting. Passes take up to four Python frames per level."""


class Tree(Protocol):
    """An expression, as the size computation sees it."""

    def operands(self) -> "Sequence[Tree]":
        """The direct operands."""
        ...


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a tree: its nodes, and its depth."""

    nodes: int
    depth: int

    @property
    def is_allowed(self) -> bool:
        """Whether an expression of this size is allowed."""
        return self.nodes <= MOST_NODES and self.depth <= DEEPEST

    def __str__(self) -> str:
        return f"{self.nodes} operations and operands, up to {self.depth} inside each other"


def is_small(expr: Tree) -> bool:
    """Whether ``expr`` has few nodes and so few levels: a fast test that nearly every expression passes."""
    stack: list[Tree] = [expr]
    for _ in range(DEEPEST):
        stack.extend(stack.pop().operands())
        if not stack:
            return True
    return False


def size_of(*exprs: Tree) -> Size:
    """The size of ``exprs`` as trees, in total. Visits each object once, without recursion."""
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
