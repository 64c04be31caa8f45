"""Regions in artifacts: a region is a part whose code is the program of an accelerator, and its weights are constants.

``part_of`` makes it; ``opening`` is how ``tilewright.load`` runs it. What the artifact names is the accelerator as
words (``Accelerator.named``); a device of one's own has no words, and is given to ``load``.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright import __version__
from tilewright.backend.vta.config import Config
from tilewright.backend.vta.written import program_of, written
from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.base.dtypes import i8
from tilewright.base.errors import BadInput, Unsupported
from tilewright.graph import Value
from tilewright.offload.accelerator import Accelerator, Kind
from tilewright.offload.device import Device
from tilewright.offload.region import Region
from tilewright.offload.units import shape_of
from tilewright.runtime.artifact import Artifact, Build
from tilewright.runtime.devices import Opener
from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest, TensorSpec
from tilewright.symbolic.expr import const

ARCHITECTURE = "vta"


def part_of(name: str, region: Region, accelerator: Accelerator) -> Artifact:
    """A region as a part of an artifact."""
    constants = [TensorSpec(at, dtypes.from_numpy(array.dtype), array.shape) for at, array in region.constants.items()]
    manifest = Manifest(_specs(region.inputs), _specs(region.outputs), tuple(constants), calls=(name,))
    build = Build(__version__, None, str(accelerator), ARCHITECTURE, ())
    return Artifact(build, manifest, (written(region.program),), tuple(region.constants.values()))


def _specs(values: Sequence[Value]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(value.name, i8, shape_of(value)) for value in values)


def opening(accelerator: object) -> Opener:
    """Raises ``BadInput`` for words that name no accelerator."""
    if accelerator is None or isinstance(accelerator, Accelerator | str):
        return _Opener(None if accelerator is None else Accelerator.named(accelerator))
    raise BadInput(f"accelerator={accelerator!r}: give words, or an Accelerator")


@dataclass(slots=True)
class _Opener:
    """The regions of one model, which share a device."""

    given: Accelerator | None
    device: Device | None = field(default=None)

    def executable(self, found: Artifact) -> Executable:
        program = program_of(found.objects[0])
        accelerator = self.given or _named(found.build.target, program.config)
        if accelerator.config != program.config:
            raise BadInput(
                f"the model's programs are for {program.config}, and the accelerator is {accelerator.config}; "
                "compile the model for it, or give one of that configuration (accelerator=)"
            )
        if self.device is None:
            self.device = Device(accelerator)
        names = [spec.name for spec in found.manifest.constants]
        values = [[_value(spec) for spec in specs] for specs in (found.manifest.inputs, found.manifest.outputs)]
        constants = dict(zip(names, found.constants, strict=True))
        region = Region((), tuple(values[0]), tuple(values[1]), program, constants)
        self.device.reserve(region)
        return _RegionExecutable(found, region, self.device)


def _named(words: str, config: Config) -> Accelerator:
    """The accelerator that an artifact names: what ran its programs, in the configuration of these."""
    kind = words.split(",")[-1]
    if kind not in [known.value for known in Kind]:
        raise Unsupported(
            f"the model has programs for {config.name}, on a device of its own: give it to load, as "
            "accelerator=Accelerator(config, connect=...)"
        )
    return Accelerator(config, kind=Kind.named(kind))


def _value(spec: TensorSpec) -> Value:
    return Value(spec.name, spec.dtype, tuple(const(extent) for extent in spec.static_shape or ()))


class _RegionExecutable(Executable):
    """Runs a region on a device, to which its constants go in each run."""

    def __init__(self, found: Artifact, region: Region, device: Device) -> None:
        super().__init__(found.manifest, found.constants, 1)
        self._region, self._device = region, device

    def _run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, Array],
        threads: int | None,
        timeout: float | None,
        runs: int,
        /,
    ) -> tuple[list[Array], list[float]]:
        inputs = self._accept(feeds)
        begin = time.perf_counter()
        made: list[Array] = []
        for _ in range(runs):
            made = self._device.run(self._region, inputs)
        seconds = time.perf_counter() - begin
        if not out:
            return made, [seconds]
        results = self._outputs(out, inputs, [(array.shape, array.dtype) for array in made])
        for array, result in zip(made, results, strict=True):
            result[...] = array
        return results, [seconds]
