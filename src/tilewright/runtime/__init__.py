"""Runs compiled models; requires NumPy (and ml-dtypes), but no part of the compiler.

In: an image (relocatable objects), a ``Manifest`` and constants. Out: an ``Executable``, which takes NumPy arrays and
gives NumPy arrays. ``abi`` is the contract with generated code. Steps of a call:

    executable check feeds (feeds), allocate outputs
    native     take a context (context), one native call (entry)
    loader     objects (elf) -> one image (linker, relocations, imports) in memory (memory)
    pool       worker threads for parallel regions; how many: sizing. What they run: ``backend.cpu.pool_text``
    system     what memory, loader and pool ask of the operating system

    executable = NativeExecutable(Manifest(inputs, outputs), objects)
    y, = executable.run({"x": x})

The public class is ``RunnableModel`` (runnable): compiled here, or loaded from a file (loading, artifact), which may
have a version for each of several sizes (versioned). ``BoundModel`` (bound): with fixed arrays. Code for another
machine is refused (elsewhere, by capabilities); programs of accelerators are opened by what knows them (devices), and
calls of a library by ``library``.

New object format: ``loader``; processor: ``relocations`` and ``backend.cpu.processors``; error code: ``abi``;
operating system: ``system``.
"""
