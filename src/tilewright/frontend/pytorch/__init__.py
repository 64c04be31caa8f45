"""The front end of PyTorch: modules and exported programs, by PyTorch's own ONNX exporter, in memory.

In: a ``torch.nn.Module`` with examples of its inputs, or a ``torch.export.ExportedProgram``. Out: an ONNX model whose
constants are the module's own tensors, not copied (``onnx.with_arrays``).

    source = opened(module, examples=Examples((x,), {"x": {0: "batch"}}))
    graph = source.load({}, {})

``exporting.py`` traces and converts; ``refusals.py`` says what can't be, with the line of the user's program. PyTorch
is an optional package: only ``exporting.py`` and ``refusals.py`` import it, and only for a program of PyTorch.

Operators that the exporter knows and Tilewright does not are added in ``frontend/onnx``. The back end of
``torch.compile`` is ``dynamo`` on floor 8.
"""
