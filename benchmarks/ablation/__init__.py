"""The ablation of Chen et al., NeurIPS 2018 ("Learning to Optimize Tensor Programs"): which part of a search does what.

`python -m benchmarks.ablation.record` measures some thousand candidates of a part of the template's space for each of
ResNet-18's layers C1 to C12 (`layers.py`, `box.py`), which takes more than an hour, and keeps them in `tables/`.
`python -m benchmarks.ablation` replays searches in these tables: nothing is measured, so it takes half a minute a
layer, and whoever replays it gets the same numbers. Needs LightGBM; with torch, TreeGRU takes part.

The same of sketches, after Zheng et al., "Ansor" (OSDI 2020): `python -m benchmarks.ablation.record_sketches` measures
tables of four programs (`programs.py`, `sketch_box.py`, `sketch_table.py`), and `python -m
benchmarks.ablation.sketches` replays the search, and searches without one of its parts.
"""
