"""Frontends: models to graphs, and back.

In: an ONNX file or ``ModelProto``. Out: ``graph.Graph``, every node with its place in the user's model.

    graph = onnx_importer.load("model.onnx", shapes={"ids": (1, "sequence")})
    onnx_exporter.save(graph, Path("other.onnx"))

``onnx_proto.py`` reads the parts of a file, ``external_data.py`` what lies in files beside it, ``onnx_shapes.py`` has
the shapes of inputs, ``rules/`` says which operators an ONNX node becomes, ``functions.py`` has the bodies of functions
(an operator without a rule is imported as the body that ONNX defines for it), ``scopes.py`` the names inside them,
``symbolic_values.py`` what follows from run-time extents, ``onnx_importer.py`` puts it together, ``coverage.py`` lists
all nodes that it refuses. To support an ONNX operator: write it in ``ops``, add it to the table of its family in
``rules``, say in ``export`` how ``onnx_exporter.py`` writes it, and write the lines of its tests in the ledger
(``tests/onnx_nodes/ledger.txt`` says how). A frontend computes shapes only; what is unknown or malformed is refused
with the node's name and what would help.
"""
