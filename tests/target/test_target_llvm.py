"""Targets against LLVM: it knows every name in the tables, finds the same host, and keeps to a target's features."""

import subprocess
import sys

import llvmlite.binding as llvm
import pytest

from tilewright.base.processors import BASELINE, FEATURES, PROCESSORS, features_of
from tilewright.target.target import Architecture, Target

TRIPLES = {arch: f"{arch.value}-unknown-linux-gnu" for arch in Architecture}

# LLVM ends the process over an unknown processor, and writes to standard error of an unknown feature.
ASK = """
import sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
triple, *pairs = sys.argv[1:]
for pair in pairs:
    cpu, _, feature = pair.partition(":")
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=feature, codemodel="small")
    text = f'target triple = "{triple}"\\ndefine void @f() {{ ret void }}'
    machine.emit_object(llvm.parse_assembly(text))
"""


def asked(arch: Architecture, pairs: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ASK, TRIPLES[arch], *pairs]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("arch", Architecture)
def test_llvm_knows_every_name(arch: Architecture) -> None:
    features = [f"{BASELINE[arch]}:{Target.of(arch, features=(name,)).llvm_features}" for name in FEATURES[arch]]
    answer = asked(arch, [*(f"{cpu}:{Target.of(arch, cpu).llvm_features}" for cpu in PROCESSORS[arch]), *features])
    assert (answer.returncode, answer.stderr) == (0, "")


def test_that_the_test_above_can_fail() -> None:
    assert "not a recognized feature" in asked(Architecture.X86_64, ["x86-64:+avx3"]).stderr
    assert asked(Architecture.X86_64, ["x86-65:"]).returncode != 0


def test_the_host_is_what_llvm_finds() -> None:
    host = Target.host()
    found = llvm.get_host_cpu_features()
    # Need permission, or a mode; and Linux does not list AVX10.
    excused = {name for name in FEATURES[host.arch] if name.startswith(("amx", "avx10", "sme"))}
    features = {name for name in FEATURES[host.arch] if found.get(name)} - excused
    assert features == set(host.features) - excused
    name = llvm.get_host_cpu_name()
    if name in PROCESSORS[host.arch] and features <= features_of(host.arch, name):
        assert host.cpu == name


ADD = """
define <16 x float> @f(<16 x float> %a) {
  %b = fadd <16 x float> %a, %a
  ret <16 x float> %b
}
"""


@pytest.mark.parametrize(
    ("target", "register"),
    [
        (Target.parse("x86_64,znver5"), "zmm"),
        (Target.parse("x86_64,znver5").restricted("avx2"), "ymm"),
        (Target.parse("x86_64,sapphirerapids,-avx"), "xmm"),
        (Target.parse("x86_64,+avx512f"), "zmm"),
        (Target.parse("x86_64,graniterapids").restricted("sse4.2"), "xmm"),
    ],
    ids=str,
)
def test_llvm_uses_the_widest_registers_of_the_target(target: Target, register: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLES[target.arch]).create_target_machine(
        cpu=target.cpu, features=target.llvm_features, codemodel="small"
    )
    text = machine.emit_assembly(llvm.parse_assembly(f'target triple = "{TRIPLES[target.arch]}"\n{ADD}'))
    used = [name for name in ("zmm", "ymm", "xmm") if name in text]
    assert used == [register]
    assert target.vector_bits == {"zmm": 512, "ymm": 256, "xmm": 128}[register]
