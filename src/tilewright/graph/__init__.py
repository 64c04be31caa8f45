"""Graphs of operators: what a model is after import, and what graph passes rewrite.

In: operators (``ops``) and arrays. Out: ``Graph``, which prints as one line per node, can be verified (``verify``) and
evaluated without being compiled (``evaluate_graph``).

    relu = make_node(find("Relu"), [x], ["y"], {})
    print(Graph("g", (x,), relu.outputs, (relu,), {}))

Passes (``passes``) are functions from Graph to Graph. A new kind of fact about a graph goes into a file here; a new
rewrite goes into ``passes``.
"""

from tilewright.graph.evaluate import bytes_on_the_way, evaluate_graph, evaluate_node
from tilewright.graph.ir import Array, Graph, Node, Value, make_node, verify

__all__ = [
    "Array",
    "Graph",
    "Node",
    "Value",
    "bytes_on_the_way",
    "evaluate_graph",
    "evaluate_node",
    "make_node",
    "verify",
]
