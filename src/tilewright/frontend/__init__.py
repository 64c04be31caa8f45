"""Front ends: read models into graphs, one folder for each model format.

In: a model in some format. Out: ``graph.Graph``, each node with its place in the user's model.

    source = opened("model.onnx")                   # by the front end that accepts it
    graph = source.load({"ids": (1, "sequence")}, {})

``api.py`` has their interface, ``opening.py`` selects one. Higher layers are independent of formats: they get further
facts (a digest, the files, another runtime's results) from the ``Source``. A front end computes shapes only; unknown or
malformed nodes are refused with the node's name and a remedy.
"""
