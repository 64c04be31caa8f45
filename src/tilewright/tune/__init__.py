"""Which schedule for this kernel on this target? Found by search with a learned model of costs and measurements.

The system of Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018).

In: naive loop programs of a model's kernels. Out: records in a database, which ``recorded`` finds when the model is
compiled again.

    tuner = ModelTuner([Computed(k.naive, len(k.groups), k.constants) for k in kernels], target, measurer, Setup())
    for progress in tuner.run(is_time_left): ...
    gains = tuner.confirm()

    spaces, contraction_space       what is searched       search/      who proposes candidates
    features/                       what a model sees      models/      what they are thought to be worth
    kernel_tuner, model_tuner       the search             measurer     measurements that are remembered
    tasks, ways                     nodes with all ways to compute them, and what these take
    nearest                         what similar kernels teach

A new searcher is a file in ``search/``, a new cost model one in ``models/``, a kernel of one's own is a template
(``kernel``); all three may be somebody's own (``strategy``, ``docs/extending.md``).
"""
