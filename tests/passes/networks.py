"""Random networks of convolutions, and what comes between them."""

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.passes.graphs import apply, value
from tilewright.graph import Graph, Node, Value
from tilewright.target.target import Target

Array = NDArray[np.generic]
HOST = Target.host()
LANES = HOST.vector_bits // 32


def constant(known: dict[Value, Array], *shape: int) -> Value:
    made = value(f"c{len(known)}", *shape)
    array = np.random.default_rng(len(known)).standard_normal(shape) / np.sqrt(shape[-1] * 9)
    known[made] = array.astype(np.float32)
    return made


def conv(known: dict[Value, Array], x: Value, filters: int, name: str, kernel: int = 3, group: int = 1) -> Node:
    weight = constant(known, filters, int(str(x.shape[1])) // group, kernel, kernel)
    return apply("Conv", [x, weight], name, pads=(kernel // 2,) * 4, group=group)


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Convolutions, pools, elementwise nodes and joins; channels that fill blocks, and that do not.

    A node makes values at most some ten times as large: a gate is a share, no product of what may grow.
    """
    known: dict[Value, Array] = {}
    x = value("x", 1, draw(st.sampled_from([3, LANES])), 5, 5)
    nodes: list[Node] = []
    values = [x]

    def add(node: Node) -> Value:
        nodes.append(node)
        values.append(node.outputs[0])
        return node.outputs[0]

    for position in range(draw(st.integers(2, 6))):
        source, name = draw(st.sampled_from(values[-3:])), f"v{position}"
        channels = int(str(source.shape[1]))
        match draw(st.sampled_from(["conv", "conv", "depthwise", "relu", "add", "scale", "gate", "concat", "pool"])):
            case "conv":
                filters = draw(st.sampled_from([4, LANES, LANES + 3, 2 * LANES, 2 * LANES - 2]))
                add(conv(known, source, filters, name, kernel=draw(st.sampled_from([1, 3]))))
            case "depthwise":
                add(conv(known, source, channels, name, group=channels))
            case "relu":
                add(apply("Relu", [source], name))
            case "add":
                same = [v for v in values if v.shape == source.shape]
                add(apply("Add", [source, draw(st.sampled_from(same))], name))
            case "scale":
                add(apply("Mul", [source, constant(known, channels, 1, 1)], name))
            case "gate":
                mean = add(apply("ReduceMean", [source], f"{name}.mean", axes=(1,)))
                share = add(apply("Sigmoid", [mean], f"{name}.share"))
                add(apply("Mul", [source, share], name))
            case "concat":
                add(apply("Concat", [source, draw(st.sampled_from(values))], name, axis=1))
            case _:
                add(apply("MaxPool", [source], name, kernel_shape=(3, 3), pads=(1, 1, 1, 1)))
    last = apply("Flatten", [values[-1]], "flat")
    outputs = dict.fromkeys((last.outputs[0], draw(st.sampled_from(values[1:]))))
    return Graph("random", (x,), tuple(outputs), (*nodes, last), known)
