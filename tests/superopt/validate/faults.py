"""Rewrites that are right, and what is wrong with others that look like them.

``before`` and ``right`` compute the same; each ``wrong`` does not, and has the same types. All work at any size.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tests.superopt.networks import Net
from tilewright.graph import Value


@dataclass(frozen=True)
class Case:
    """A function for each graph; its outputs are the values whose names begin with ``y``."""

    before: Callable[[Net], None]
    right: Callable[[Net], None]
    wrong: Mapping[str, Callable[[Net], None]]


# Two products of one matrix


def _products(net: Net) -> None:
    x = net.x("x", 6, 8)
    net("MatMul", x, net.w("q", 8, 8), name="y1")
    net("MatMul", x, net.w("k", 8, 8), name="y2")


def _merged(
    net: Net,
    *,
    names: tuple[str, str] = ("q", "k"),
    axis: int = 1,
    cuts: tuple[int, int] = (0, 8),
    flipped: bool = False,
    turned: bool = False,
) -> None:
    x = net.x("x", 6, 8)
    weights = net("Concat", *(net.w(name, 8, 8) for name in names), axis=axis)
    if axis == 0:
        weights = net("Reshape", weights, shape=(8, 16))
    if turned:
        weights = net("Concat", net("Transpose", net.w("q", 8, 8)), net.w("k", 8, 8), axis=1)
    t = net("MatMul", x, weights)
    for name, start in zip(("y2", "y1") if flipped else ("y1", "y2"), cuts, strict=True):
        net("Slice", t, name=name, axes=(1,), starts=(start,), ends=(start + 8,))


PRODUCTS = Case(
    _products,
    _merged,
    {
        "slices swapped": partial(_merged, flipped=True),
        "weights swapped": partial(_merged, names=("k", "q")),
        "one weight twice": partial(_merged, names=("q", "q")),
        "a slice begins too late": partial(_merged, cuts=(1, 8)),
        "a slice ends too early": partial(_merged, cuts=(0, 7)),
        "one slice twice": partial(_merged, cuts=(0, 0)),
        "weights joined along the wrong axis": partial(_merged, axis=0),
        "a weight transposed": partial(_merged, turned=True),
    },
)


# A linear layer with an activation


def _layer(net: Net) -> None:
    x = net.x("x", 4, 8)
    h = net("Add", net("MatMul", x, net.w("w", 8, 8)), net.w("b", 8), name="h")
    net("Relu", net("Mul", h, net.w("s", 8)), name="y")


def _scaled(
    net: Net,
    *,
    bias: str = "b",
    scale: str = "s",
    is_bias_scaled: bool = True,
    is_weight_scaled: bool = True,
    has_bias: bool = True,
    activation: str = "Relu",
    add: str = "Add",
    by_rows: bool = False,
    is_swapped: bool = False,
) -> None:
    x, w, b, s = net.x("x", 4, 8), net.w("w", 8, 8), net.w(bias, 8), net.w(scale, 8)
    factors = net("Reshape", s, shape=(8, 1)) if by_rows else s
    weight = net("Mul", w, factors) if is_weight_scaled else w
    product = net("MatMul", x, net("Transpose", weight) if is_swapped else weight)
    shift = net("Mul", b, s) if is_bias_scaled else b
    sum_ = net(add, product, shift) if has_bias else product
    net(activation, sum_, name="y")


LAYER = Case(
    _layer,
    _scaled,
    {
        "bias dropped": partial(_scaled, has_bias=False),
        "bias not scaled": partial(_scaled, is_bias_scaled=False),
        "weight not scaled": partial(_scaled, is_weight_scaled=False),
        "rows scaled instead of columns": partial(_scaled, by_rows=True),
        "another bias": partial(_scaled, bias="s"),
        "another scale": partial(_scaled, scale="b"),
        "subtracted": partial(_scaled, add="Sub"),
        "activation dropped": partial(_scaled, activation="Identity"),
        "another activation": partial(_scaled, activation="Abs"),
        "the weight transposed": partial(_scaled, is_swapped=True),
    },
)


# Convolutions


def _normalized(net: Net, *, channels: int = 6, group: int = 1) -> None:
    x, w = net.x("x", 2, 4, 9, 9), net.w("w", channels, 4 // group, 3, 3)
    g, b, m = (net.w(name, channels) for name in "gbm")
    h = net("Conv", x, w, pads=(1, 1, 1, 1), group=group)
    net("BatchNormalization", h, g, b, m, net.positive("v", channels), name="y", epsilon=0.001)


def _folded(
    net: Net,
    *,
    epsilon: float = 0.001,
    pads: tuple[int, ...] = (1, 1, 1, 1),
    group: int = 1,
    channels: int = 6,
    mean: str = "m",
    along: tuple[int, ...] = (-1, 1, 1, 1),
    reciprocal: bool = True,
    shift: str = "Sub",
) -> None:
    x, w = net.x("x", 2, 4, 9, 9), net.w("w", channels, 4 // group, 3, 3)
    g, b, m = net.w("g", channels), net.w("b", channels), net.w(mean, channels)
    deviation = net("Sqrt", net("Add", net.positive("v", channels), net.number(epsilon)))
    factor = net("Div", g, deviation) if reciprocal else net("Mul", g, deviation)
    weight = net("Mul", w, net("Reshape", factor, shape=tuple(channels if n < 0 else n for n in along)))
    bias = net(shift, b, net("Mul", m, factor))
    net("Conv", x, weight, bias, name="y", pads=pads, group=group)


NORMALIZED = Case(
    _normalized,
    _folded,
    {
        "another epsilon": partial(_folded, epsilon=0.1),
        "windows shifted": partial(_folded, pads=(2, 1, 0, 1)),
        "another mean": partial(_folded, mean="b"),
        "multiplied instead of divided": partial(_folded, reciprocal=False),
        "mean added": partial(_folded, shift="Add"),
    },
)
GROUPED = Case(
    partial(_normalized, channels=8, group=2),
    partial(_folded, channels=8, group=2),
    {"another epsilon": partial(_folded, channels=8, group=2, epsilon=0.1)},
)


def _convolutions(net: Net) -> None:
    x = net.x("x", 1, 4, 7, 7)
    a = net("Conv", x, net.w("v", 4, 4, 1, 1), net.w("a", 4))
    c = net("Conv", x, net.w("w", 4, 4, 3, 3), net.w("c", 4), pads=(1, 1, 1, 1))
    net("Add", net("Relu", a), c, name="y")


def _enlarged(
    net: Net,
    *,
    before: tuple[int, int] = (1, 1),
    axis: int = 0,
    biases: tuple[str, str] = ("a", "c"),
    relu_at: int = 0,
    start: int = 0,
    dilation: int = 1,
) -> None:
    """The kernel of one grown to that of the other, both joined."""
    x, (first, second) = net.x("x", 1, 4, 7, 7), before
    wide = net("Pad", net.w("v", 4, 4, 1, 1), before=(0, 0, first, second), after=(0, 0, 2 - first, 2 - second))
    weight = net("Concat", wide, net.w("w", 4, 4, 3, 3), axis=axis)
    if axis:
        weight = net("Reshape", weight, shape=(8, 4, 3, 3))
    bias = net("Concat", *(net.w(name, 4) for name in biases), axis=0)
    pads = (dilation,) * 4
    t = net("Conv", x, weight, bias, pads=pads, dilations=(dilation, dilation))
    cuts = [net("Slice", t, axes=(1,), starts=(at,), ends=(at + 4,)) for at in (start, 4)]
    parts = [net("Relu", cut) if place == relu_at else cut for place, cut in enumerate(cuts)]
    net("Add", *parts, name="y")


ENLARGED = Case(
    _convolutions,
    _enlarged,
    {
        "the kernel off its centre": partial(_enlarged, before=(0, 1)),
        "the kernel off its centre, the other way": partial(_enlarged, before=(1, 2)),
        "filters joined by inputs": partial(_enlarged, axis=1),
        "biases swapped": partial(_enlarged, biases=("c", "a")),
        "the other one activated": partial(_enlarged, relu_at=1),
        "a slice of both": partial(_enlarged, start=2),
        "dilated": partial(_enlarged, dilation=2),
    },
)


# Attention


def _heads(net: Net, x: Value, name: str) -> Value:
    split = net("Reshape", net("MatMul", x, net.w(name, 12, 12)), shape=(5, 3, 4))
    return net("Transpose", split, perm=(1, 0, 2))


def _attention(net: Net, *, scale: float = 0.5, axis: int = -1, keys: str = "k", is_after: bool = False) -> None:
    x = net.x("x", 5, 12)
    q, k, v = (_heads(net, x, name) for name in ("q", keys, "v"))
    if is_after:
        q = net("Mul", q, net.number(scale))
    scores = net("MatMul", q, net("Transpose", k, perm=(0, 2, 1)))
    if not is_after:
        scores = net("Mul", scores, net.number(scale))
    mixed = net("MatMul", net("Softmax", scores, axis=axis), v)
    net("Reshape", net("Transpose", mixed, perm=(1, 0, 2)), name="y", shape=(5, 12))


def _one_product(net: Net, *, perm: tuple[int, ...] = (1, 2, 0, 3), order: str = "qkv", scale: float = 0.5) -> None:
    """Queries, keys and values at once."""
    x = net.x("x", 5, 12)
    weight = net("Concat", *(net.w(name, 12, 12) for name in order), axis=1)
    split = net("Reshape", net("MatMul", x, weight), shape=(5, 3, 3, 4))
    turned = net("Transpose", split, perm=perm)
    q, k, v = (net("Squeeze", net("Slice", turned, axes=(0,), starts=(i,), ends=(i + 1,)), axes=(0,)) for i in range(3))
    scores = net("MatMul", net("Mul", q, net.number(scale)), net("Transpose", k, perm=(0, 2, 1)))
    mixed = net("MatMul", net("Softmax", scores, axis=-1), v)
    net("Reshape", net("Transpose", mixed, perm=(1, 0, 2)), name="y", shape=(5, 12))


ATTENTION = Case(
    _attention,
    partial(_attention, is_after=True),
    {
        "another scale": partial(_attention, scale=0.25, is_after=True),
        "keys of queries": partial(_attention, keys="q", is_after=True),
    },
)
ONE_PRODUCT = Case(
    _attention,
    _one_product,
    {
        "heads for queries, keys and values": partial(_one_product, perm=(2, 1, 0, 3)),
        "keys and values swapped": partial(_one_product, order="qvk"),
        "another scale": partial(_one_product, scale=-0.5),
    },
)


# Means, extrema, pools


def _mean(net: Net) -> None:
    x = net.x("x", 6, 6)
    net("ReduceMean", net("Max", x, net.number(0.0)), name="y", axes=(1,), keepdims=False)


def _sum(
    net: Net, *, axis: int = 1, count: float = 1 / 6, extremum: str = "Max", floor: float = 0.0, reduce: str = "Sum"
) -> None:
    x = net.x("x", 6, 6)
    bounded = net(extremum, net.number(floor), x)
    total = net(f"Reduce{reduce}", bounded, axes=(axis,), keepdims=False)
    net("Div", total, net.number(1 / count), name="y")


MEAN = Case(
    _mean,
    _sum,
    {
        "along the other axis": partial(_sum, axis=0),
        "another count": partial(_sum, count=1 / 5),
        "the other extremum": partial(_sum, extremum="Min"),
        "another bound": partial(_sum, floor=0.125),
        "the largest instead of the sum": partial(_sum, reduce="Max"),
    },
)


def _pool(net: Net) -> None:
    x = net.x("x", 1, 3, 6, 6)
    net("AveragePool", x, name="y", kernel_shape=(2, 2), strides=(2, 2))


def _pool_as_convolution(net: Net, *, weight: float = 0.25, dilation: int = 1) -> None:
    x = net.x("x", 1, 3, 6, 6)
    taps = net("Expand", net.number(weight), shape=(3, 1, 2, 2))
    pads = (0, 0, dilation - 1, dilation - 1)
    net("Conv", x, taps, name="y", group=3, strides=(2, 2), dilations=(dilation, dilation), pads=pads)


POOL = Case(
    _pool,
    _pool_as_convolution,
    {
        "not divided": partial(_pool_as_convolution, weight=1.0),
        "dilated": partial(_pool_as_convolution, dilation=2),
    },
)

CASES: Mapping[str, Case] = {
    "products": PRODUCTS,
    "layer": LAYER,
    "normalized": NORMALIZED,
    "grouped": GROUPED,
    "enlarged": ENLARGED,
    "attention": ATTENTION,
    "one product": ONE_PRODUCT,
    "mean": MEAN,
    "pool": POOL,
}
