"""Convolutions and products that a library computes, where that is measured to be faster (``runtime.library``).

In: a graph in float32. Out: a graph with a node for each *call* of the library; between them are native parts. ::

    choice      which library, and what it gets
    units       what a call computes: a convolution or a product, with its bias and the limits of its results
    timing      times of units by the library and by kernels of our own
    placing     the graph with its calls, and whether it is faster as a whole
    model       the compiled model, and its calls in artifacts

To give the library another operator: a unit in ``units``, its ``Function`` in ``runtime.library.primitive``.
"""
