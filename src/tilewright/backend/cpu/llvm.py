"""Calls LLVM: compiles the text of a module to object code or assembly, for a target.

LLVM's own lists of a processor's features are longer than those of ``base.processors``, which are what loading checks.
So code is made for the architecture's baseline with the target's features, and the processor is named for scheduling
only: by ``tune-cpu`` of each function (LLVM language reference, "Function Attributes").
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache

import llvmlite
import llvmlite.binding as llvm

from tilewright.base.errors import BadProgram, InternalError
from tilewright.base.forks import ForkLock
from tilewright.base.processors import WASM
from tilewright.target.target import Architecture, System, Target

_TRIPLES = {
    "x86_64": "x86_64-unknown-linux-gnu",
    "aarch64": "aarch64-unknown-linux-gnu",
    "riscv64": "riscv64-unknown-linux-gnu",
    "wasm32": "wasm32-unknown-unknown",
    "wasm64": "wasm64-unknown-unknown",
    "x86_64-windows": "x86_64-pc-windows-msvc-elf",
    "aarch64-macos": "aarch64-unknown-linux-gnu",
}
"""By the platform. Objects for other systems are ELF, too, until ``backend.shipping`` makes others of them; the triple
has their conventions of calls. Those of macOS are those of Linux, but for a register."""
_RESERVED = {System.MACOS: "+reserve-x18"}
"""Registers that a system has for itself."""

_BASIS = {
    Architecture.X86_64: "x86-64",
    Architecture.AARCH64: "generic",
    Architecture.RISCV64: "generic-rv64",
    Architecture.WASM32: "mvp",
    Architecture.WASM64: "mvp",
}
"""LLVM's names of processors without features beyond the baseline of ``base.processors``."""

GENERATOR = f"llvmlite {llvmlite.__version__}, listed features, no loop strength reduction"
"""Version of the code generation: part of the cache key of object code."""


class Effort(Enum):
    """Optimization level of LLVM's code generator."""

    QUICK = 0
    """For code that runs once per call: compiles in a third of the time, to code larger by an eighth."""
    FULL = 2
    """For loops."""


LLVM = ForkLock()
"""Held while LLVM is used: it has global options and locks, which a forked child would inherit in any state."""


@dataclass(frozen=True, slots=True)
class Machine:
    """LLVM's view of a target: a code generator, the header of a module, and an attribute for each function."""

    target_machine: llvm.TargetMachine
    header: str
    tuning: str


@cache
def machine(target: Target, effort: Effort = Effort.FULL) -> Machine:
    """The code generator for ``target``; made once per process."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = _TRIPLES[target.platform]
    features = ",".join(filter(None, (target.llvm_features, _RESERVED.get(target.system, ""))))
    reloc = "static" if target.arch in WASM else "pic"  # a module has its memory for itself
    created = llvm.Target.from_triple(triple).create_target_machine(
        cpu=_BASIS[target.arch], features=features, opt=effort.value, reloc=reloc, codemodel="small"
    )
    header = f'target triple = "{triple}"\ntarget datalayout = "{created.target_data}"\n'
    return Machine(created, header, f'"tune-cpu"="{target.cpu}"')


# A definition up to its last attribute, if nothing follows that has to come after attributes.
_DEFINITION = re.compile(
    r"^(define .*\)(?:\s+(?!section|partition|comdat|align|gc|prefix|prologue|personality)[^\s{!]+)*)\s+\{$",
    re.MULTILINE,
)


def _tuned(text: str, made: Machine) -> str:
    """``text`` with the processor's name at each function that is defined as this package writes them."""
    return _DEFINITION.sub(lambda found: f"{found[1]} {made.tuning} {{", text)


def _optimized(text: str, made: Machine) -> llvm.ModuleRef:
    """Parse, verify, and promote stack slots to registers: the only middle-end pass that scheduled kernels need."""
    try:
        module = llvm.parse_assembly(made.header + _tuned(text, made))
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


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a function: LLVM's name of the operation, its text, and for a call the callee's declaration."""

    opcode: str
    text: str
    callee: str = ""


@dataclass(frozen=True, slots=True)
class Function:
    """A function parsed by LLVM: its type (``void (ptr, i64)``), its parameters (``%a``), its basic blocks."""

    type: str
    parameters: tuple[str, ...]
    blocks: tuple[tuple[Instruction, ...], ...]


def read_function(text: str, name: str) -> Function:
    """The function ``name`` that ``text`` defines. Raises ``BadProgram`` with LLVM's message."""
    LLVM.give_way()
    with LLVM.lock:
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise BadProgram(f"{name}: LLVM refuses its implementation: {error}") from error
        for other in module.functions:
            if other.is_declaration and not _is_known(other):
                what = "LLVM has no intrinsic of that name" if other.name.startswith("llvm.") else "it is not defined"
                raise BadProgram(f"{name}: its implementation declares @{other.name}, and {what}")
        found = next((f for f in module.functions if f.name == name and not f.is_declaration), None)
        if found is None:
            raise BadProgram(f"{name}: its implementation defines no function @{name}")
        parameters = tuple(str(argument).removeprefix(f"{argument.type} ") for argument in found.arguments)
        blocks = tuple(tuple(map(_instruction, block.instructions)) for block in found.blocks)
        return Function(str(found.global_value_type), parameters, blocks)


def _is_known(function: llvm.ValueRef) -> bool:
    """Whether it is an intrinsic of LLVM, which has known attributes."""
    return function.name.startswith("llvm.") and "#" in str(function).rpartition(")")[2]


def _instruction(value: llvm.ValueRef) -> Instruction:
    opcode = value.opcode or ""
    callee = str([*value.operands][-1]) if opcode == "call" else ""
    return Instruction(opcode, str(value).strip(), callee)


@contextmanager
def _without_strength_reduction() -> Generator[None]:
    """Disables the pass that chooses induction variables, which takes half of LLVM's time without faster code.

    Schedules and the code generator have placed addresses already. The option is global to the process, and there is no
    other way to disable only this pass. Other users of LLVM may need it, so it is off only briefly. The caller holds
    the lock.
    """
    llvm.set_option("tilewright", "-disable-lsr=true")
    try:
        yield
    finally:
        llvm.set_option("tilewright", "-disable-lsr=false")


def compile_object(text: str, target: Target, effort: Effort = Effort.FULL) -> bytes:
    """Relocatable, position-independent object code. Raises ``InternalError`` if LLVM refuses the text."""
    LLVM.give_way()
    with LLVM.lock:
        return _object(text, machine(target, effort))


def _object(text: str, made: Machine) -> bytes:
    module = _optimized(text, made)
    with _without_strength_reduction():
        return made.target_machine.emit_object(module)


def compile_assembly(text: str, target: Target) -> str:
    """The same as assembly text."""
    LLVM.give_way()
    with LLVM.lock:
        return _assembly(text, machine(target))


def _assembly(text: str, made: Machine) -> str:
    module = _optimized(text, made)
    with _without_strength_reduction():
        return made.target_machine.emit_assembly(module)
