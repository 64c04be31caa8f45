"""Learned cost models: predict which candidates are fast from measurements of others (Chen et al., 2018).

A model is fitted to an array with a row of features for each candidate, and to their measured throughputs; it gives a
score to other candidates. Only the order of the scores is meaningful.

- ``model``: the protocol; how measured throughputs become labels.
- ``rows``: candidates with labels, and a part to try a model on; ``losses``: what training makes small.
- ``boosted``: gradient-boosted trees, the model to use; ``treegru``: a recurrent network over the loops of a program;
  ``statements``: trees whose sum over statements is the score of a program; ``boosting``: what models of trees share.
- ``pretrained``: what the model over statements knows beforehand.
- ``transfer``: a model learned from other tasks, and a local one for what it gets wrong; ``random``: the baseline.

A new model is one file here: ``model = BoostedTrees(); model.fit(features, throughputs); model.score(others)``.
"""
