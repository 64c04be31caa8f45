"""Regions of two graphs, their smaller sizes, and bounds of degrees."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.superopt.networks import Net
from tilewright.base.dtypes import f64
from tilewright.base.errors import BadProgram
from tilewright.graph import Value
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.superopt.validate.congruence import Congruence
from tilewright.superopt.validate.regions import Region, regions
from tilewright.superopt.validate.smaller_sizes import smaller
from tilewright.superopt.validate.verdicts import decide
from tilewright.symbolic.expr import Extent
from tilewright.tensor.build import placeholder

Shape = tuple[int, ...]

# Congruence


def test_equal_computations_have_one_number() -> None:
    net = Net()
    x, w = net.x("x", 3), net.w("w", 3)
    same = net.constant("copy of w", net.constants[w].copy())
    made = [net("Add", x, w), net("Add", x, same), net("Add", w, x), net("Add", x, net.w("v", 3))]
    made += [net("Identity", made[0]), net("Reshape", made[0], shape=(3,)), net("Reshape", made[0], shape=(3, 1))]
    numbers = _numbers(net)
    first, copied, turned, other, alias, reshaped, column = (numbers[value.name] for value in made)
    assert first == copied == alias == reshaped
    assert len({first, turned, other, column}) == 4


def test_literals_are_constants_of_one_number() -> None:
    net = Net()
    net.constant("c", np.full((2, 3), 0.5, np.float32))
    net.constant("zero", np.zeros(3, np.float32))
    net.constant("minus zero", -np.zeros(3, np.float32))
    net.constant("several", np.asarray([1, 1, 2], np.float32))
    net.constant("late", np.asarray([*[1] * 40, 2], np.float32))
    net.constant("none", np.zeros(0, np.float32))
    known = Congruence()
    numbers = known.of_leaves(net.graph())
    literals = {name: known.literals.get(number) for name, number in numbers.items()}
    assert literals == {"c": 0.5, "zero": 0.0, "minus zero": 0.0, "several": None, "late": None, "none": None}
    assert len(set(numbers.values())) == len(numbers)


def test_attributes_are_compared_exactly() -> None:
    net = Net()
    x = net.x("x", 3, 3)
    made = [net("Elu", x, alpha=1.0), net("Elu", x, alpha=2.0), net("Gemm", x, x, alpha=0.0)]
    made += [net("Gemm", x, x, alpha=-0.0), net("Gemm", x, x, beta=1.0, alpha=0.0), net("Elu", x, alpha=2.0)]
    numbers = _numbers(net)
    assert len({numbers[value.name] for value in made}) == 5


def _numbers(net: Net) -> dict[str, int]:
    known = Congruence()
    numbers = known.of_leaves(net.graph())
    for node in net.nodes:
        operands = [numbers[value.name] for value in node.inputs if value is not None]
        numbers.update(zip((value.name for value in node.outputs), known.results(node, operands), strict=True))
    return numbers


# Regions


def _regions(net: Net, left: Value, right: Value, *shared: Value) -> list[Region]:
    known = Congruence()
    numbers = known.of_leaves(net.graph())
    for node in net.nodes:
        operands = [numbers[value.name] for value in node.inputs if value is not None]
        numbers.update(zip((value.name for value in node.outputs), known.results(node, operands), strict=True))
    ends = {numbers[value.name] for value in (*shared, *net.inputs, *net.constants)}
    return list(regions(known, numbers[left.name], numbers[right.name], ends.__contains__))


def test_regions_end_at_what_is_shared_and_grow() -> None:
    net = Net()
    x = net.x("x", 4)
    a = net("Exp", x)
    b = net("Tanh", a)
    left, right = net("Add", b, b), net("Mul", b, net.number(2.0))
    small, larger, whole = _regions(net, left, right, a, b)
    assert [len(region.steps) for region in (small, larger, whole)] == [2, 3, 4]
    assert [len(region.leaves) for region in (small, larger, whole)] == [2, 2, 2]
    assert decide(small).is_equal
    assert {leaf.literal.value for leaf in small.leaves if leaf.literal} == {2.0}


def test_regions_that_are_alike_are_equal() -> None:
    """Wherever they are: so each is compared once."""
    net = Net()
    x = net.x("x", 4)
    found: list[Region] = []
    for _ in range(2):
        found += _regions(net, net("Add", x, x), net("Mul", x, net.number(2.0)), x)
        x = net("Exp", x)
    assert found[0] == found[1]
    other = _regions(net, net("Add", x, x), net("Mul", x, net.number(3.0)), x)[0]
    assert other != found[0]
    assert not decide(other).is_equal


# Sizes


def _operator(name: str, shapes: Sequence[Shape], **attributes: Attribute) -> Region:
    net = Net()
    operands = [net.x(f"x{place}", *shape) for place, shape in enumerate(shapes)]
    made = net(name, *operands, **attributes)
    return _regions(net, made, net("Neg", net("Neg", made)))[0]


LARGE: list[tuple[str, list[Shape], dict[str, Attribute]]] = [
    ("Reshape", [(384, 768)], {"shape": (384, 12, 64)}),
    ("Reshape", [(8, 384, 768)], {"shape": (-1, 768)}),
    ("Reshape", [(32, 40, 60)], {"shape": (0, 40, 5, 12)}),
    ("Flatten", [(16, 512, 7, 7)], {"axis": 1}),
    ("Squeeze", [(1, 512, 1, 300)], {}),
    ("Concat", [(64, 96), (64, 128), (64, 96)], {"axis": 1}),
    ("Concat", [(64, 96), (32, 96)], {"axis": -2}),
    ("Slice", [(100, 2304)], {"axes": (-1,), "starts": (768,), "ends": (1536,)}),
    ("Slice", [(100, 2304)], {"axes": (1,), "starts": (-768,), "ends": (1 << 40,)}),
    ("Slice", [(100, 99)], {"axes": (0,), "starts": (90,), "ends": (10,), "steps": (-3,)}),
    ("Pad", [(64, 64, 56, 56)], {"before": (0, 64, 1, 1), "after": (0, 0, 1, 1)}),
    ("Pad", [(64, 300)], {"before": (0, -1), "after": (0, 0)}),
    ("Tile", [(64, 30)], {"repeats": (1, 12)}),
    ("Expand", [(1, 300)], {"shape": (500, 300)}),
    ("Conv", [(8, 256, 56, 56), (128, 256, 3, 3)], {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    ("Conv", [(8, 128, 56, 57), (128, 4, 3, 3)], {"pads": (1, 1, 1, 1), "group": 32}),
    ("Conv", [(8, 96, 112, 112), (96, 1, 7, 7)], {"group": 96, "dilations": (2, 2), "pads": (6, 6, 6, 6)}),
    ("Conv", [(3, 224, 300), (64, 224, 9)], {"strides": (4,)}),
    ("MaxPool", [(8, 64, 112, 112)], {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ("AveragePool", [(8, 64, 13, 13)], {"kernel_shape": (2, 2), "strides": (2, 2), "ceil_mode": True}),
    ("LpPool", [(8, 64, 112)], {"kernel_shape": (3,), "strides": (2,), "p": 1}),
    ("MatMul", [(12, 384, 64), (12, 64, 384)], {}),
    ("Gemm", [(384, 768), (3072, 768)], {"transpose_b": True}),
    ("Transpose", [(12, 384, 64)], {"perm": (2, 0, 1)}),
    ("Softmax", [(12, 384)], {"axis": -1}),
    ("ReduceMean", [(12, 384, 768)], {"axes": (1,), "keepdims": False}),
    ("Add", [(384, 1, 64), (768, 1)], {}),
]


@pytest.mark.parametrize(
    ("name", "shapes", "attributes"), LARGE, ids=lambda part: part if isinstance(part, str) else ""
)
def test_smaller_sizes_fit(name: str, shapes: list[Shape], attributes: dict[str, Attribute]) -> None:
    """They are smaller, operators accept them, and different extents stay different."""
    region = _operator(name, shapes, **attributes)
    small, sizes = next(smaller(region))
    assert sizes
    assert all(new <= old for old, new in sizes.items())
    assert len(set(sizes.values())) == len(sizes)
    verdict = decide(region, budget=1 << 18)
    assert (verdict.is_equal, dict(verdict.sizes)) == (True, dict(sizes))
    shapes = [static(leaf.type.shape) or () for leaf in small.leaves]
    operator = small.steps[0]
    again = require(name).apply(
        [placeholder(shape, f64, f"x{place}") for place, shape in enumerate(shapes)], dict(operator.attributes.value)
    )
    assert static(again[0].shape) == static(operator.types[0].shape)


def test_the_last_sizes_are_the_own_ones() -> None:
    region = _operator("MatMul", [(12, 384, 64), (12, 64, 384)])
    *_, (same, sizes) = smaller(region)
    assert same is region
    assert sizes == {}


def test_nothing_is_smaller_than_no_elements() -> None:
    region = _operator("Reshape", [(32, 0, 60)], shape=(32, 0, 30, 2), allow_zero=True)
    ((same, _),) = smaller(region)
    assert same is region
    assert decide(region).is_equal


def test_a_mean_that_is_divided_by_a_literal() -> None:
    """At fewer elements the literal is wrong: the second sizes keep their number."""
    net = Net()
    x = net.x("x", 500, 49)
    mean = net("ReduceMean", x, axes=(1,))
    divided = net("Div", net("ReduceSum", x, axes=(1,)), net.number(49.0))
    verdict = decide(_regions(net, mean, divided)[0], budget=1 << 16)
    assert verdict.is_equal
    assert verdict.sizes[49] == 49
    assert verdict.sizes[500] < 49


def test_run_time_extents_are_numbers_that_are_no_multiples() -> None:
    n, m = Extent("n"), Extent("m")
    net = Net()
    x = net.x("x", n, m, 6)
    made = net("Reshape", x, shape=(n, m * 6))
    region = _regions(net, made, net("Neg", net("Neg", made)))[0]
    *_, (concrete, _) = smaller(region)
    assert static(concrete.leaves[0].type.shape) == (7, 5, 6)
    assert dict(concrete.steps[0].attributes.value)["shape"] == (7, 30)
    many = net.x("many", *(Extent(f"d{i}") for i in range(9)))
    twice = net("Neg", net("Neg", many))
    with pytest.raises(BadProgram, match="9 run-time extents"):
        next(smaller(_regions(net, twice, many)[0]))
    assert decide(_regions(net, twice, many)[0]).is_equal is None
