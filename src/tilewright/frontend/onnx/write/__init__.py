"""Writes graphs as standard ONNX models, for other runtimes.

In: ``graph.Graph``. Out: an ONNX file or ``ModelProto``.

    exporter.save(graph, Path("other.onnx"))

``forms/`` translates the nodes of each operator, ``exporter.py`` assembles the model.
"""
