"""The ONNX front end: reads models into graphs (``read``), and writes them (``write``).

    graph = importer.load("model.onnx", shapes={"ids": (1, "sequence")})
    exporter.save(graph, Path("other.onnx"))

``front_end.py`` is its interface for the rest of the compiler; ``bundled.py`` packs a model, ``onnxruntime.py`` runs
it.

To support an ONNX operator: write it in ``ops``, add it to the table of its family in ``read/rules``, say in
``write/forms`` how ``exporter.py`` writes it, and write the lines of its tests in the ledger
(``tests/onnx_nodes/ledger.txt`` says how).
"""
