"""A native image: the object code of a main program, of the kernels that it calls, and of the support functions.

Each kernel is a module of its own, compiled by itself and kept in the object cache under the hash of its text, target
and compiler version: a model that shares kernels with an earlier one compiles only what is new.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import llvmlite

from tilewright.base.errors import Unsupported, UnsupportedKernel
from tilewright.base.events import Advanced, Listener, ignore
from tilewright.base.store import Store
from tilewright.base.target import Target
from tilewright.codegen.kernel import FunctionInfo, emit_kernel, emit_main
from tilewright.codegen.llvm import compile_assembly, compile_object
from tilewright.codegen.scalars import ZEROS, ZEROS_BYTES
from tilewright.codegen.statements import Module
from tilewright.codegen.support import DECLARATIONS, support_text
from tilewright.loops.ir import Call, Callee, Region
from tilewright.loops.program import Program
from tilewright.symbolic.expr import ZERO, Expr

_ZEROS = f"{ZEROS} = internal constant [{ZEROS_BYTES} x i8] zeroinitializer, align 64\n"


@dataclass(frozen=True, slots=True)
class Image:
    """Object files to be loaded together, and what a call of ``tw_main`` needs."""

    objects: tuple[bytes, ...]
    workspace_bytes: int
    scratch_bytes: int
    sites: tuple[str, ...]
    """What the bounds checks' site numbers mean."""
    calls: tuple[str, ...] = ()
    """The kernels that main calls, in order."""
    more_workspace: Expr = ZERO
    """Bytes of workspace after the others, that depend on run-time extents."""


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel as LLVM IR."""

    text: str
    info: FunctionInfo
    sites: tuple[str, ...]


def kernel_text(program: Program, first_site: int | None = None) -> KernelText:
    """The module of one kernel; bounds-checked, with sites numbered from ``first_site``, if that is given."""
    module = Module(checked=first_site is not None, sites=[""] * (first_site or 0))
    info = emit_kernel(program, module)
    return KernelText(_assemble(module), info, tuple(module.sites[first_site or 0 :]))


def _assemble(module: Module) -> str:
    declarations = "\n".join(sorted(module.declarations))
    return "\n".join([_ZEROS, DECLARATIONS, declarations, *module.functions])


def build(
    main: Program,
    kernels: Sequence[Program],
    target: Target,
    *,
    constants: int = 0,
    cache: Store | None = None,
    checked: bool = False,
    listener: Listener = ignore,
) -> Image:
    """Compile ``main`` and the kernels that it calls by name.

    ``constants``: how many of main's parameters, just before its outputs, are constants of the model. ``checked`` adds
    bounds checks. ``listener`` hears of each kernel that is done. Raises ``Unsupported`` if a buffer has
    its size.
    """
    objects: list[bytes] = []
    known: dict[str, tuple[Program, FunctionInfo]] = {}
    sites: list[str] = []
    for position, program in enumerate(kernels):
        try:
            made = kernel_text(program, len(sites) if checked else None)
        except Unsupported as error:
            raise UnsupportedKernel(program.name, str(error)) from error
        sites.extend(f"{program.name}: {site}" for site in made.sites)
        objects.append(_compiled(made.text, target, cache))
        known[program.name] = (program, made.info)
        listener(Advanced("code", position + 1, len(kernels), program.name))
    module = Module()
    info = emit_main(main, constants, known, module)
    declarations = "\n".join(f"declare hidden void @{name}(ptr, ptr, ptr, ptr)" for name in known)
    objects.append(_compiled(f"{_assemble(module)}\n{declarations}", target, cache))
    objects.append(_compiled(support_text(target.arch.value), target, cache))
    memory = (info.workspace_bytes, info.scratch_bytes)
    return Image(tuple(objects), *memory, tuple(sites), info.calls, info.more_workspace)


def _compiled(text: str, target: Target, cache: Store | None) -> bytes:
    if cache is None:
        return compile_object(text, target)
    identity = "\n".join((llvmlite.__version__, str(target), text))
    key = hashlib.sha256(identity.encode()).hexdigest()
    found = cache.get(key)
    if found is None:
        found = compile_object(text, target)
        cache.put(key, found)
    return found


def assembly(program: Program, target: Target) -> str:
    """The assembly of one kernel, to read."""
    return compile_assembly(kernel_text(program).text, target)


def main_for(kernel: Program) -> Program:
    """A main program that calls ``kernel`` once, on its own arguments."""
    whole = tuple(Region(p, tuple((ZERO, extent) for extent in p.shape)) for p in kernel.params)
    call = Call(Callee.KERNEL, kernel.name, whole, kernel.outputs)
    return Program("main", kernel.params, call, kernel.dims, kernel.outputs)
