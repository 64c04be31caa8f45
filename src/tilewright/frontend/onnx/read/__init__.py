"""Reads ONNX models into graphs.

In: an ONNX file or ``ModelProto``. Out: ``graph.Graph``, every node with its place in the user's model.

    graph = importer.load("model.onnx", shapes={"ids": (1, "sequence")})

``wire.py`` checks a file before parsing, ``protos.py`` reads its parts, ``external_data.py`` reads tensors in other
files, ``text.py`` checks that names are text. ``given_shapes.py`` has the shapes of inputs, ``order.py`` the order of
nodes, ``rules/`` translates ONNX nodes to operators, ``functions.py`` has the bodies of functions (an operator without
a rule is imported by its ONNX function body), ``scopes.py`` the names inside them, ``symbolic_values.py`` values that
depend on run-time extents only, ``narrow.py`` the types that are codes, ``building.py`` the graph so far,
``importer.py`` visits the nodes, ``coverage.py`` lists all refused nodes.
"""
