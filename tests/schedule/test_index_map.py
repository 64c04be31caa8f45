from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import BadInput
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import const


def test_text_and_function_say_the_same() -> None:
    packing = IndexMap.of(lambda k, j: (j // 32, k, j % 32), 2)
    assert str(packing) == "k, j -> j // 32, k, j % 32"
    assert IndexMap.parse(str(packing)) == packing


@pytest.mark.parametrize("text", ["i", "i -> ", "i -> j", "i -> i +", "1 -> 2", "i -> i.real", "i -> f(i)", "i -> 'x'"])
def test_bad_texts(text: str) -> None:
    with pytest.raises(BadInput):
        packing = IndexMap.parse(text)
        packing.inverse([const(3)], packing.results)


def test_function_of_another_rank() -> None:
    with pytest.raises(BadInput, match="takes 1 indices, but the buffer has 2 dimensions"):
        IndexMap.of(lambda i: (i,), 2)


@st.composite
def maps(draw: st.DrawFn) -> tuple[IndexMap, list[int]]:
    """Maps that put the digits of two indices in any order, some of them together."""
    a, b, c = (draw(st.integers(1, 4)) for _ in range(3))
    digits = [f"i // {a}", f"i % {a}", f"j // {b * c}", f"j // {b} % {c}", f"j % {b}"]
    order = draw(st.permutations(digits))
    return IndexMap.parse(f"i, j -> {', '.join(order)}"), [draw(st.integers(1, 9)), draw(st.integers(1, 9))]


@given(maps())
def test_inverse_and_shape_by_brute_force(case: tuple[IndexMap, list[int]]) -> None:
    packing, extents = case
    sizes = [const(e) for e in extents]
    forward = compile_exprs(packing.results, packing.variables)
    inverse = packing.inverse(sizes, packing.apply(packing.variables))
    back = compile_exprs(inverse, packing.variables)
    shape = [int(str(e)) for e in packing.shape(sizes)]
    images: set[tuple[int, ...]] = set()
    assert shape == [_rounded_up(result, extents) for result in map(str, packing.results)]
    for point in product(*map(range, extents)):
        image = tuple(int(value) for value in forward(*point))
        assert all(0 <= at < size for at, size in zip(image, shape, strict=True))
        assert tuple(int(value) for value in back(*point)) == point
        images.add(image)
    assert len(images) == extents[0] * extents[1]


def _rounded_up(digit: str, extents: list[int]) -> int:
    """The places of a digit, from its text."""
    if digit == "0":
        return 1
    name, *rest = digit.split()
    if "%" in rest:
        return int(rest[-1])
    scale = int(rest[-1]) if rest else 1
    return -(-extents["ij".index(name)] // scale)
