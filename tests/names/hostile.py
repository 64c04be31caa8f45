"""Names that a model may use and that could be mistaken for something of the compiler's own."""

INSIDE = (
    *("k", "k0", "k1", "kb", "i", "i0", "i1", "j", "j0", "r", "r0", "r1", "x", "y", "x0", "y0", "t", "n", "n0", "n1"),
    *("m", "c", "c0", "s", "s0", "d", "d0", "d1", "v", "vi0", "vk", "vi0_1", "vn", "b", "h", "w", "at", "f", "a", "p0"),
    *("p1", "T", "A", "C", "i_0", "i_1", "k_o", "k_i", "i0_i1_fused", "k.from0", "right0", "i0_init", "total"),
)
"""Axes of operators and reducers, loops, buffers, and what schedules and passes make of these."""

PLACES = ("main", "workspace", "tw_main", "dims", "buffers", "context", "k0_conv", "x.out", "y.out", "code")
"""Functions, arguments and memory of compiled code."""

WORDS = ("select", "where", "kernel", "f32", "index", "range", "for", "in", "if", "True", "nan", "program", "pass")
"""Words of the loop programs' notation, reserved or not."""

FORMULAS = ("2*n", "n + 1", "n//2", "min(n, 4)", "-1", "0", "7", "3x", "1e9")

MARKS = ('"', "'", "`", "\\", "`n`", "%s", "{n}", "${n}", "../n", "@", "k@1", "n'", "#", ";", "*b", "conv.window")

LETTERS = ("é", "größe", "批次", "\N{MATHEMATICAL DOUBLE-STRUCK SMALL N}", "n\u0301", "\u202en", "\ufeff", "n" * 10_000)

BLANKS = ("a b", " ", "\t", "a\nb", "\x00", "\x1b[31m")

HOSTILE = (*INSIDE, *PLACES, *WORDS, *FORMULAS, *MARKS, *LETTERS, *BLANKS)
