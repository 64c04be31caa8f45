"""Code for another machine: running it raises ``UnsupportedTarget`` instead of an illegal instruction."""

from collections.abc import Iterable, Sequence
from typing import NoReturn

from tilewright.base.arrays import Array
from tilewright.base.errors import UnsupportedTarget
from tilewright.base.host import TILES
from tilewright.base.processors import FEATURES, Architecture, closure
from tilewright.runtime.capabilities import capabilities
from tilewright.runtime.executable import Executable, checked_constants, checked_threads
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.native import NativeExecutable


def misfit(architecture: str, features: Iterable[str]) -> str | None:
    """Why code for ``architecture`` (and system) that uses ``features`` can't run here; None if it can."""
    here = capabilities()
    if architecture != here.platform:
        return f"it is code for {architecture}, and this machine is {here.platform}"
    missing = frozenset(features) - here.features
    if not missing:
        return None
    granted = ", or the system does not grant" if TILES in missing else ""
    return f"it needs {', '.join(_roots(here.arch, missing))}, which this processor has not{granted}"


def _roots(arch: Architecture, missing: frozenset[str]) -> list[str]:
    """The missing features without those implied by other missing ones."""
    known = FEATURES[arch].keys()
    return sorted(n for n in missing if n not in known or not (closure(arch, frozenset((n,))) - {n}) & missing)


class Elsewhere(Executable):
    """A stand-in for an ``Executable`` that only another machine can run; its parts can be saved."""

    def __init__(self, manifest: Manifest, constants: Sequence[Array], threads: int | None, reason: str) -> None:
        self.manifest = manifest
        self.threads = checked_threads(1 if threads is None else threads)
        self.constants = checked_constants(manifest, constants)
        self._reason = reason

    def bind(self, *_: object, **_named: object) -> NoReturn:
        self._run()

    def _run(self, *_: object) -> NoReturn:
        raise UnsupportedTarget(
            f"this model can't run here: {self._reason}; save it and load it there, or compile it for this machine"
        )


def executable_for(
    target: tuple[str, Iterable[str]],
    manifest: Manifest,
    objects: Sequence[bytes],
    constants: Sequence[Array] = (),
    threads: int | None = None,
) -> Executable:
    """The parts, loaded for execution if this machine can run code for ``target`` (architecture, features)."""
    reason = misfit(*target)
    if reason is not None:
        return Elsewhere(manifest, constants, threads, reason)
    return NativeExecutable(manifest, objects, constants, threads=threads)
