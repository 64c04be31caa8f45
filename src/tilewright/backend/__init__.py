"""Back ends: compile scheduled loop programs to executable images.

In: scheduled kernels, a main program that calls them, a target. Out: an image in a back end's own form.

    cpu          object code through LLVM, for the processors of ``target``
    reference    blocks, threads and memories of a device, run in NumPy: counts, races, invalid accesses
    vta          an accelerator: loop programs to instructions with tokens; simulators, run-time compiler, hardware
    hosted       a base for back ends whose kernels are called from Python

``api`` has the interface of back ends; ``choice`` finds one by name. A new one is a folder here, or a user's package.
"""
