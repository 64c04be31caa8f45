"""What is declared of operators, against their programs evaluated on random arrays; and nothing is left undeclared."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import permutations
from math import prod

import numpy as np
import pytest

from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType, boolean, f8e4m3fn, f32, from_numpy, i32, u8
from tilewright.base.errors import TilewrightError
from tilewright.ops import Attribute, FusionKind, Operator, Trait, names
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.tensor.build import placeholder
from tilewright.tensor.evaluate import evaluate

Shape = tuple[int, ...]

SHAPE: Shape = (2, 3, 4)
SCALARS = frozenset({"Clip"})
"""Whose inputs after the first have one element."""
ATTRIBUTES: Mapping[str, Mapping[str, Attribute]] = {
    "BitShift": {"direction": "LEFT"},
    "Cast": {"to": i32},
    "Concat": {"axis": 1},
    "Declared": {"shape": SHAPE},
    "DecodeFloat": {"of": f8e4m3fn},
    "EncodeFloat": {"to": f8e4m3fn},
    "IntegerPower": {"exponent": 3},
    "LowBits": {"bits": 4},
    "Reshape": {"shape": (4, 6)},
}
"""Where they are needed."""
LIKE_ELEMENTWISE = frozenset({"Declared", "Squeeze", "TensorScatter"})
"""With inputs of this shape: it is declared again, there is nothing to squeeze, and all is overwritten."""
MOVES: Mapping[str, tuple[int, Shape, Mapping[str, Attribute]]] = {
    "Concat": (3, SHAPE, {"axis": 1}),
    "Copy": (1, SHAPE, {}),
    "Expand": (1, SHAPE, {"shape": (5, 2, 3, 4)}),
    "Flatten": (1, SHAPE, {}),
    "Declared": (1, SHAPE, {"shape": SHAPE}),
    "Identity": (1, SHAPE, {}),
    "PhasesToSpace": (1, (2, 8, 3, 2), {"strides": (2, 2), "offsets": (0, 1), "spatial": (6, 3)}),
    "Repeat": (1, SHAPE, {"axis": 1, "times": 2}),
    "Reshape": (1, SHAPE, {"shape": (4, 6)}),
    "Slice": (1, SHAPE, {"starts": (1, 3), "ends": (3, 0), "axes": (1, 2), "steps": (1, -1)}),
    "Squeeze": (1, (2, 1, 3), {"axes": (1,)}),
    "Tile": (1, SHAPE, {"repeats": (1, 2, 3)}),
    "Transpose": (1, SHAPE, {"perm": (2, 0, 1)}),
    "Unsqueeze": (1, SHAPE, {"axes": (1,)}),
}
"""How many inputs of which shape are moved, and by what."""


def run(op: Operator, arrays: Sequence[Array], attributes: Mapping[str, Attribute]) -> Array | None:
    """None if there is no such program, or it has other than one result."""
    tensors = [placeholder(array.shape, from_numpy(array.dtype), f"x{n}") for n, array in enumerate(arrays)]
    try:
        results = op.apply(tensors, attributes)
        if len(results) != 1 or static(results[0].shape) is None:
            return None
        with np.errstate(all="ignore"):
            return evaluate(results, dict(zip(tensors, arrays, strict=True)))[0]
    except TilewrightError:
        return None


def draw(dtype: DType, shape: Shape, random: np.random.Generator) -> Array:
    if dtype.is_float:
        return random.uniform(-2, 2, shape).astype(np.float32)
    return random.integers(0, 2 if dtype == boolean else 9, shape).astype(dtype.numpy)


@cache
def examples(name: str) -> Sequence[list[Array]]:
    """Up to three inputs of one dtype (the first may be booleans) and shape for which the operator has a program."""
    op, random, found = require(name), np.random.default_rng(7), list[list[Array]]()
    for count in (1, 2, 3):
        shapes = [SHAPE, *[() if name in SCALARS else SHAPE] * (count - 1)]
        for dtype in (f32, i32, u8, boolean):
            for first in dict.fromkeys((dtype, boolean)):
                arrays = [draw(first if at == 0 else dtype, shape, random) for at, shape in enumerate(shapes)]
                if run(op, arrays, ATTRIBUTES.get(name, {})) is not None:
                    found.append(arrays)
    return found


def same(a: Array | None, b: Array | None) -> bool:
    assert a is not None and b is not None
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def is_elementwise(op: Operator, arrays: list[Array]) -> bool:
    """Other elements elsewhere change nothing here, and places are alike."""
    random, attributes = np.random.default_rng(11), ATTRIBUTES.get(op.name, {})
    result = run(op, arrays, attributes)
    if result is None or result.shape != SHAPE:
        return False
    kept = random.random(SHAPE) < 0.5
    others = [
        np.where(kept, array, draw(from_numpy(array.dtype), SHAPE, random)) if array.ndim else array for array in arrays
    ]
    changed = run(op, others, attributes)
    if changed is None or not same(result[kept], changed[kept]):
        return False
    order = random.permutation(result.size)

    def permuted(array: Array) -> Array:
        return array.reshape(-1)[order].reshape(SHAPE) if array.ndim else array

    return same(run(op, [permuted(array) for array in arrays], attributes), permuted(result))


@pytest.mark.parametrize("name", names())
def test_elementwise(name: str) -> None:
    op, found = require(name), examples(name)
    seems = bool(found) and all(is_elementwise(op, arrays) for arrays in found)
    assert op.has(Trait.ELEMENTWISE) == (seems and name not in LIKE_ELEMENTWISE)


@pytest.mark.parametrize("name", names())
def test_commutative(name: str) -> None:
    op, attributes = require(name), ATTRIBUTES.get(name, {})
    found = [arrays for arrays in examples(name) if len({(a.dtype, a.shape) for a in arrays}) == 1 < len(arrays)]
    commutes = (
        same(run(op, arrays, attributes), run(op, list(order), attributes))
        for arrays in found
        for order in permutations(arrays)
    )
    assert op.has(Trait.COMMUTATIVE) == (bool(found) and all(commutes))


@pytest.mark.parametrize("name", [name for name in names() if require(name).has(Trait.MOVES)])
def test_moves(name: str) -> None:
    """An injective function of elements may as well be applied to the result; and nothing else is in it."""
    op, (count, shape, attributes) = require(name), MOVES[name]
    arrays = [np.arange(1, prod(shape) + 1, dtype=np.float32).reshape(shape) + 100 * n for n in range(count)]
    result = run(op, arrays, attributes)
    assert result is not None
    assert set(result.reshape(-1)) <= {number for array in arrays for number in array.reshape(-1)}
    assert same(run(op, [1 / array for array in arrays], attributes), 1 / result)


RELOCATES: Mapping[str, tuple[list[Array], Mapping[str, Attribute]]] = {
    "Gather": ([np.array([2, 0], np.int32)], {"axis": 1}),
    "Pad": ([], {"before": (0, 1, 2), "after": (1, 0, 0)}),
    "SliceFrom": ([np.array([1, 2], np.int64)], {"counts": (2, 2), "axes": (1, 2), "steps": (1, 1)}),
}
"""The inputs after the first, and the attributes; of others, ``MOVES`` says them."""


def broadcasts(array: Array, shape: Shape) -> Iterator[Array]:
    """``array`` in ``shape``, if it can be broadcast."""
    with suppress(ValueError):
        yield np.broadcast_to(array, shape)


@pytest.mark.parametrize("name", [name for name in names() if require(name).has(Trait.RELOCATES)])
def test_relocates(name: str) -> None:
    """Elements are those of the data, or 0, and not all of them where broadcasting would put them."""
    op, array = require(name), np.arange(1, prod(SHAPE) + 1, dtype=np.float32).reshape(SHAPE)
    count, _, options = MOVES.get(name, (1, SHAPE, {}))
    others, attributes = RELOCATES.get(name, ([np.float32(100) + array] * (count - 1), options))
    result = run(op, [array, *others], attributes)
    assert result is not None
    assert same(run(op, [-array, *(-o if o.dtype == array.dtype else o for o in others)], attributes), -result)
    given = [array, *(o for o in others if o.dtype == array.dtype)]
    assert set(result.reshape(-1)) <= {0.0}.union(*(set(one.reshape(-1)) for one in given))
    assert not any(same(result, one) for one in broadcasts(array, result.shape))


@pytest.mark.parametrize("name", names())
def test_divides(name: str) -> None:
    """By 0, nothing finite is left of any number."""
    op, found = (
        require(name),
        [arrays for arrays in examples(name) if len(arrays) == 2 and arrays[1].dtype == np.float32],
    )
    by_zero = [run(op, [first, 0 * second], ATTRIBUTES.get(name, {})) for first, second in found]
    divides = bool(by_zero) and not any(result is None or np.isfinite(result).any() for result in by_zero)
    assert op.has(Trait.DIVIDES) == divides


@pytest.mark.parametrize("name", MOVES)
def test_regroups(name: str) -> None:
    """Those that give other shapes; where one stays, whatever order there is may be that of the operator."""
    op, (count, shape, attributes) = require(name), MOVES[name]
    arrays = [np.arange(prod(shape), dtype=np.float32).reshape(shape)] * count
    result = run(op, arrays, attributes)
    assert result is not None
    keeps = result.shape != shape and same(result.reshape(-1), arrays[0].reshape(-1))
    assert op.has(Trait.REGROUPS) == keeps


def test_what_only_names_elements_anew_moves_them() -> None:
    for name in names():
        assert require(name).kind is not FusionKind.VIEW or require(name).has(Trait.MOVES)


@pytest.mark.parametrize("name", [name for name in names() if require(name).has(Trait.FLAT_AXES)])
def test_flat_axes(name: str) -> None:
    """Over ``y`` and ``x`` of ``[n, y, x]``, and over the rows of ``[n, y * x]``; over ``n`` of both."""
    op, random = require(name), np.random.default_rng(3)
    array, scale = (random.uniform(0.5, 2, shape).astype(np.float32) for shape in (SHAPE, SHAPE[1:]))
    more = {"p": 3} if name == "ReduceLp" else {}
    flat, row = array.reshape(2, 12), scale.reshape(12)
    pairs: list[tuple[Array, Array]] = []
    if "Normalization" in name:
        pairs += [(first(op, [array, scale], {"axis": 1}), first(op, [flat, row], {"axis": 1}))]
    elif "Softmax" in name:
        pairs += [(first(op, [array], {"axis": 0}), first(op, [flat], {"axis": 0}))]
    else:
        pairs += [
            (first(op, [array], {"axes": over, **more}), first(op, [flat], {"axes": over[:1], **more}))
            for over in ((1, 2), (0,))
        ]
    for found, expected in pairs:
        np.testing.assert_allclose(found.reshape(-1), expected.reshape(-1), rtol=1e-6)


def first(op: Operator, arrays: Sequence[Array], attributes: Mapping[str, Attribute]) -> Array:
    """The first of all results."""
    tensors = [placeholder(array.shape, f32, f"x{n}") for n, array in enumerate(arrays)]
    results = op.apply(tensors, attributes)
    return evaluate(results, dict(zip(tensors, arrays, strict=True)))[0]


def test_all_reductions_of_axes_have_flat_ones() -> None:
    reducing = {name for name in names() if name.startswith("Reduce")}
    assert reducing | {"LayerNormalization", "RMSNormalization", "Softmax", "LogSoftmax"} == {
        name for name in names() if require(name).has(Trait.FLAT_AXES)
    }


@pytest.mark.parametrize("name", [name for name in names() if require(name).has(Trait.SUMS_CHANNELS)])
def test_sums_channels(name: str) -> None:
    """Linear in data and filters; a filter is that of its channel, and a channel of data that of its group."""
    op, random, options = require(name), np.random.default_rng(4), {"group": 2}
    data, weight = (random.standard_normal(shape).astype(np.float32) for shape in ((1, 4, 5, 5), (6, 2, 3, 3)))

    def result(data: Array, weight: Array) -> Array:
        found = run(op, [data, weight], options)
        assert found is not None
        return found

    known = result(data, weight)
    assert known.shape[:2] == (1, 6)
    for one in (result(2 * data, weight), result(data, 2 * weight)):
        np.testing.assert_allclose(one, 2 * known, rtol=1e-5)
    for channel in range(6):
        other = weight.copy()
        other[channel] += 1
        changed = np.abs(result(data, other) - known).max(axis=(0, 2, 3)) > 0
        assert changed.tolist() == [at == channel for at in range(6)]
    for channel in range(4):
        other = data.copy()
        other[:, channel] += 1
        changed = np.abs(result(other, weight) - known).max(axis=(0, 2, 3)) > 0
        assert changed.tolist() == [at // 3 == channel // 2 for at in range(6)]


NEUTRAL: Mapping[str, tuple[Shape, Mapping[str, Attribute]]] = {
    "Cast": (SHAPE, {"to": f32}),
    "Expand": (SHAPE, {"shape": (3, 1)}),
    "Flatten": ((6, 4), {"axis": 1}),
    "Identity": (SHAPE, {}),
    "Reshape": (SHAPE, {"shape": (0, -1, 4)}),
    "Squeeze": (SHAPE, {"axes": ()}),
    "Unsqueeze": (SHAPE, {"axes": ()}),
}


@pytest.mark.parametrize("name", [name for name in names() if require(name).has(Trait.NEUTRAL)])
def test_neutral(name: str) -> None:
    shape, attributes = NEUTRAL[name]
    array = draw(f32, shape, np.random.default_rng(5))
    assert same(run(require(name), [array], attributes), array)


BESIDE: Mapping[str, int] = {
    "BatchNormalization": 4,
    "GroupNormalization": 2,
    "LayerNormalization": 1,
    "PRelu": 1,
    "RMSNormalization": 1,
}
"""How many operands there are beside the data."""


@pytest.mark.parametrize("name", [name for name in names() if require(name).has(Trait.LIKE_FIRST)])
def test_like_first(name: str) -> None:
    op, count = require(name), BESIDE.get(name, 0)
    shape = (4, 4) if name == "EyeLike" else (2, 4, 4)
    others = [placeholder((4,), f32, f"p{n}") for n in range(count)]
    data = placeholder(shape, f32, "x")
    assert op.apply([data, *others], {})[0].shape == data.shape


@pytest.mark.parametrize("name", [name for name in names() if require(name).has(Trait.POOLS)])
def test_pools(name: str) -> None:
    """An element of the data is in the windows around it, and in no other channel."""
    data = np.random.default_rng(6).uniform(1, 2, (1, 3, 6, 5)).astype(np.float32)
    op, options = require(name), {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 0), "dilations": (1, 2)}
    other = data.copy()
    other[0, 1, 2, 3] = 9
    known, changed = first(op, [data], options), first(op, [other], options)
    assert known.shape == (1, 3, 3, 3)
    places = np.argwhere(known != changed)
    assert {(y, x) for y in range(3) for x in range(3) if 2 - (2 * y - 1) in (0, 1, 2) and 3 - x in (0, 2)} == {
        (int(y), int(x)) for _, channel, y, x in places if channel == 1
    }
    assert set(places[:, 1].tolist()) == {1}
