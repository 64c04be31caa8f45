"""Steps of a model that a library computes: oneDNN, from a wheel of PyPI, called through its C interface.

In: a ``Function``, which says what is computed, and weights. Out: a ``StepExecutable``, which runs it like native
code.

    onednn       finds the wheel; the signatures of its functions; what is created is destroyed with its Python object
    primitive    one function of the library with its layouts; packs weights; brings data to its layouts and back
    step         steps, and their executables; parts of artifacts that are steps

A model with steps needs NumPy and the wheel, but no part of the compiler. ``offload.library`` makes steps of graphs.
"""
