"""ONNX to graphs.

In: an ONNX file or ``ModelProto``. Out: ``graph.Graph``, every node with its place in the user's model.

    graph = importer.load("model.onnx", shapes={"ids": (1, "sequence")})

``wire.py`` looks at a file before it is parsed, ``protos.py`` reads its parts, ``external_data.py`` what lies in files
beside it, ``text.py`` whether its names are text. ``given_shapes.py`` has the shapes of inputs, ``order.py`` the order
of nodes, ``rules/`` says which operators an ONNX node becomes, ``functions.py`` has the bodies of functions (an
operator without a rule is imported as the body that ONNX defines for it), ``scopes.py`` the names inside them,
``symbolic_values.py`` what follows from run-time extents, ``importer.py`` puts it together, ``coverage.py`` lists all
nodes that it refuses.
"""
