"""Graphs of operators: the IR of a model after import, which graph passes rewrite.

In: operators (``ops``) and arrays. Out: ``Graph``, which prints as one line per node, can be verified (``verify``) and
evaluated without compilation (``evaluate_graph``).

    relu = make_node(find("Relu"), [x], ["y"], {})
    print(Graph("g", (x,), relu.outputs, (relu,), {}))

Passes (``passes``) are functions from Graph to Graph. New analyses of graphs go into a file here; new rewrites go into
``passes``.
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
