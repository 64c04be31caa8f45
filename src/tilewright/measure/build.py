"""Builds jobs as native code, or takes images from a folder where another process has stored them.

An image is stored as an artifact, in a file named by the hash of its job, and taken once. Writers of the folder are
trusted as much as candidates.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tilewright.backend.api import Emission
from tilewright.backend.cpu.image import build_one
from tilewright.base.errors import BadArtifact, BadInput, MeasureError, TilewrightError
from tilewright.base.files import reason, replace_file
from tilewright.base.store import Recent
from tilewright.kernels.dot_products import all_dot_products
from tilewright.loops.ir import Alloc, Buffer
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.loops.visit import walk
from tilewright.measure.job import Job
from tilewright.measure.verdicts import Outcome, Phase, Verdict
from tilewright.runtime import artifact
from tilewright.runtime.elsewhere import executable_for
from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest, TensorSpec
from tilewright.schedule.replay import replay
from tilewright.schedule.trace import Trace
from tilewright.symbolic.expr import Const
from tilewright.target.target import Target

_RECENT_OBJECTS = 32
"""Compiled modules cached in memory: candidates usually differ in one of four."""


class RefusedError(Exception):
    """A candidate got its verdict before the end."""

    def __init__(self, verdict: Verdict, phase: Phase, detail: str) -> None:
        super().__init__(detail)
        self.outcome = Outcome(verdict, detail, phase)


@dataclass(frozen=True, slots=True)
class Image:
    """One program as native code for ``target``, not yet loaded."""

    manifest: Manifest
    objects: tuple[bytes, ...]
    target: Target

    def executable(self, threads: int) -> Executable:
        """The image, loaded for execution."""
        fitting = (self.target.platform, self.target.features)
        return executable_for(fitting, self.manifest, self.objects, threads=threads)


Start = Callable[[Image, Job, str], Executable]
"""Loads an image, given a job and the name of its program."""


def start(image: Image, job: Job, _: str) -> Executable:
    """The image, loaded for the job's number of threads."""
    return image.executable(job.threads)


class Builder:
    """Builds jobs, one after the other."""

    def __init__(self, memory_bytes: int) -> None:
        """``memory_bytes``: maximum allocations of a schedule."""
        self._memory_bytes = memory_bytes
        self._recent = Recent(_RECENT_OBJECTS)
        self._parsed = ("", None)

    def build(self, job: Job) -> Image:
        """The scheduled program. Raises ``RefusedError`` with the reason."""
        try:
            scheduled = self._scheduled(job)
            needed = _allocated(scheduled)
            if needed > self._memory_bytes:
                raise RefusedError(Verdict.OOM, Phase.BUILD, f"it would allocate {needed} bytes")
            return image_of(scheduled, Target.parse(job.target), recent=self._recent)
        except TilewrightError as error:
            raise RefusedError(Verdict.BUILD_ERROR, Phase.BUILD, str(error)) from error
        except MemoryError as error:
            raise RefusedError(Verdict.OOM, Phase.BUILD, "no memory left while building") from error
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            # A trace from a file may call a primitive with any arguments.
            raise RefusedError(Verdict.BUILD_ERROR, Phase.BUILD, f"{type(error).__name__}: {error}") from error

    def _scheduled(self, job: Job) -> Program:
        """Primitives keep programs legal: builds without verification, as the compiler does."""
        if job.scheduled:
            own = (form.intrinsic() for form in job.intrinsics)
            return parse_program(job.scheduled, (*own, *all_dot_products().forms))
        trace, naive = Trace.from_json(job.trace), self._program(job.program)
        return replay(trace, naive, intrinsics=all_dot_products()).program

    def _program(self, text: str) -> Program:
        """The program, verified; the last one is cached."""
        known, program = self._parsed
        if program is None or known != text:
            program = parse_program(text)
            verify(program)
            self._parsed = (text, program)
        return program


def image_of(program: Program, target: Target, *, checked: bool = False, recent: Recent | None = None) -> Image:
    """``program``, whose extents are fixed, as native code. Raises ``Unsupported`` if it can't be compiled."""
    made = build_one(program, target, Emission(checked=checked, apart=recent is not None), cache=recent)
    specs = [TensorSpec(buffer.name, buffer.dtype, shape_of(buffer)) for buffer in program.params]
    count, needs = len(program.inputs), made.needs
    manifest = Manifest(
        tuple(specs[:count]),
        tuple(specs[count:]),
        workspace=needs.workspace_bytes,
        scratch=needs.scratch_bytes,
        sites=needs.sites,
        calls=needs.calls,
    )
    return Image(manifest, made.objects, target)


def shape_of(buffer: Buffer) -> tuple[int, ...]:
    """The shape as numbers. Raises ``BadInput`` for run-time extents."""
    shape = tuple(int(extent.value) for extent in buffer.shape if isinstance(extent, Const))
    if len(shape) != len(buffer.shape):
        raise BadInput(f"{buffer!r} has run-time extents; a measurement is for fixed shapes")
    return shape


def as_artifact(image: Image) -> artifact.Artifact:
    """``image`` as an artifact without constants."""
    target = image.target
    made = artifact.Build("", None, str(target), target.platform, tuple(sorted(target.features)))
    return artifact.Artifact(made, image.manifest, image.objects, ())


class Kept:
    """Images in a folder, keyed by job. ``elsewhere``: they need not run here."""

    def __init__(self, folder: Path, *, elsewhere: bool = False) -> None:
        self._folder = folder
        self._elsewhere = elsewhere

    def put(self, job: Job, image: Image) -> None:
        """Store ``image``. Raises ``MeasureError`` on failure."""
        try:
            file = artifact.packed(as_artifact(image), None, signed=False)
            replace_file(self._folder / job.id, file.parts, durable=False)
        except OSError as error:
            raise MeasureError(f"what was built can't be kept: {reason(error)}") from error

    def take(self, job: Job) -> Image | None:
        """The image of ``job``, removed from the folder; None if there is none."""
        path = self._folder / job.id
        try:
            found = artifact.read(path, None, trust=True, elsewhere=self._elsewhere)
        except (BadInput, BadArtifact):
            return None
        with suppress(OSError):
            path.unlink()
        return Image(found.manifest, found.objects, Target.parse(job.target))


def _allocated(program: Program) -> int:
    """Bytes of the buffers that a program allocates, without those of run-time size."""
    buffers = [stmt.buffer for stmt in walk(program.body) if isinstance(stmt, Alloc)]
    extents = [[e.value for e in buffer.shape if isinstance(e, Const)] for buffer in buffers]
    return sum(int(math.prod(known)) * buffer.dtype.itemsize for buffer, known in zip(buffers, extents, strict=True))
