"""Where errors of kernels come from: the nodes of the user's model, and the names that its dimensions have there.

Kernels know neither: equal ones are compiled once, and their extents are numbered.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager

from tilewright.base.errors import BadProgram, UnsupportedModel
from tilewright.graph import Graph
from tilewright.passes.fuse import Group
from tilewright.symbolic.check import Origin
from tilewright.symbolic.expr import given_name


def sources(group: Group) -> str:
    """The nodes of the user's model that ``group`` computes, as text."""
    return ", ".join(dict.fromkeys(node.source or node.op.name for node in group.nodes))


def source_of(group: Group, origin: Origin) -> str:
    """The node of the user's model that reads indices, and its operand."""
    nodes = [node for node in group.nodes if node.op.name == origin.operator]
    if origin.number >= len(nodes):
        return f"{sources(group)}: {origin}"
    return f"{nodes[origin.number].source or origin.operator}: {origin.operand}"


def unsupported(group: Group, reason: str, graph: Graph) -> UnsupportedModel:
    """That ``group`` can't be compiled, with the model's names of the run-time extents in ``reason``."""
    named = [e for e in graph.extents if e.label and re.search(rf"\b{re.escape(e.name)}\b", reason)]
    called = ", ".join(f"{extent.name} is the model's `{given_name(extent)}`" for extent in named)
    return UnsupportedModel(f"{sources(group)}: {reason}" + (f" ({called})" if called else ""))


@contextmanager
def sizes_named(group: Group) -> Generator[None]:
    """Sizes that are beyond all numbers for usual extents get their place in the model."""
    try:
        yield
    except BadProgram as error:
        raise BadProgram(f"{sources(group)}: {error}; compute smaller sizes there") from error
