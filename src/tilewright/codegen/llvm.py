"""The one door to LLVM: from the text of a module to object code or assembly, for a target."""

from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from tilewright.base.errors import InternalError
from tilewright.base.target import Architecture, Target

_TRIPLES = {
    Architecture.X86_64: "x86_64-unknown-linux-gnu",
    Architecture.AARCH64: "aarch64-unknown-linux-gnu",
    Architecture.RISCV64: "riscv64-unknown-linux-gnu",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """LLVM's view of a target: a code generator, and what a module must say at its top."""

    target_machine: llvm.TargetMachine
    header: str


@cache
def machine(target: Target) -> Machine:
    """The code generator for ``target``; made once per process."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = _TRIPLES[target.arch]
    cpu = llvm.get_host_cpu_name() if target.cpu == "native" else target.cpu
    created = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=target.llvm_features, opt=2, reloc="pic", codemodel="small"
    )
    return Machine(created, f'target triple = "{triple}"\ntarget datalayout = "{created.target_data}"\n')


def _optimized(text: str, made: Machine) -> llvm.ModuleRef:
    """Parse, verify, and promote stack slots to registers: all the middle end that scheduled kernels need."""
    try:
        module = llvm.parse_assembly(made.header + text)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"the code generator wrote IR that LLVM refuses: {error}\n{text}") from error
    builder = llvm.create_pass_builder(made.target_machine, llvm.create_pipeline_tuning_options(speed_level=0))
    manager = llvm.create_new_function_pass_manager()
    manager.add_sroa_pass()
    for function in module.functions:
        if not function.is_declaration:
            manager.run(function, builder)
    return module


def compile_object(text: str, target: Target) -> bytes:
    """Relocatable, position-independent object code. Raises ``InternalError`` if LLVM refuses the text."""
    made = machine(target)
    return made.target_machine.emit_object(_optimized(text, made))


def compile_assembly(text: str, target: Target) -> str:
    """The same as assembly text, to read."""
    made = machine(target)
    return made.target_machine.emit_assembly(_optimized(text, made))
