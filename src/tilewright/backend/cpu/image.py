"""A native image: the object code of a main program, of the kernels that it calls, and of the support functions.

Each kernel is a separate module, compiled separately and cached under the hash of its text, target and compiler
version: a model that shares kernels with an earlier one compiles only the new ones.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.backend.api import PLAIN, Emission, Needs
from tilewright.backend.cpu.abilities import ANY, Abilities
from tilewright.backend.cpu.accesses import ZEROS, ZEROS_BYTES
from tilewright.backend.cpu.checks import Site
from tilewright.backend.cpu.kernel import FunctionInfo, emit_kernel, emit_main
from tilewright.backend.cpu.llvm import GENERATOR, Effort, compile_assembly, compile_object
from tilewright.backend.cpu.regions import RegionText
from tilewright.backend.cpu.statements import Module
from tilewright.backend.cpu.support import DECLARATIONS, support_text
from tilewright.base.arrays import Array
from tilewright.base.checks import Checks
from tilewright.base.errors import Unsupported, UnsupportedKernel, UnsupportedTarget
from tilewright.base.events import Advanced, Listener, ignore
from tilewright.base.processors import WASM
from tilewright.base.store import Cache, Recent
from tilewright.loops.ir import Call, Callee, Region
from tilewright.loops.program import Program
from tilewright.runtime.elsewhere import executable_for
from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest
from tilewright.symbolic.check import Origin
from tilewright.symbolic.expr import ZERO, Expr
from tilewright.target.target import Target

_SUPPORT = Recent(4)
"""Object code of the support functions where there is no other cache: it takes longer to make than that of a kernel."""
_ZEROS = f"{ZEROS} = internal constant [{ZEROS_BYTES} x i8] zeroinitializer, align 64\n"


@dataclass(frozen=True, slots=True)
class Image:
    """Object files to be loaded together, for a target."""

    objects: tuple[bytes, ...]
    needs: Needs
    target: Target

    def launch(self, manifest: Manifest, constants: Sequence[Array] = (), threads: int | None = None) -> Executable:
        """The loaded code, if this machine can run it; else an object that raises the reason."""
        fitting = (self.target.platform, self.target.features)
        return executable_for(fitting, manifest, self.objects, constants, threads)


@dataclass(frozen=True, slots=True)
class Code:
    """An image as LLVM IR, for a target."""

    kernels: Mapping[str, str]
    """The kernels' modules by name."""
    main: str
    """The module of main, which runs through once in a call."""
    support: str
    """The module of the support functions: the same in all images for an architecture."""
    regions: tuple[str, ...]
    """The modules of regions that are apart from their kernels."""
    needs: Needs
    target: Target

    def link(self, cache: Cache | None = None, listener: Listener = ignore) -> Image:
        """Compile the modules missing in the cache. ``listener`` gets an event for each finished kernel."""
        objects: list[bytes] = []
        for name, text in self.kernels.items():
            objects.append(_compiled(text, self.target, cache))
            listener(Advanced("code", len(objects), len(self.kernels), name))
        objects.append(_compiled(self.main, self.target, cache, Effort.QUICK))
        objects.append(_compiled(self.support, self.target, _SUPPORT if cache is None else cache))
        objects += [_compiled(text, self.target, cache) for text in self.regions]
        return Image(tuple(objects), self.needs, self.target)


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel as LLVM IR."""

    text: str
    info: FunctionInfo
    sites: tuple[Site, ...]
    regions: tuple[str, ...] = ()
    """The modules of those of its regions that are not in ``text``."""


def kernel_text(
    program: Program,
    *,
    checked: bool = False,
    checks: Checks = Checks.ON,
    apart: bool = False,
    abilities: Abilities = ANY,
) -> KernelText:
    """The module of one kernel; with ``checked``, every access is checked. ``checks``: the policy for data-dependent
    indices.

    ``apart``: make all of its parallel regions but the last separate modules, if possible, so that regions common to
    several candidates of its schedule are compiled once. It takes longer if there are none. ``abilities``: those of
    the processor.
    """
    reports = checks is Checks.ON
    module = Module(checked=checked, reports=reports, abilities=abilities)
    info = emit_kernel(program, module)
    regions = tuple(map(_alone, module.split())) if apart else ()
    return KernelText(_assemble(module), info, tuple(module.sites), regions)


def _assemble(module: Module) -> str:
    declarations = "\n".join(sorted(module.declarations))
    return "\n".join([_ZEROS, DECLARATIONS, declarations, *module.functions])


def _alone(region: RegionText) -> str:
    """The module of a region that other modules call."""
    return "\n".join([_ZEROS, DECLARATIONS, *sorted(region.declarations), region.shared])


def emit(main: Program, kernels: Sequence[Program], target: Target, emission: Emission = PLAIN) -> Code:
    """The code of ``main``, of the kernels that it calls by name, and of the support functions.

    Raises ``UnsupportedKernel`` for one that has no native code.
    """
    regions: list[str] = []
    modules: dict[str, str] = {}
    known: dict[str, tuple[Program, FunctionInfo]] = {}
    sites: dict[str, tuple[Site, ...]] = {}
    others = [(name, *other) for name, found in emission.variants.items() for other in found]
    for program in (*kernels, *(other for _, other, _ in others)):
        _require_features(program, target)
        try:
            made = kernel_text(
                program,
                checked=emission.checked,
                checks=emission.checks,
                apart=emission.apart,
                abilities=Abilities.of(target),
            )
        except Unsupported as error:
            raise UnsupportedKernel(program.name, str(error)) from error
        sites[program.name] = made.sites
        modules[program.name] = made.text
        regions.extend(made.regions)
        known[program.name] = (program, made.info)
    module = Module()
    variants: dict[str, list[tuple[str, Expr]]] = {}
    for name, other, where in others:
        needs_alike = known[other.name][1].more_workspace in (ZERO, known[name][1].more_workspace)
        if sites[other.name] == sites[name] and needs_alike:
            variants.setdefault(name, []).append((other.name, where))
    counts = {name: len(found) for name, found in sites.items()}
    info = emit_main(main, emission.constants, known, module, counts, variants)
    named = (
        emission.place(call, site) if isinstance(site, Origin) else f"{name}: {site}"
        for call, name in enumerate(info.calls)
        for site in sites[name]
    )
    declarations = "\n".join(f"declare hidden void @{name}(ptr, ptr, ptr, ptr)" for name in known)
    text = f"{_assemble(module)}\n{declarations}"
    support = support_text(target.arch.value, target.system, threads=target.arch not in WASM)
    needs = Needs(info.workspace_bytes, info.scratch_bytes, info.more_workspace, tuple(named), info.calls)
    return Code(modules, text, support, tuple(regions), needs, target)


def _compiled(text: str, target: Target, cache: Cache | None, effort: Effort = Effort.FULL) -> bytes:
    return _cached(text, target, cache, lambda: compile_object(text, target, effort), effort)


def _cached(
    text: str, target: Target, cache: Cache | None, make: Callable[[], bytes], effort: Effort = Effort.FULL
) -> bytes:
    if cache is None:
        return make()
    identity = "\n".join((GENERATOR, effort.name, str(target), text))
    key = hashlib.sha256(identity.encode()).hexdigest()
    found = cache.get(key)
    if found is None:
        found = make()
        cache.put(key, found)
    return found


def _require_features(program: Program, target: Target) -> None:
    """Raises ``UnsupportedTarget`` for an intrinsic that ``target`` lacks: LLVM would abort the process."""
    for intrinsic in program.intrinsics:
        if missing := [feature for feature in intrinsic.features if not target.has(feature)]:
            raise UnsupportedTarget(
                f"the intrinsic {intrinsic.name} needs {', '.join(missing)}, which {target} has not"
            )


def assembly(program: Program, target: Target) -> str:
    """The assembly of one kernel, to read."""
    _require_features(program, target)
    return compile_assembly(listing(program, target), target)


def listing(program: Program, target: Target) -> str:
    """The LLVM IR of one kernel, to read."""
    made = kernel_text(program, abilities=Abilities.of(target))
    return made.text


def build_one(program: Program, target: Target, emission: Emission = PLAIN, *, cache: Cache | None = None) -> Image:
    """``program`` as an image: main calls it once, on its arguments."""
    return emit(main_for(program), [program], target, emission).link(cache)


def main_for(kernel: Program) -> Program:
    """A main program that calls ``kernel`` once, on its own arguments."""
    whole = tuple(Region(p, tuple((ZERO, extent) for extent in p.shape)) for p in kernel.params)
    call = Call(Callee.KERNEL, kernel.name, whole, kernel.outputs)
    return Program("main", kernel.params, call, kernel.dims, kernel.outputs)
