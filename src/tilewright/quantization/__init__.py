"""Quantization: float models to standard ONNX models with int8 weights and 8-bit activations.

In: a model of any front end, and samples of its inputs. Out: a graph with QuantizeLinear and DequantizeLinear around
its sums of products, which ``frontend.onnx.write`` writes, and a report.

    made = quantize("model.onnx", "calibration.npz", accuracy=0.005)
    made.save("quantized.onnx")

``quantizer.py`` is the whole way on one page. ``samples.py`` reads and checks the data, ``layers.py`` finds what can be
quantized, ``placement.py`` says which values that concerns. ``statistics.py`` runs the float model and keeps what
``ranges.py`` (one function for each method) and ``weights.py`` need; ``parameters.py`` makes all scales, zero points
and integers of them. ``insertion.py`` adds them to a graph; in ``simulation.py`` they are inputs of one compiled model,
so that every choice can be measured without compiling again; ``search.py`` finds the layers that stay float. To add a
way to choose ranges, write a function in ``ranges.py`` and a member of ``base.quantization.Method``.
"""
