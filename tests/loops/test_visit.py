from tilewright.base.dtypes import f32
from tilewright.loops import visit
from tilewright.loops.ir import NOTHING, Alloc, Buffer, Loop, Seq, Stmt, Store
from tilewright.loops.parser import parse_program
from tilewright.loops.printer import format_stmt
from tilewright.symbolic.expr import Expr, Extent, Var, const

TEXT = """
program f[n](A: f32[n, 4]) -> (C: f32[n]):
  for i in range(n):
    alloc T: f32[n]
    if i < 3:
      T[i] = A[i, 0]
    else:
      block B(v = i + 1: spatial n) where i < n:
        reads A[v, 1], T[v]
        writes T[v]
        T[v] = A[v, 1] + T[v]
    C[i] = T[i]
"""
PROGRAM = parse_program(TEXT)
N, I = Extent("n"), Var("i")  # noqa: E741


def test_seq_is_flat() -> None:
    store = Store(Buffer("C", f32, ()), (), const(0.0, f32))
    assert visit.seq() == NOTHING
    assert visit.seq(store, NOTHING) == store
    assert visit.seq(visit.seq(store, store), Seq((Seq((store,)),))) == Seq((store, store, store))


def test_walk_is_in_program_order() -> None:
    kinds = [type(node).__name__ for node in visit.walk(PROGRAM.body)]
    assert kinds == ["Loop", "Alloc", "Seq", "If", "Store", "Block", "Store", "Store"]


def test_free_variables_and_buffers() -> None:
    assert visit.free_vars(PROGRAM.body) == {N}
    assert isinstance(PROGRAM.body, Loop)
    assert visit.free_vars(PROGRAM.body.body) == {N, I}
    assert [buffer.name for buffer in visit.buffers(PROGRAM.body)] == ["T", "A", "C"]


def test_mentions_agrees_with_buffers() -> None:
    for stmt in visit.walk(PROGRAM.body):
        for buffer in visit.buffers(PROGRAM.body):
            assert visit.mentions(stmt, buffer) == (buffer in visit.buffers(stmt))


def test_substitute_reaches_shapes() -> None:
    text = format_stmt(visit.substitute(PROGRAM.body, {N: const(8)}))
    assert text.count("n") == text.count("in ") + text.count("range")
    assert "alloc T: f32[8]" in text and "spatial 8" in text


def test_substitute_leaves_the_inside_of_blocks_to_their_axes() -> None:
    assert isinstance(PROGRAM.body, Loop)
    text = format_stmt(visit.substitute(PROGRAM.body.body, {I: Var("j") * 2}))
    assert "block B(v = j * 2 + 1: spatial n) where j * 2 < n:" in text
    assert "T[v] = A[v, 1] + T[v]" in text


def test_nothing_to_do_keeps_the_object() -> None:
    assert visit.substitute(PROGRAM.body, {}) is PROGRAM.body
    assert visit.transform_stmts(PROGRAM.body, lambda stmt: None) is PROGRAM.body


def test_replace_buffers_and_renaming() -> None:
    copy = Buffer("A2", f32, (N, const(4)))
    replaced = visit.replace_buffers(PROGRAM.body, {PROGRAM.params[0]: copy})
    assert [buffer.name for buffer in visit.buffers(replaced)] == ["T", "A2", "C"]
    renamed = visit.rename_allocs(visit.rename_loops(PROGRAM.body, lambda name: name + "0"), lambda name: name + "x")
    assert "C[i0] = Tx[i0]" in format_stmt(renamed)
    assert format_stmt(PROGRAM.body) in str(PROGRAM).replace("\n  ", "\n")


def test_transform_exprs_and_statements() -> None:
    def change(expr: Expr) -> Expr:
        return const(5) if expr == I else expr

    assert "C[5] = T[i]" in format_stmt(visit.transform_exprs(PROGRAM.body, change))

    def unwrap(stmt: Stmt) -> Stmt | None:
        return stmt.body if isinstance(stmt, Alloc) else None

    assert "alloc" not in format_stmt(visit.transform_stmts(PROGRAM.body, unwrap))
