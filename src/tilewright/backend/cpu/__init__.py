"""Loop programs to native code.

In: scheduled loop programs, a main program that calls them, a target. Out: an ``Image``: object files that
``runtime`` loads, and the sizes of the memory that they need.

    print(image.kernel_text(program).text)         the LLVM IR of one kernel
    print(image.assembly(program, target))         its assembly

A program is made ready (``prepare``), its statements are written (``statements``), their values and addresses
(``scalars``), the operations (``arithmetic``, ``vecmath``). A new operation goes into the last two.
"""
