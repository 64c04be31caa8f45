"""Benchmarks: peers and Tilewright, run in turns, reported as ratios. Run them as modules, from the repository's root.

harness.py     slots in ABAB order, medians, ratios with quartiles; knows nothing of models
processes.py   a candidate in its own process, quiet and with a fixed number of threads
worker.py      the other end: `python -m benchmarks.worker`, which builds a candidate and runs its slots
candidates.py  how each peer runs an ONNX file; the place to add a peer
accuracy.py    the two error measures
peak.py        floating-point peak of this machine, to be run next to a kernel
mathkernel.py  one function of vector math as a native loop over arrays
vecmath.py     vector math next to NumPy and SciPy: `python -m benchmarks.vecmath`
zoo/           seventeen networks as ONNX files: `python -m benchmarks.zoo`
minilm.py      MiniLM-L6 at 16 and 128 tokens, 1 and 2 threads: `python -m benchmarks.minilm`
"""
