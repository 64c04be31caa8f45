"""All benchmarks of models: `python -m benchmarks`; options go to the benchmark (see minilm.py)."""

from .minilm import main

main()
