"""Graphs with work that need not be done, beside what a person makes of them: `python -m benchmarks.planted`.

writer.py       a network as an ONNX model
convolutions.py, products.py, cells.py, movements.py, quantized.py   the graphs, by what is redundant
measures.py     what the rewrite gives, and what the search finds: estimated, or measured in turns

To plant another graph, add a function to one of the files, and to its tuple `PLANTED`.
"""
