"""The support functions compile for every processor that has a pool, and as plain loops for the others."""

import llvmlite.binding as llvm
import pytest

from tilewright.backend.cpu import image
from tilewright.backend.cpu.llvm import Effort, compile_object
from tilewright.backend.cpu.support import DECLARATIONS, support_text
from tilewright.base.errors import UnsupportedTarget
from tilewright.loops.lower import lower
from tilewright.target.target import Target
from tilewright.tensor import build as te

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()


def assembly(text: str, triple: str) -> str:
    module = llvm.parse_assembly(text)
    module.verify()
    return llvm.Target.from_triple(triple).create_target_machine(opt=2, reloc="pic").emit_assembly(module)


@pytest.mark.parametrize(("arch", "pause"), [("x86_64", "pause"), ("aarch64", "isb"), ("riscv64", "pause")])
def test_with_threads(arch: str, pause: str) -> None:
    text = assembly(support_text(arch), f"{arch}-unknown-linux-gnu")
    assert pause in text
    for name in ("tw_parallel_for", "tw_scratch", "tw_fail", "tw_enter", "tw_worker", "tw_stop", "tw_abi_version"):
        assert f"{name}:" in text


@pytest.mark.parametrize("triple", ["x86_64-unknown-linux-gnu", "wasm32-unknown-unknown", "armv7-unknown-linux-gnu"])
def test_without_threads(triple: str) -> None:
    text = assembly(support_text(triple.split("-")[0], threads=False), triple)
    assert "tw_parallel_for:" in text
    assert "tw_worker" not in text
    assert "syscall" not in text


def test_targets_without_a_pool() -> None:
    with pytest.raises(UnsupportedTarget, match="threads=False"):
        support_text("sparc")


def test_declarations_match_definitions() -> None:
    declared = llvm.parse_assembly(DECLARATIONS)
    defined = llvm.parse_assembly(support_text("x86_64"))
    for function in declared.functions:
        assert defined.get_function(function.name).global_value_type == function.global_value_type


def test_images_without_a_cache_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compile_noted(text: str, target: Target, effort: Effort = Effort.FULL) -> bytes:
        compiled.append(text)
        return compile_object(text, target, effort)

    monkeypatch.setattr(image, "compile_object", compile_noted)
    a = te.placeholder((4,), name="A")
    programs = [lower(te.compute((4,), lambda i, n=n: a[i] + n, "B")) for n in range(3)]
    images = [image.build_one(program, Target.host()) for program in programs]
    assert len({made.objects[-1] for made in images}) == 1
    assert sum("@tw_abi_version" in text for text in compiled) <= 1, "before this test they may be known"
    assert len(compiled) - len({*compiled}) == 2, "main is the same in each image, and compiled each time"
