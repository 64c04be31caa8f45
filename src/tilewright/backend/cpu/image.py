"""A native image: the object code of a main program, of the kernels that it calls, and of the support functions.

Each kernel is a module of its own, compiled by itself and kept in the object cache under the hash of its text, target
and compiler version: a model that shares kernels with an earlier one compiles only what is new.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.backend.cpu.checks import Site
from tilewright.backend.cpu.kernel import FunctionInfo, emit_kernel, emit_main
from tilewright.backend.cpu.llvm import GENERATOR, Effort, compile_assembly, compile_object
from tilewright.backend.cpu.regions import RegionText
from tilewright.backend.cpu.scalars import ZEROS, ZEROS_BYTES
from tilewright.backend.cpu.statements import Module
from tilewright.backend.cpu.support import DECLARATIONS, support_text
from tilewright.base.checks import Checks
from tilewright.base.errors import Unsupported, UnsupportedKernel
from tilewright.base.events import Advanced, Listener, ignore
from tilewright.base.store import Cache
from tilewright.loops.ir import Call, Callee, Region
from tilewright.loops.program import Program
from tilewright.symbolic.check import Origin
from tilewright.symbolic.expr import ZERO, Expr
from tilewright.target.target import Target

_ZEROS = f"{ZEROS} = internal constant [{ZEROS_BYTES} x i8] zeroinitializer, align 64\n"


@dataclass(frozen=True, slots=True)
class Code:
    """An image as LLVM IR, and what a call of ``tw_main`` needs."""

    kernels: Mapping[str, str]
    """The kernels' modules by name."""
    main: str
    """The module of main, which runs through once in a call."""
    others: tuple[str, ...]
    """The modules of the support functions, and of regions that are apart from their kernels."""
    workspace_bytes: int
    scratch_bytes: int
    sites: tuple[str, ...]
    """What the checks' site numbers mean: for each call of main, those of its kernel."""
    calls: tuple[str, ...] = ()
    """The kernels that main calls, in order."""
    more_workspace: Expr = ZERO
    """Bytes of workspace after the others, that depend on run-time extents."""


@dataclass(frozen=True, slots=True)
class Image:
    """Object files to be loaded together, and the code that they were made of."""

    objects: tuple[bytes, ...]
    code: Code


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel as LLVM IR."""

    text: str
    info: FunctionInfo
    sites: tuple[Site, ...]
    regions: tuple[str, ...] = ()
    """The modules of those of its regions that are not in ``text``."""


def kernel_text(
    program: Program, *, checked: bool = False, checks: Checks = Checks.ON, apart: bool = False
) -> KernelText:
    """The module of one kernel; with ``checked``, every access is checked. ``checks``: of indices that are data.

    ``apart``: all of its parallel regions but the last are modules of their own, if they can be. So what the candidates
    for its schedule have in common is compiled once. It takes longer where nothing is.
    """
    module = Module(checked=checked, reports=checks is Checks.ON)
    info = emit_kernel(program, module)
    regions = tuple(map(_alone, module.split())) if apart else ()
    return KernelText(_assemble(module), info, tuple(module.sites), regions)


def _assemble(module: Module) -> str:
    declarations = "\n".join(sorted(module.declarations))
    return "\n".join([_ZEROS, DECLARATIONS, declarations, *module.functions])


def _alone(region: RegionText) -> str:
    """The module of a region that others call."""
    return "\n".join([_ZEROS, DECLARATIONS, *sorted(region.declarations), region.shared])


def emit(
    main: Program,
    kernels: Sequence[Program],
    target: Target,
    *,
    constants: int = 0,
    checked: bool = False,
    checks: Checks = Checks.ON,
    apart: bool = False,
    place: Callable[[int, Origin], str] = lambda _, origin: str(origin),
) -> Code:
    """The code of ``main``, of the kernels that it calls by name, and of the support functions.

    ``constants``: how many of main's parameters, just before its outputs, are constants of the model. For ``checked``,
    ``checks`` and ``apart`` see ``kernel_text``. ``place``: what the user calls an origin of indices in a call of main,
    which is given by its number. Raises ``UnsupportedKernel`` for one that has no native code.
    """
    regions: list[str] = []
    modules: dict[str, str] = {}
    known: dict[str, tuple[Program, FunctionInfo]] = {}
    sites: dict[str, tuple[Site, ...]] = {}
    for program in kernels:
        try:
            made = kernel_text(program, checked=checked, checks=checks, apart=apart)
        except Unsupported as error:
            raise UnsupportedKernel(program.name, str(error)) from error
        sites[program.name] = made.sites
        modules[program.name] = made.text
        regions.extend(made.regions)
        known[program.name] = (program, made.info)
    module = Module()
    info = emit_main(main, constants, known, module, {name: len(found) for name, found in sites.items()})
    named = (
        place(call, site) if isinstance(site, Origin) else f"{name}: {site}"
        for call, name in enumerate(info.calls)
        for site in sites[name]
    )
    declarations = "\n".join(f"declare hidden void @{name}(ptr, ptr, ptr, ptr)" for name in known)
    text, others = f"{_assemble(module)}\n{declarations}", (support_text(target.arch.value), *regions)
    memory = (info.workspace_bytes, info.scratch_bytes)
    return Code(modules, text, others, *memory, tuple(named), info.calls, info.more_workspace)


def build(code: Code, target: Target, cache: Cache | None = None, listener: Listener = ignore) -> Image:
    """Compile ``code``, or take what the cache has of it. ``listener`` hears of each kernel that is done."""
    objects: list[bytes] = []
    for name, text in code.kernels.items():
        objects.append(_compiled(text, target, cache))
        listener(Advanced("code", len(objects), len(code.kernels), name))
    objects.append(_compiled(code.main, target, cache, Effort.QUICK))
    objects += [_compiled(text, target, cache) for text in code.others]
    return Image(tuple(objects), code)


def _compiled(text: str, target: Target, cache: Cache | None, effort: Effort = Effort.FULL) -> bytes:
    if cache is None:
        return compile_object(text, target, effort)
    identity = "\n".join((GENERATOR, effort.name, str(target), text))
    key = hashlib.sha256(identity.encode()).hexdigest()
    found = cache.get(key)
    if found is None:
        found = compile_object(text, target, effort)
        cache.put(key, found)
    return found


def assembly(program: Program, target: Target) -> str:
    """The assembly of one kernel, to read."""
    return compile_assembly(kernel_text(program).text, target)


def build_one(
    program: Program,
    target: Target,
    *,
    cache: Cache | None = None,
    checked: bool = False,
    checks: Checks = Checks.ON,
    apart: bool = False,
) -> Image:
    """``program`` as an image of its own: main calls it once, on its arguments; for options see ``kernel_text``."""
    code = emit(main_for(program), [program], target, checked=checked, checks=checks, apart=apart)
    return build(code, target, cache)


def main_for(kernel: Program) -> Program:
    """A main program that calls ``kernel`` once, on its own arguments."""
    whole = tuple(Region(p, tuple((ZERO, extent) for extent in p.shape)) for p in kernel.params)
    call = Call(Callee.KERNEL, kernel.name, whole, kernel.outputs)
    return Program("main", kernel.params, call, kernel.dims, kernel.outputs)
