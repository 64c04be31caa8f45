"""Front ends: models to graphs, one folder for each form of models.

In: a model in the form that a folder is for. Out: ``graph.Graph``, every node with its place in the user's model.

    source = opened("model.onnx")                   # by the front end that accepts it
    graph = source.load({"ids": (1, "sequence")}, {})

``api.py`` says what a front end is, ``opening.py`` asks them. Nothing above this floor knows a form of models: who
wants more than a graph (a digest, the files, another runtime's numbers) asks the ``Source``. A front end computes
shapes only; what is unknown or malformed is refused with the node's name and what would help.
"""
