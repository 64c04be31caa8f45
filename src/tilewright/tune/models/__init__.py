"""Cost models: which of many candidates are likely fast, learned from what was measured of some (Chen et al., 2018).

A model takes an array with a row of features for each candidate, and what was measured of each; it gives a score for
each candidate that was not measured. Only the order of the scores means something.

- ``model``: the protocol; how measured throughputs become labels.
- ``rows``: candidates with labels, and a part to try a model on; ``losses``: what training makes small.
- ``boosted``: gradient-boosted trees, the model to use; ``treegru``: a recurrent network over the loops of a program;
  ``statements``: trees whose sum over statements is the score of a program; ``boosting``: what models of trees share.
- ``transfer``: a model learned from other tasks, and a local one for what it gets wrong; ``random``: the baseline.

A new model is one file here: ``model = BoostedTrees(); model.fit(features, throughputs); model.score(others)``.
"""
