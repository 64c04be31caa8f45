"""Graph passes: rewrite the graph of a model, choose layouts, fuse nodes, and lower groups to kernels.

In: ``graph.Graph``. Out: an equivalent graph (``normalize``, ``recognize``, ``rules``), with layouts of its values
(``choose`` among ``alternatives``, ``layout``, ``flatten``), groups of nodes that share a kernel (``fuse``), and the
kernel of a group (``lower``).

    for group in fuse(normalize(graph)):
        print(group)

To add an algebraic rewrite, write a rule (``rules/algebra.rules``). For any other, write a pure function from Graph to
Graph in a file here and call it in the driver (or in ``normalize``, if later passes rely on it).
``graph.evaluate_graph`` before and after is its test.
"""

from tilewright.passes.fuse import Group, fuse
from tilewright.passes.normalize import normalize

__all__ = ["Group", "fuse", "normalize"]
