"""Passes: from the graph of a model to the kernels that are compiled.

In: ``graph.Graph``. Out: a graph that computes the same (``normalize``, ``recognize``, ``rules``), with layouts of its
values (``choose`` among ``alternatives``, ``layout``, ``flatten``), groups of nodes that share a kernel (``fuse``), and
the kernel of a group (``lower``).

    for group in fuse(normalize(graph)):
        print(group)

To add a rewrite of graphs that is algebra, write a rule (``rules/algebra.rules``). For any other, write a pure function
from Graph to Graph in a file here and call it in the driver (or in ``normalize``, if later passes rely on it).
``graph.evaluate_graph`` before and after is its test.
"""

from tilewright.passes.fuse import Group, fuse
from tilewright.passes.normalize import normalize

__all__ = ["Group", "fuse", "normalize"]
