"""What the search for better graphs gains, and how true the costs are that it goes by: `python -m benchmarks.superopt`.

builders.py   networks with work that need not be done, which the zoo lacks
variants.py   the graphs: those of the zoo, built ones, and planted ones before and after a person's rewrite
networks.py   `networks`: times without a search and with it, estimated or measured; here, or in ONNX Runtime
costs.py      `costs`: the whole costs of graphs and of kernels beside measured times
"""
