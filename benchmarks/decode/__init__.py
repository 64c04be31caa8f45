"""A Llama-like language model, decoded token by token: `python -m benchmarks.decode`.

`model` writes it as exporters do, `decoders` runs it by Tilewright, ONNX Runtime and OpenVINO, `__main__` compares
their results and measures them in turns.
"""
