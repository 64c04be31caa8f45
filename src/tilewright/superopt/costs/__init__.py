"""Costs of graphs, which a search minimizes.

A node or a graph enters; a time leaves, in a unit of the provider's own. Another machine is another ``CostProvider``,
in a module of its own.

    KernelCosts.of(graph, target, math, bounds).of_graph(graph)

    provider                              the interface
    kernel_model                          graphs that are compiled here: cycles, by the analytic model
    onnxruntime_timing                    graphs in ONNX Runtime: seconds, measured
    memory                                the most bytes that are alive at once
"""
