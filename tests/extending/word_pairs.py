"""A tensor intrinsic in one file: sums of pairs of products of 16 bits, as ``docs/extending.md`` shows it.

``vpmaddwd`` multiplies 16 pairs of i16 and adds neighbours: 8 sums of i32.
"""

from tilewright import te
from tilewright.base.dtypes import i16, i32

PAIRS, LANES = 2, 8


def vpmaddwd() -> te.TensorIntrinsic:
    """``c[j] = c[j] + a[0] * b[j, 0] + a[1] * b[j, 1]``, in i32."""
    a, b = te.placeholder((PAIRS,), i16, "a"), te.placeholder((LANES, PAIRS), i16, "b")
    k = te.reduce_axis((0, PAIRS), "k")
    c = te.compute((LANES,), lambda j: te.sum(te.cast(a[k], i32) * te.cast(b[j, k], i32), axis=k), name="c")
    update = """
        define <8 x i32> @pairs_add(<2 x i16> %a, <16 x i16> %b, <8 x i32> %c) {
          %word = bitcast <2 x i16> %a to i32
          %first = insertelement <8 x i32> poison, i32 %word, i64 0
          %all = shufflevector <8 x i32> %first, <8 x i32> poison, <8 x i32> zeroinitializer
          %words = bitcast <8 x i32> %all to <16 x i16>
          %sums = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %words, <16 x i16> %b)
          %new = add <8 x i32> %c, %sums
          ret <8 x i32> %new
        }
        declare <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16>, <16 x i16>)
    """
    return te.decl_tensor_intrin(
        c, "pairs", reset="pairs_zero", update="pairs_add", implementations={"pairs_add": update}, features=["avx2"]
    )


def product(m: int, n: int, depth: int) -> te.TeSchedule:
    """``C = A B``, ``B`` stored in pairs, ``[n/8, depth/2, 8, 2]``: a tile of 4 x 16 stays in registers."""
    a = te.placeholder((m, depth), i16, "A")
    b = te.placeholder((n // LANES, depth // PAIRS, LANES, PAIRS), i16, "B")
    ko, ki = te.reduce_axis((0, depth // PAIRS), "ko"), te.reduce_axis((0, PAIRS), "ki")

    def body(i: te.Expr, j: te.Expr) -> object:
        left, right = a[i, ko.var * PAIRS + ki.var], b[j // LANES, ko.var, j % LANES, ki.var]
        return te.sum(te.cast(left, i32) * te.cast(right, i32), axis=(ko, ki))

    c = te.compute((m, n), body, name="C")
    s = te.create_schedule(c)
    tile = s.cache_write(c, "local")
    _, jo, ii, ji = s[c].tile(*c.op.axis, 4, 2 * LANES)
    s[tile].compute_at(s[c], jo)
    i, j = tile.op.axis
    vectors, lanes = s[tile].split(j, factor=LANES)
    s[tile].reorder(ko, i, vectors, lanes, ki)
    s[tile].unroll(i)
    s[tile].unroll(vectors)
    s[tile].tensorize(lanes, vpmaddwd())
    s[c].unroll(ii)
    s[c].vectorize(ji)
    return s
