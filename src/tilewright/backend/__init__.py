"""Back ends: from scheduled loop programs to something that runs.

In: scheduled kernels, a main program that calls them, a target. Out: an image in a back end's own form.

    cpu          object code through LLVM, for the processors of ``target``

Each is a folder.
"""
