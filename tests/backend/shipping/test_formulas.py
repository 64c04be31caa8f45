"""Formulas in native code give the numbers of ``evaluate``, or say that something went wrong."""

import ctypes
import random
from collections.abc import Callable

import pytest

from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.shipping.formula_text import Arithmetic
from tilewright.base.errors import BadFeed
from tilewright.runtime.loader import load_image
from tilewright.runtime.manifest import Formula, evaluate
from tilewright.target.target import Target

NAMES = ("a", "b", "c")
EDGES = [0, 1, -1, 2, 3, -7, 64, (1 << 31) - 1, 1 << 32, (1 << 62), (1 << 63) - 1, -(1 << 63)]
SIGNS = ("+", "-", "*", "//", "%", "min", "max")


def native(formula: Formula) -> Callable[..., int | None]:
    """What the code computes; None if it says that something went wrong."""
    numbers = Arithmetic()
    known = {name: numbers.loaded("%known", place) for place, name in enumerate(NAMES)}
    numbers.store(numbers.value(formula, known), "%result", 0)
    lines = "\n".join(numbers.lines)
    text = f"define i1 @f(ptr %known, ptr %result) {{\n{lines}\n  ret i1 {numbers.failed}\n}}\n"
    image = load_image([compile_object(text, Target.of(Target.host().arch))])
    function = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)(image.symbol("f"))

    def call(*values: int) -> int | None:
        given, result = (ctypes.c_int64 * 3)(*values), ctypes.c_int64()
        failed = function(ctypes.addressof(given), ctypes.addressof(result))
        return None if failed else result.value if image else 0

    return call


def wanted(formula: Formula, values: tuple[int, ...]) -> int | None:
    try:
        value = evaluate(formula, dict(zip(NAMES, values, strict=True)))
    except BadFeed:
        return None
    return value if -(1 << 63) <= value < 1 << 63 else None


@pytest.mark.parametrize("sign", SIGNS)
def test_each_operator(sign: str) -> None:
    call = native((sign, "a", "b"))
    for a in EDGES:
        for b in EDGES:
            found, right = call(a, b, 0), wanted((sign, "a", "b"), (a, b, 0))
            lowest = sign in ("*", "//", "%") and -(1 << 63) in (a, right)  # its magnitude has no 64 bits: refused
            assert found == right or (lowest and found is None), (a, b)


def test_random_formulas() -> None:
    drawn = random.Random(5)

    def formula(depth: int) -> Formula:
        if depth == 0 or drawn.random() < 0.2:
            return drawn.choice((*NAMES, drawn.choice((0, 1, 2, 5, 63, (1 << 63) - 1))))
        return drawn.choice(SIGNS), formula(depth - 1), formula(depth - 1)

    for _ in range(40):
        made = formula(4)
        call = native(made)
        for _ in range(30):
            values = tuple(drawn.choice((drawn.randint(0, 9), drawn.randint(0, 5000))) for _ in NAMES)
            found, right = call(*values), wanted(made, values)
            if found is None and right is not None:  # an intermediate beyond 64 bits, which Python has more of
                assert str((1 << 63) - 1) in str(made), (made, values)
            else:
                assert found == right, (made, values)
