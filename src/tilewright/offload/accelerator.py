"""``Accelerator``: which one computes parts of a model, what is given to it, and the device that runs it.

tilewright.compile(model, accelerator="vta")                     or backend="vta"
tilewright.compile(model, accelerator="vta,large,always,cycles")
tilewright.compile(model, accelerator="vta,own.json")            a file of ``tilewright accelerator search``
tilewright.compile(model, accelerator="vta,tuned.db")            a file of ``tilewright tune --accelerator``
tilewright.compile(model, accelerator=Accelerator(config, connect=my_driver))
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tilewright.backend.api import Backend
from tilewright.backend.cpu.backend import CPU
from tilewright.backend.vta.backend import Accelerator as Programs
from tilewright.backend.vta.config import PRESETS, TINY, VTA, Config
from tilewright.backend.vta.config_file import SUFFIX, Design, read_config
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.driver import Driver
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.base.choices import Choice
from tilewright.base.errors import BadInput, Unsupported
from tilewright.base.names import shown

_NAME = "vta"
RECORDS = ".db"
"""How the names of files end that have what was tuned."""


class Placing(Choice):
    """What is given to the accelerator, of what it can compute."""

    COST = "cost"
    """What makes the model faster, by the cycle simulator and the estimated times of the CPU's kernels."""
    MEASURED = "measured"
    """The same, by measured times of the CPU's kernels, and of packing."""
    ALWAYS = "always"
    """All."""


class Kind(Choice):
    """What runs its programs."""

    FUNCTIONAL = "functional"
    """The functional simulator."""
    CYCLES = "cycles"
    """The functional simulator and that of cycles."""
    RTL = "rtl"
    """The hardware in Amaranth's simulator: for small configurations and layers."""


Connect: TypeAlias = Callable[[int], Driver]
"""Opens a device with so many bytes of memory."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator. ``connect`` opens a device of one's own in place of ``kind``'s.

    Raises ``BadInput`` for a configuration whose results can't be operands: its blocks or its widths differ.
    """

    config: Config = VTA
    placing: Placing = Placing.COST
    kind: Kind = Kind.FUNCTIONAL
    timing: Timing = field(default_factory=Timing)
    connect: Connect | None = None
    records: Path | None = None
    """Of its tuned units (``offload.tuned``)."""

    def __post_init__(self) -> None:
        config = self.config
        if config.batch != 1 or config.block_in != config.block_out:
            raise BadInput(
                f"{config.name}: batch={config.batch}, block_in={config.block_in}, block_out={config.block_out}; "
                "models are split for accelerators with batch=1 and equal blocks"
            )
        if (config.inp_bits, config.wgt_bits, config.out_bits) != (8, 8, 8):
            raise BadInput(f"{config.name}: models are split for accelerators of bytes: inp, wgt and out of 8 bits")

    def __str__(self) -> str:
        device = "own device" if self.connect is not None else self.kind.value
        return f"{_NAME},{self.config.name},{self.placing.value},{device}"

    @staticmethod
    def named(given: "Accelerator | str") -> "Accelerator":
        """Of words: ``vta``, and a configuration (its name or file), a way of placing, a kind, a file of records.

        Raises ``BadInput``.
        """
        if isinstance(given, Accelerator):
            return given
        first, *words = given.split(",")
        kinds = {kind.value: kind for kind in Kind}
        placings = {placing.value: placing for placing in Placing}
        known = (*PRESETS, TINY.name, *placings, *kinds)
        configs = (*PRESETS, TINY.name, *(word for word in words if word.endswith(SUFFIX)))
        files = tuple(word for word in words if word.endswith(RECORDS))
        if first != _NAME or not set(words) <= {*known, *configs, *files}:
            said = f"give {_NAME}, and after it any of {', '.join(known)}, or files *{SUFFIX}, *{RECORDS}"
            raise BadInput(f"accelerator={shown(given)}: {said}")
        groups = [[word for word in words if word in group] for group in (configs, placings, kinds, files)]
        if any(len(group) > 1 for group in groups):
            said = "give one configuration, one way of placing, one device and one file of records"
            raise BadInput(f"accelerator={shown(given)}: {said}")
        presets, placing, kind, records = (group[0] if group else None for group in groups)
        usual = TINY.name if kind == Kind.RTL.value else VTA.name
        design = _design(presets or usual)
        return Accelerator(
            design.config,
            Placing.COST if placing is None else placings[placing],
            Kind.FUNCTIONAL if kind is None else kinds[kind],
            design.timing,
            records=None if records is None else Path(records),
        )

    def open(self, memory_bytes: int) -> Driver:
        """A device with so many bytes of memory. Raises ``Unsupported`` if a package is missing."""
        if self.connect is not None:
            return self.connect(memory_bytes)
        if self.kind is Kind.RTL:
            return _hardware(self.config, self.timing, memory_bytes)
        return SimulatedDevice(self.config, memory_bytes, self.timing if self.kind is Kind.CYCLES else None)


def _design(name: str) -> Design:
    return read_config(Path(name)) if name.endswith(SUFFIX) else Design({**PRESETS, TINY.name: TINY}[name])


def _hardware(config: Config, timing: Timing, memory_bytes: int) -> Driver:
    try:
        from tilewright.backend.vta.rtl.device import RtlDevice
    except ModuleNotFoundError as error:
        raise Unsupported(_MISSING) from error
    return RtlDevice(config, timing, memory_bytes)


_MISSING = "the accelerator as hardware needs Amaranth: pip install 'tilewright[rtl]'"


def devices(backend: Backend | str, accelerator: Accelerator | str | None) -> tuple[Backend | str, Accelerator | None]:
    """The back end of what the CPU computes, and the accelerator: ``backend="vta,always"`` names it, too.

    Raises ``BadInput`` if both are given, and for words that nobody knows.
    """
    if isinstance(backend, Programs):
        named: Accelerator | str | None = Accelerator(backend.config, timing=backend.timing)
    else:
        named = backend if isinstance(backend, str) and backend.partition(",")[0] == _NAME else None
    if named is None:
        return backend, None if accelerator is None else Accelerator.named(accelerator)
    if accelerator is not None:
        raise BadInput("backend= and accelerator= both name the accelerator: leave one out")
    return CPU, Accelerator.named(named)
