"""Printing and parsing."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loops import workloads
from tests.profiles import examples
from tilewright.base import dtypes
from tilewright.base.dtypes import DType, boolean, f32, index
from tilewright.base.errors import BadProgram, ParseError
from tilewright.base.exact import float_bits, from_float_bits
from tilewright.loops.ir import (
    NOTHING,
    Alloc,
    Barrier,
    Block,
    Buffer,
    Call,
    Callee,
    If,
    Loop,
    LoopKind,
    Region,
    Stmt,
    Store,
    Stores,
)
from tilewright.loops.lower import lower
from tilewright.loops.memory import LOCAL, MEMORIES
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Dim, Program
from tilewright.loops.reader import format_loops
from tilewright.loops.visit import seq
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, TRUE, ZERO, Cast, Const, Expr, Extent, Read, Var, binary, const, select, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor import build as te

N = Extent("n")
VARS = [Var("i"), Var("j.from3"), Var("vk_1"), N]
BUFFERS = [Buffer(f"B_{dtype}", dtype, (const(4), N)) for dtype in dtypes.ALL] + [Buffer("s", f32, (), LOCAL)]

numbers = st.floats(allow_nan=True, width=32)


def literals(dtype: DType) -> st.SearchStrategy[Expr]:
    if dtype == boolean:
        return st.sampled_from([const(False, boolean), TRUE])
    if dtype.is_float:
        return numbers.map(lambda value: Const(value, dtype))
    return st.integers(int(dtype.min), int(dtype.max)).map(lambda value: Const(value, dtype))


def legal(build: Callable[[], Expr]) -> Expr | None:
    try:
        return build()
    except BadProgram:
        return None


@st.composite
def exprs(draw: st.DrawFn, dtype: DType, depth: int = 3) -> Expr:
    if depth == 0:
        if dtype == index and draw(st.booleans()):
            return draw(st.sampled_from(VARS))
        return draw(literals(dtype))

    def inner(of: DType) -> Expr:
        return draw(exprs(of, depth - 1))

    kind = draw(st.integers(0, 5))
    result: Expr | None = None
    if kind == 0:
        source = next(b for b in BUFFERS if b.dtype == dtype)
        result = Read(source, (inner(index), inner(index)))
    elif kind == 1:
        op = draw(st.sampled_from(list(UnaryOp)))
        operand = inner(f32) if op in (UnaryOp.ISNAN, UnaryOp.ISINF) else inner(dtype)
        result = legal(lambda: unary(op, operand))
    elif kind in (2, 3):
        op = draw(st.sampled_from(list(BinaryOp)))
        of = draw(st.sampled_from(dtypes.ALL)) if dtype == boolean else dtype
        a, b = inner(of), inner(of)
        result = legal(lambda: binary(op, a, b))
    elif kind == 4:
        result = select(inner(boolean), inner(dtype), inner(dtype))
    else:
        other = inner(draw(st.sampled_from(dtypes.ALL)))
        result = None if isinstance(other, Const) or other.dtype == dtype else Cast(other, dtype)
    return result if result is not None and result.dtype == dtype else draw(literals(dtype))


@st.composite
def regions(draw: st.DrawFn) -> Region:
    buffer = draw(st.sampled_from(BUFFERS))
    starts = [draw(exprs(index, 1)) for _ in buffer.shape]
    extents = [draw(st.sampled_from([ONE, const(3), extent])) for extent in buffer.shape]
    whole = draw(st.booleans())
    ranges = zip([ZERO] * len(starts) if whole else starts, buffer.shape if whole else extents, strict=True)
    return Region(buffer, tuple(ranges))


@st.composite
def stores(draw: st.DrawFn) -> Store:
    buffer = draw(st.sampled_from(BUFFERS))
    return Store(buffer, tuple(draw(exprs(index, 1)) for _ in buffer.shape), draw(exprs(buffer.dtype)))


@st.composite
def blocks(draw: st.DrawFn, depth: int) -> Block:
    axes = [
        IterVar(Var(f"v{i}"), draw(exprs(index, 1)), draw(st.sampled_from(IterKind)))
        for i in range(draw(st.integers(0, 4)))
    ]
    return Block(
        draw(st.sampled_from(["C", "conv_1", "x.y"])),
        tuple(axes),
        tuple(draw(exprs(index, 2)) for _ in axes),
        tuple(draw(st.lists(regions(), max_size=2))),
        tuple(draw(st.lists(regions(), max_size=2))),
        draw(stmts(depth - 1)),
        draw(st.none() | stmts(depth - 1)),
        draw(st.just(TRUE) | exprs(boolean, 2)),
        tuple(
            draw(
                st.lists(st.tuples(st.sampled_from(["a", "b.c"]), st.integers(-3, 3) | st.text(max_size=5)), max_size=2)
            )
        ),
    )


@st.composite
def stmts(draw: st.DrawFn, depth: int) -> Stmt:
    if depth == 0:
        return draw(stores())
    inside = stmts(depth - 1)
    local = Buffer("T", f32, (const(3), N), draw(st.sampled_from([*MEMORIES.values()])))
    match draw(st.integers(0, 8)):
        case 0:
            return seq(*draw(st.lists(inside, max_size=3)))
        case 1:
            return If(draw(exprs(boolean)), draw(inside), draw(st.none() | inside))
        case 2:
            return Loop(Var("i"), draw(exprs(index, 1)), draw(inside), draw(st.sampled_from(LoopKind)))
        case 3:
            return Alloc(local, draw(inside))
        case 4:
            return draw(blocks(depth))
        case 5:
            args = tuple(draw(st.lists(regions(), max_size=3)))
            return Call(draw(st.sampled_from(Callee)), "dot.v4", args, draw(st.integers(min(1, len(args)), len(args))))
        case 6:
            return Barrier()
        case 7:
            return NOTHING
        case _:
            return Stores(tuple(draw(st.lists(stores(), min_size=2, max_size=3))))


programs = st.builds(
    Program,
    st.sampled_from(["main", "f.1"]),
    st.just(tuple(BUFFERS)),
    stmts(3),
    st.sampled_from([(Dim(N),), (Dim(N, 512), Dim(Extent("m")))]),
    st.integers(0, len(BUFFERS)),
    annotations=st.sampled_from([(), (("policy", "strict"), ("threads", 4))]),
)


@examples(40, by_night=300)
@given(programs)
def test_text_is_read_back_to_an_equal_program(program: Program) -> None:
    text = str(program)
    again = parse_program(text)
    assert str(again) == text
    assert again == program


@pytest.mark.parametrize(
    "text",
    [
        "f32(inf)",
        "f32(-inf)",
        "f32(nan)",
        "bf16(0.1)",
        "f64(1e-310)",
        "f16(-0.0)",
        "f64(nan:9221120237041090561)",
        "f32(nan:18444492273895866368)",
        "u64(18446744073709551615)",
        "i8(-128)",
    ],
)
def test_literals(text: str) -> None:
    dtype = text.partition("(")[0]
    program = f"program f() -> (C: {dtype}[1]):\n  C[0] = {text}\n"
    assert str(parse_program(program)) == program


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("  x", r"line 2, column 4: expected `\[`, found `end of line`"),
        ("  C[0] = 1.5", "line 2, column 10: expected an integer; floats are written with their dtype"),
        ("  for i in range(3):\n  C[i] = f32(1.0)", "line 2, column 21: expected an indented line"),
        ("  for i in loop(3):\n    pass", "line 2, column 12: expected a kind of loop"),
        ("  C[0] = D[0] + C[0]", "line 2, column 10: there is no buffer D here; known: C"),
        ("  C[0] = C[0] + 1", "line 2, column 15: .* mixes f32 and i64"),
        ("  C[0, 1] = f32(1.0)", "line 2, column 3: C has 1 dimensions, but 2 indices"),
        ("  C[0] = i8(200)", "line 2, column 13: 200 does not fit in i8"),
        ("  C[0] = f32(nan:4607182418800017408)", "line 2, column 14: expected the bits of a NaN of 64 bits"),
        ("  C[0] = f32(nan:x)", "line 2, column 14: expected the bits of a NaN of 64 bits"),
        ("  C[0] = exp(f32(1.0), f32(1.0))", "line 2, column 10: there is no function exp of 2 arguments"),
        ("  C[0] = f32(1.0) $", "line 2, column 19: unexpected character '\\$'"),
        ("  C[0], C[1] = f32(1.0)", "2 elements are assigned 1 values"),
        ("  pass\n    pass", "line 3, column 5: unexpected indentation"),
        ("  block b(v = 0: space 3):\n    pass", "line 2, column 18: expected a kind of axis"),
    ],
)
def test_errors_say_where(body: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_program(f"program f() -> (C: f32[3]):\n{body}\n")


def test_zeros_and_nans_are_read_back_to_the_bit() -> None:
    for value in (0.0, -0.0, from_float_bits(0x7FF8000020000000), from_float_bits(0xFFF8000000000000)):
        store = Store(Buffer("C", f32, ()), (), Const(value, f32))
        again = parse_program(str(Program("f", (store.buffer,), store, outputs=1))).body
        assert isinstance(again, Store)
        assert isinstance(again.value, Const)
        assert float_bits(float(again.value.value)) == float_bits(value)


def test_comments_and_continued_lines() -> None:
    text = """
# doubles
program f(
    A: f32[4]) -> (B: f32[4]):  # in, out

  for i in range(4):
    B[i] = (A[i]
      + A[i])
"""
    assert str(parse_program(text)).endswith("    B[i] = A[i] + A[i]\n")


GOLDEN: dict[str, Callable[[], Program]] = {
    "matmul": lambda: lower(workloads.matmul(64, 32, te.var("k")), dims={"k": 512}),
    "conv2d": lambda: lower(workloads.conv2d_padded(14, 8, 16, 3, 2)),
    "argmax": lambda: lower(workloads.argmax(4, 9)),
    "cumsum": lambda: lower(workloads.cumsum(6, 3)),
    "lstm": lambda: lower(workloads.lstm(4, 3)),
    "sort": lambda: lower(workloads.insertion_sort(6)),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    program = GOLDEN[name]()
    assert parse_program(str(program)) == program
    golden(f"loops/{name}", f"{program}\n{format_loops(program)}")


def test_matmul_reads_as_in_the_paper() -> None:
    a, b = te.placeholder((1024, 1024)), te.placeholder((1024, 1024))
    k = te.reduce_axis((0, 1024))
    c = te.compute((1024, 1024), lambda y, x: te.sum(a[k, y] * b[k, x], axis=k))
    assert format_loops(lower(c)) == (
        "for y in range(1024):\n"
        "  for x in range(1024):\n"
        "    C[y, x] = 0\n"
        "    for k in range(1024):\n"
        "      C[y, x] += A[k, y] * B[k, x]\n"
    )


TILED = """
program matmul(A: f32[1024, 1024], B: f32[1024, 1024]) -> (C: f32[1024, 1024]):
  for yo in parallel(128):
    for xo in range(128):
      for ko in range(128):
        for yi in range(8):
          for xi in vectorized(8):
            for ki in range(8):
              block C(vy = yo * 8 + yi: spatial 1024, vx = xo * 8 + xi: spatial 1024, vk = ko * 8 + ki: reduce 1024):
                reads C[vy, vx], A[vk, vy], B[vk, vx]
                writes C[vy, vx]
                init:
                  C[vy, vx] = f32(0.0)
                C[vy, vx] = C[vy, vx] + A[vk, vy] * B[vk, vx]
"""


def test_tiled_matmul_reads_as_in_the_paper(golden: Callable[[str, str], None]) -> None:
    golden("loops/matmul_tiled", format_loops(parse_program(TILED)))


@pytest.mark.parametrize(
    "value",
    [
        "(" * 500 + "x[0]" + ")" * 500,
        "sin(" * 500 + "x[0]" + ")" * 500,
        " + ".join(["x[0]"] * 500),
        "x[" * 500 + "0" + "]" * 500,
    ],
)
def test_expressions_that_nest_too_deep(value: str) -> None:
    with pytest.raises(ParseError, match=r"more than 160 .* are inside each other"):
        parse_program(f"program p(x: f32[1]) -> (y: f32[1]):\n  y[0] = {value}\n")


def test_statements_that_nest_too_deep() -> None:
    lines = [f"{'  ' * (depth + 1)}for i{depth} in range(2):" for depth in range(500)]
    body = "\n".join([*lines, f"{'  ' * 501}y[0] = x[0]"])
    with pytest.raises(ParseError, match="more than 128 statements are inside each other"):
        parse_program(f"program p(x: f32[1]) -> (y: f32[1]):\n{body}\n")


def test_many_allocations_are_read() -> None:
    lines = "\n".join(f"  alloc t{number}: f32[1]" for number in range(2000))
    text = f"program p(x: f32[1]) -> (y: f32[1]):\n{lines}\n  y[0] = x[0]\n"
    assert str(parse_program(text)) == text
