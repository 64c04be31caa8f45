"""Back ends: from scheduled loop programs to something that runs.

In: scheduled kernels, a main program that calls them, a target. Out: an image in a back end's own form.

    cpu          object code through LLVM, for the processors of ``target``
    reference    blocks, threads and memories of a device, run in NumPy: counts, races, wrong accesses
    hosted       a base for back ends whose kernels are called from Python

``api`` says what a back end is; ``choice`` finds one by its name. A new one is a folder here, or a user's file.
"""
