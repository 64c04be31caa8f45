"""Cost functions of graphs, minimized by a search.

In: a node or a graph. Out: a time, in the provider's unit. For another machine, add a ``CostProvider`` in its own
module.

    KernelCosts.of(graph, target, math, bounds).of_graph(graph)

    provider                              the interface
    kernel_model                          graphs compiled by Tilewright: cycles, by the analytic model
    onnxruntime_timing                    graphs in ONNX Runtime: seconds, measured
    memory                                peak memory of a graph
"""
