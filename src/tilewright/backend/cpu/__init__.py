"""The CPU back end: compiles loop programs to native code through LLVM.

In: scheduled loop programs, a main program that calls them, a target. Out: an ``Image``: object files that
``runtime`` loads, and the sizes of the memory that they need.

    print(image.kernel_text(program).text)         the LLVM IR of one kernel
    print(image.assembly(program, target))         its assembly

A program is prepared (``prepare``); then code is generated for its statements (``statements``), values and addresses
(``scalars``), and operations (``arithmetic``, ``vecmath``). A new operation goes into the last two.
"""
