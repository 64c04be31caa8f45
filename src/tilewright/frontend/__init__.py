"""Front ends: models to graphs, one folder for each form of models.

In: a model in the form that a folder is for. Out: ``graph.Graph``, every node with its place in the user's model.

    graph = importer.load("model.onnx", shapes={"ids": (1, "sequence")})

A front end computes shapes only; what is unknown or malformed is refused with the node's name and what would help.
"""
