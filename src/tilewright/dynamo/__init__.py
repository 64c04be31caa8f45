"""The back end of ``torch.compile``: ``torch.compile(model, backend="tilewright")``, for inference.

In: graphs of operators, one for each piece of a program between graph breaks. Out: functions that compute the same.

    step = backend(graph, example_inputs)     # called by PyTorch, which finds it by an entry point
    outputs = step(*tensors)                  # exports and compiles the graph at the first call

``backend.py`` is what PyTorch calls; ``piece.py`` keeps the models of a graph, by its weights; ``graphs.py`` takes
graphs apart. All of them import PyTorch. Exporting is the front end's (``frontend/pytorch``).
"""
