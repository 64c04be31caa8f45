"""Implementations of intrinsics are tried when they are declared: what is wrong with them is the user's error."""

import pytest

from tests.backend.cpu.test_register_intrinsics import TWICE as ON_REGISTERS
from tests.backend.cpu.test_register_intrinsics import pairs
from tilewright import te
from tilewright.base.errors import BadProgram
from tilewright.target.target import Architecture, Target

ON_MEMORY = """
define void @add8(ptr %w, i64 %w.row, ptr %x, i64 %x.row, ptr %y, i64 %y.row) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %w.at = mul i64 %i, %w.row
  %x.at = mul i64 %i, {x_row}
  %y.at = mul i64 %i, %y.row
  %w.p = getelementptr float, ptr %w, i64 %w.at
  %x.p = getelementptr float, ptr %x, i64 %x.at
  %y.p = getelementptr float, ptr %y, i64 %y.at
  %a = load <{lanes} x float>, ptr %w.p, align 4
  %b = load <{lanes} x float>, ptr %x.p, align 4
  %c = fadd <{lanes} x float> %a, %b
  {call}
  store <{lanes} x float> %c, ptr %y.p, align 4
  %next = add i64 %i, 1
  %is.over = icmp eq i64 %next, {rows}
  br i1 %is.over, label %done, label %loop
done:
  ret void
}}
{declared}
"""


def add8(name: str = "add8", features: tuple[str, ...] = (), **parts: object) -> te.TensorIntrinsic:
    w, x = te.placeholder((8, 8), name="w"), te.placeholder((8, 8), name="x")
    y = te.compute((8, 8), lambda i, j: w[i, j] + x[i, j], name="y")
    text = ON_MEMORY.format(**{"lanes": 8, "rows": 8, "x_row": "%x.row", "call": "", "declared": "", **parts})
    return te.decl_tensor_intrin(y, name, implementations={name: text}, features=features)


def test_what_is_right() -> None:
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
    c = te.compute((16, 16), lambda i, j: a[i, j] + b[i, j], name="C")
    s = te.create_schedule(c)
    _, _, rows, _ = s[c].tile(*c.op.axis, 8, 8)
    s[c].tensorize(rows, add8())
    assert te.build(s).check()["C"].worst == 0


def test_another_meaning_on_registers() -> None:
    with pytest.raises(BadProgram, match=r"twice_add: .* not do what its description says: c\[0\] is -?\d+, not -?\d+"):
        pairs(ON_REGISTERS.replace("add <4 x i32> %sum, %c", "sub <4 x i32> %sum, %c"))


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"lanes": 9}, r"writes beside y, in row \[0\]"),
        pytest.param({"rows": 7}, r"description says: y\[7, 0\]", marks=pytest.mark.slow),
        pytest.param({"x_row": "8"}, r"description says: y\[1, 0\]", marks=pytest.mark.slow),
        ({"rows": 1 << 40}, "ended the process that tried it"),
    ],
)
def test_other_memory(parts: dict[str, object], reason: str) -> None:
    with pytest.raises(BadProgram, match=reason):
        add8(**parts)


def test_names_that_nobody_has() -> None:
    for name, reason in (("helper", "it is not defined"), ("llvm.prefetsh.p0", "no intrinsic of that name")):
        with pytest.raises(BadProgram, match=rf"declares @{name}, and .*{reason}"):
            add8(call=f"call void @{name}()", declared=f"declare void @{name}()")


@pytest.mark.skipif(Target.host().arch is not Architecture.X86_64, reason="tries an instruction of x86")
def test_features_that_are_not_listed() -> None:
    tile = {"call": "call void @llvm.x86.tilezero(i8 0)", "declared": "declare void @llvm.x86.tilezero(i8 immarg)"}
    with pytest.raises(BadProgram, match=r"list in features= what it needs .*Cannot select"):
        add8(**tile)


@pytest.mark.parametrize("name", ["my add", "", "add-8", "größe"])
def test_names_of_forms(name: str) -> None:
    with pytest.raises(BadProgram, match="can't name a form"):
        add8(name)


def test_forms_have_names_of_their_own() -> None:
    x, k = te.placeholder((8,), name="x"), te.reduce_axis((0, 8), "k")
    y = te.compute((1,), lambda i: te.sum(x[k] * te.cast(i + 1, "f32"), axis=k), name="y")
    with pytest.raises(BadProgram, match="each name once"):
        te.decl_tensor_intrin(y, "total", reset="zero", update="total")
