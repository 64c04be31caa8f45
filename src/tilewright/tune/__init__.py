"""The tuner: searches for fast schedules of kernels with a learned cost model and measurements.

The system of Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018).

In: naive loop programs of a model's kernels. Out: records in a database, which ``recorded`` finds when the model is
compiled again.

    network = [Computed(k.naive, k.calls, k.constants) for k in kernels]
    tuner = ModelTuner([network], target, measurer, Setup())
    for progress in tuner.run(is_time_left): ...
    gains = tuner.confirm()

    spaces, contraction_space       search spaces          search/      searchers
    features/                       inputs of models       models/      cost models
    kernel_tuner, model_tuner       the search             measurer     recorded measurements
    scheduler/                      which kernel is next
    tasks, ways                     alternative algorithms and layouts of nodes
    nearest                         transfer from similar kernels
    accelerator, cycle_bench        the same for the accelerator, measured by its simulators

A new searcher is a file in ``search/``, a new cost model one in ``models/``, a user's kernel is a template
(``kernel``); all three can be user-defined (``strategy``, ``docs/extending.md``).
"""
