"""Graphs to ONNX: standard models, which other runtimes run.

In: ``graph.Graph``. Out: an ONNX file or ``ModelProto``.

    exporter.save(graph, Path("other.onnx"))

``forms/`` says how the node of an operator is written, ``exporter.py`` puts it together.
"""
