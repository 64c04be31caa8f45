"""Operations and bytes of naive programs, counted by hand."""

from tilewright import te
from tilewright.base.dtypes import boolean, f32, i64
from tilewright.cost.work import Work, count
from tilewright.graph import Value, make_node
from tilewright.loops.lower import lower
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.ops import find
from tilewright.symbolic.expr import Expr, Extent, as_expr
from tilewright.tensor.build import placeholder


def program(op: str, *inputs: Value, **attributes: object) -> Program:
    operator = find(op)
    assert operator is not None
    tensors = [placeholder(v.shape, v.dtype, v.name) for v in inputs]
    assert make_node(operator, inputs, ["y"], attributes)
    return lower(list(operator.apply(tensors, attributes))[:1], name="kernel", inputs=tensors)


def value(name: str, *shape: int | Expr, dtype: object = f32) -> Value:
    return Value(name, dtype, tuple(map(as_expr, shape)))


def test_matrix_product() -> None:
    made = program("MatMul", value("a", 2, 3), value("b", 3, 5))
    assert count(made, {}) == Work(2 * 3 * 5, 0, 4 * (6 + 15 + 10))
    assert Work(30, 4, 0).operations == 64


def test_elementwise() -> None:
    assert count(program("Relu", value("a", 2, 3)), {}) == Work(0, 6, 4 * 12)
    assert count(program("Add", value("a", 2, 3), value("b", 3)), {}) == Work(0, 6, 4 * (6 + 3 + 6))
    assert count(program("Cast", value("a", 4), to=i64), {}) == Work(0, 0, 4 * 4 + 4 * 8)
    assert count(program("Where", value("c", 4, dtype=boolean), value("a", 4), value("b", 4)), {}) == Work(0, 4, 52)


def test_run_time_extents() -> None:
    made = program("Relu", value("a", Extent("n"), 3))
    assert count(made, {"n": 5}) == Work(0, 15, 4 * 30)
    assert count(made, {"n": 0}) == Work(0, 0, 0)
    assert count(made, {}) is None


def test_no_more_of_a_table_is_touched_than_is_read() -> None:
    made = program("Gather", value("table", 1000, 8), value("ids", 2, dtype=i64), axis=0)
    found = count(made, {})
    assert found is not None
    assert found.bytes == 4 * 2 * 8 + 8 * 2 + 4 * 2 * 8
    assert sorted(found.touched.values()) == [8 * 2, 4 * 2 * 8, 4 * 2 * 8]


def test_a_loop_that_depends_on_another_runs_as_often_as_it_does() -> None:
    """Rows of a triangle, and a last part that is smaller than the others."""
    text = """
program k(x: f32[64]) -> (y: f32[64]):
  block y():
    reads x
    writes y
    for i in range(5):
      for j in range(min(22 - i * 5, 5)):
        for k in range(i + 1):
          y[i * 5 + j] = x[i * 5 + j] * f32(2.0)
    """
    runs = sum(min(22 - i * 5, 5) for i in range(5)), sum(min(22 - i * 5, 5) * (i + 1) for i in range(5))
    found = count(parse_program(text), {})
    assert found is not None
    assert runs[0] == 22 and abs(found.others - runs[1]) <= 0.1 * runs[1]


def test_a_product_that_is_added_to_a_product_is_no_multiply_add() -> None:
    a = te.placeholder((4,), name="a")
    one = te.compute((4,), lambda i: a[i] * a[i] + 1.0, name="one")
    two = te.compute((4,), lambda i: a[i] * a[i] + a[i] * a[i], name="two")
    assert count(lower([one], name="k", inputs=[a]), {}) == Work(4, 0, 32)
    assert count(lower([two], name="k", inputs=[a]), {}) == Work(0, 12, 32)


def test_of_what_indices_select_one_side_is_computed() -> None:
    """Parts of a concatenation are computed once, in whatever number of parts; by data, both sides are."""
    a, b = te.placeholder((3, 4), name="a"), te.placeholder((2, 4), name="b")
    joined = te.compute((5, 4), lambda i, j: te.select(i < 3, a[i, j] * 2.0, te.exp(b[i - 3, j]) / 3.0), name="joined")
    assert count(lower([joined], name="k", inputs=[a, b]), {}) == Work(0, 60, 4 * (12 + 8 + 20), functions=20)
    chosen = te.compute((3, 4), lambda i, j: te.select(a[i, j] < 3.0, a[i, j] * 2.0, te.exp(a[i, j])), name="chosen")
    assert count(lower([chosen], name="k", inputs=[a]), {}) == Work(0, 12 * 4, 4 * 24, functions=12)
