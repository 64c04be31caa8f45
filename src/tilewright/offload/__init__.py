"""One model, two devices: a quantized graph is split between the CPU and an accelerator (``backend/vta``).

In: a graph with ``QuantizeLinear`` and ``DequantizeLinear`` whose scales are powers of two. Out: a graph with a node
for each *region*, which the accelerator computes bit by bit as the CPU does; between them are native parts. ::

    accelerator    which one, what is given to it, what runs its programs
    units          what is computed as a whole: products, additions
    recognize      units in a graph, and why a node is none
    rounding       the rounding of the CPU, by operations of ALU
    forms          units as tensor expressions, and their schedules; region: units as one program
    device         runs regions, or counts their cycles
    costs          times on both devices; cut: the cheapest split; partition: all of it
    model          the compiled model; shipped: its regions in artifacts
    splitting      what `compile` asks: the graph split, and the model of its parts
    library        the same for a library on the CPU, and graphs in float32

To offload another operator: a unit in ``units``, where it is exact in ``recognize``, its expression in ``forms``.
"""
