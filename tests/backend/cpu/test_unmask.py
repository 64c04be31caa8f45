"""Guards on lanes: sums in private buffers lose them, stores that others may see keep them."""

from tilewright.backend.cpu.prepare.unmask import unmask
from tilewright.base import dtypes
from tilewright.loops.ir import Alloc, Buffer, If, Loop, LoopKind, Seq, Stmt, Store
from tilewright.loops.memory import LOCAL
from tilewright.loops.visit import walk
from tilewright.symbolic.expr import Expr, Var, const

A, B = (Buffer(name, dtypes.f32, (const(8), const(11))) for name in ("a", "b"))
T = Buffer("t", dtypes.f32, (const(16),), LOCAL)
J, K, N = Var("j"), Var("k"), Var("n")


def lanes(store: Store, guard: Expr) -> Stmt:
    return Loop(J, const(16), If(guard, store), LoopKind.VECTORIZED)


def summed(target: Buffer, guard: Expr) -> Stmt:
    old = target[J] if len(target.shape) == 1 else target[0, J]
    indices = (J,) if len(target.shape) == 1 else (const(0), J)
    zero, add = Store(target, indices, const(0, dtypes.f32)), Store(target, indices, old + A[K, 0] * B[K, J])
    return Seq((lanes(zero, guard), Loop(K, const(8), lanes(add, guard))))


def guards(stmt: Stmt) -> int:
    return sum(isinstance(node, If) for node in walk(stmt))


def test_sums_in_private_buffers_load_with_a_mask() -> None:
    found = unmask(Alloc(T, summed(T, J < 11)))
    assert guards(found) == 0
    (_, update) = (node for node in walk(found) if isinstance(node, Store))
    assert str(update.value) == "t[j] + a[k, 0] * select(j < 11, b[k, j], f32(0.0))"


def test_a_guard_that_is_the_same_throughout_the_allocation_counts() -> None:
    inside = Loop(N, const(4), Alloc(T, summed(T, N * 16 + J < 50)))
    assert guards(unmask(inside)) == 0


def test_other_stores_keep_their_guards() -> None:
    wide = Buffer("w", dtypes.f32, (const(8), const(16)))
    assert guards(unmask(summed(wide, J < 11))) == 2  # not allocated here
    assert guards(unmask(Alloc(T, summed(T, K + J < 11)))) == 2  # another step may write what one leaves out
    assert guards(unmask(Alloc(T, Seq((summed(T, J < 11), summed(T, J < 5)))))) == 4
    short = Buffer("t", dtypes.f32, (const(11),), LOCAL)
    assert guards(unmask(Alloc(short, summed(short, J < 11)))) == 2  # lanes beyond it are not its own
