"""Targets: a processor's features, sizes and rates, and the grammar of target texts.

A target is written ``x86_64,znver5,-avx512bf16,cores=8,l2=1M``:

    target  = "host" | (architecture ["-" system] ["," processor] | installed) {"," change}
    system  = "macos" (of aarch64) | "windows" (of x86_64)
    change  = ("+" | "-") feature | fact "=" number
    fact    = "vector_bits" | "vector_registers" | "fma_per_cycle" | "loads_per_cycle" | "l1" | "l2" | "l3" | "cores"
            | a figure of ``Machine``

``installed`` is the name of a target of an installed package (entry points ``GROUP``). Changes apply from left to right
to the processor's features (``processors.py``): ``+`` adds a feature and those it implies, ``-`` removes a feature and
those that imply it. Sizes may end in K, M or G. ``str`` gives the shortest such text, and ``parse`` inverts it; records
and caches are keyed by the text. Nothing here needs LLVM.
"""

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace

from tilewright.base import host
from tilewright.base.arguments import checked
from tilewright.base.errors import BadInput, ParseError, UnsupportedTarget
from tilewright.base.events import Listener, to_log
from tilewright.base.names import nearest, shown
from tilewright.base.plugins import installed
from tilewright.base.processors import (
    BASELINE,
    FEATURES,
    LEVELS,
    PROCESSORS,
    SYSTEMS,
    Architecture,
    System,
    closure,
    features_of,
    pipelines_of,
    platform_of,
    without,
)
from tilewright.base.settings import Settings
from tilewright.base.sizes import format_size, parse_size
from tilewright.target.cores import CORES
from tilewright.target.machine import FIGURES, Machine, figure, machine_of, with_measured
from tilewright.target.measured import read_figures

__all__ = ["Architecture", "System", "Target"]

GROUP = "tilewright.targets"
"""Group of entry points."""
_KIB = 1024
_MAX_FACT = 1 << 50
_TO_LOG = to_log(logging.getLogger("tilewright"))


@dataclass(frozen=True, slots=True)
class Target:
    """A processor. Sizes in bytes, rates per cycle of one core. Made by ``parse``, ``of`` and ``host``."""

    arch: Architecture
    cpu: str
    """LLVM's name of the processor."""
    features: tuple[str, ...]
    """LLVM's names of all features that code may use, implied ones too, sorted."""
    vector_bits: int
    vector_registers: int
    fma_per_cycle: int
    """Vector fused multiply-adds that a core starts per cycle."""
    loads_per_cycle: int
    """Vector loads that a core starts per cycle."""
    l1_bytes: int = 32 * _KIB
    """Data cache of a core."""
    l2_bytes: int = 512 * _KIB
    l3_bytes: int = 8 * 1024 * _KIB
    cores: int = 1
    machine: Machine = field(default_factory=Machine)
    """Parameters of its performance."""
    system: System = System.LINUX

    @staticmethod
    @checked(BadInput)
    def of(arch: Architecture, cpu: str | None = None, features: Iterable[str] | None = None) -> "Target":
        """The target with the processor's features, or with only ``features`` and those they imply; caches of a usual
        chip, one core.

        Raises ``UnsupportedTarget`` for an unknown processor or feature.
        """
        cpu = BASELINE[arch] if cpu is None else cpu
        if cpu not in PROCESSORS[arch]:
            raise UnsupportedTarget(f"unknown {arch.value} processor {shown(cpu)}; {_near(cpu, PROCESSORS[arch])}")
        wanted = features_of(arch, cpu) if features is None else frozenset(features)
        for name in sorted(wanted):
            if name not in FEATURES[arch]:
                raise UnsupportedTarget(f"unknown {arch.value} feature {shown(name)}; {_near(name, FEATURES[arch])}")
        have = closure(arch, wanted)
        core = pipelines_of(arch, cpu, have)
        made = Target(
            arch,
            cpu,
            tuple(sorted(have)),
            core.vector_bits,
            core.vector_registers,
            core.fma_per_cycle,
            core.loads_per_cycle,
            machine=machine_of(cpu),
        )
        caches = _caches(cpu) if arch is Architecture.AARCH64 else {}
        return replace(made, **caches)

    @staticmethod
    @checked(BadInput)
    def host(settings: Settings | None = None, listener: Listener = _TO_LOG) -> "Target":
        """This machine, with the parameters measured on it if ``settings`` name their file.

        By default, settings are those of the environment. ``listener`` gets a warning if the file is not used. Raises
        ``UnsupportedTarget`` if the architecture is not in ``Architecture``.
        """
        found = host.detect()
        caches = {f"l{level}_bytes": size for level, size in found.caches.items() if level in (1, 2, 3)}
        made = replace(Target.of(found.arch, found.cpu, found.features), cores=found.cores, **caches)
        path = (settings or Settings.from_environment()).machine
        return replace(made, machine=with_measured(made.machine, read_figures(path, str(found), listener)))

    @staticmethod
    @checked(ParseError)
    def parse(text: str) -> "Target":
        """The target of ``text``. Raises ``ParseError``, which names the wrong word and the known ones."""
        first, *rest = [word.strip() for word in text.split(",")]
        if first == "host" and not rest:
            return Target.host()
        arch, system = _platform(first)
        if arch is None:
            offered = installed(GROUP, Target)
            if first in offered:
                return Target.parse(",".join((str(offered[first]), *rest)))
            elsewhere = (platform_of(arch, one) for arch, systems in SYSTEMS.items() for one in systems[1:])
            known = ", ".join((*(arch.value for arch in Architecture), *elsewhere, *offered))
            raise ParseError(
                f"target {shown(text)}: unknown architecture {shown(first)}; known: {known}, and host alone; a "
                "processor follows after a comma (x86_64,znver4)"
            )
        cpu = rest.pop(0) if rest and not _is_change(rest[0]) else None
        try:
            return replace(_changed(Target.of(arch, cpu), rest), system=system)
        except UnsupportedTarget as error:
            raise ParseError(f"target {shown(text)}: {error}") from error

    def __str__(self) -> str:
        cpu = () if self.cpu == BASELINE[self.arch] else (self.cpu,)
        return ",".join((self.platform, *cpu, *self._feature_changes(), *self._fact_changes()))

    @property
    def platform(self) -> str:
        """The architecture, and the system if it is not Linux."""
        return platform_of(self.arch, self.system)

    @property
    def llvm_features(self) -> str:
        """The features as LLVM's target machine takes them: every one that this compiler knows, on or off.

        Disabled ones come last, so that they override those that the processor's name enables.
        """
        off = sorted(FEATURES[self.arch].keys() - set(self.features))
        return ",".join((*(f"+{name}" for name in self.features), *(f"-{name}" for name in off)))

    def has(self, feature: str) -> bool:
        """True if code may use ``feature``."""
        return feature in self.features

    def lanes(self, bits: int) -> int:
        """Elements of ``bits`` bits in a vector register, at least 1."""
        return max(1, self.vector_bits // bits)

    @checked(BadInput)
    def restricted(self, level: str) -> "Target":
        """This processor without features beyond ``level``: ``avx2`` on x86_64, ``neon`` on aarch64 ...

        Caches and cores stay. Raises ``UnsupportedTarget`` for an unknown level, and for one that the processor lacks.
        """
        levels = LEVELS[self.arch]
        if level not in levels:
            raise UnsupportedTarget(
                f"{self.arch.value} has no feature level {shown(level)}; known: {', '.join(levels)}"
            )
        allowed = closure(self.arch, frozenset(levels[level].split()))
        missing = sorted(allowed - set(self.features))
        if missing:
            raise UnsupportedTarget(f"{self.cpu} is below the level {level}: it lacks {', '.join(missing)}")
        return self._with_features(allowed)

    def without(self, feature: str) -> "Target":
        """This processor without ``feature``, and those that need it. Caches and cores stay."""
        return self._with_features(without(self.arch, frozenset(self.features), feature))

    def _with_features(self, features: Iterable[str]) -> "Target":
        made = Target.of(self.arch, self.cpu, features)
        caches = {"l1_bytes": self.l1_bytes, "l2_bytes": self.l2_bytes, "l3_bytes": self.l3_bytes}
        return replace(made, cores=self.cores, machine=self.machine, system=self.system, **caches)

    def _feature_changes(self) -> list[str]:
        """The fewest changes from the processor's features to this target's."""
        usual, have = features_of(self.arch, self.cpu), frozenset(self.features)
        added, taken = have - usual, usual - have
        implied = {name for one in added for name in closure(self.arch, frozenset((one,))) - {one}}
        gone = {name for name in taken if len(closure(self.arch, frozenset((name,))) & taken) > 1}
        return [f"+{name}" for name in sorted(added - implied)] + [f"-{name}" for name in sorted(taken - gone)]

    def _fact_changes(self) -> list[str]:
        usual = Target.of(self.arch, self.cpu, self.features)._facts()
        return [f"{name}={text}" for name, text in self._facts().items() if text != usual[name]]

    def _facts(self) -> dict[str, str]:
        """The facts by their names in target texts."""
        return {
            "vector_bits": str(self.vector_bits),
            "vector_registers": str(self.vector_registers),
            "fma_per_cycle": str(self.fma_per_cycle),
            "loads_per_cycle": str(self.loads_per_cycle),
            "l1": format_size(self.l1_bytes),
            "l2": format_size(self.l2_bytes),
            "l3": format_size(self.l3_bytes),
            "cores": str(self.cores),
            **{name: str(value).removesuffix(".0") for name, value in asdict(self.machine).items()},
        }


def _platform(text: str) -> tuple[Architecture | None, System]:
    """Architecture and system; no architecture if the text names none, or one that is not for this system."""
    name, dash, other = text.partition("-")
    arch = next((arch for arch in Architecture if arch.value == name), None)
    if arch is None or not dash:
        return arch, System.LINUX
    system = next((one for one in SYSTEMS.get(arch, ()) if one.value == other), None)
    return (None, System.LINUX) if system is None else (arch, system)


def _caches(cpu: str) -> dict[str, int]:
    """Bytes of the caches of a usual chip with such cores; empty if there is no table of it."""
    if cpu not in CORES:
        return {}
    core = CORES[cpu]
    return {
        "l1_bytes": core.l1.bytes,
        "l2_bytes": core.l2.bytes,
        "l3_bytes": 0 if core.l3 is None else core.l3.bytes,
    }


# Names of facts in texts, and their fields.
_OTHERS = ("arch", "cpu", "features", "machine", "system")
_FACTS = {f.name.removesuffix("_bytes"): f.name for f in fields(Target) if f.name not in _OTHERS}


def _is_change(word: str) -> bool:
    return word[:1] in ("+", "-") or "=" in word


def _changed(target: Target, words: Iterable[str]) -> Target:
    """``target`` after the changes: those of features first, as widths follow from them."""
    have = frozenset(target.features)
    facts: dict[str, int] = {}
    figures: dict[str, float] = {}
    for word in words:
        sign, name = word[:1], word[1:]
        if sign not in ("+", "-"):
            name, number = _assignment(word)
            if name in _FACTS:
                facts[_FACTS[name]] = _fact(name, number, word)
            else:
                figures[name] = _figure(name, number, word)
        elif name not in FEATURES[target.arch]:
            raise UnsupportedTarget(
                f"unknown {target.arch.value} feature {shown(name)}; {_near(name, FEATURES[target.arch])}"
            )
        elif sign == "+":
            have |= closure(target.arch, frozenset((name,)))
        else:
            have = without(target.arch, have, name)
    made = Target.of(target.arch, target.cpu, have)
    return replace(made, machine=replace(made.machine, **figures), **facts)


def _assignment(word: str) -> tuple[str, str]:
    name, equals, number = (part.strip() for part in word.partition("="))
    if not equals:
        raise UnsupportedTarget(
            f"{shown(word)} is no change; features start with + or -, facts are written name=number"
        )
    if name not in _FACTS and name not in FIGURES:
        raise UnsupportedTarget(f"unknown fact {shown(name)}; {_near(name, (*_FACTS, *FIGURES))}")
    return name, number


def _fact(name: str, number: str, word: str) -> int:
    value = parse_size(number)
    least = 0 if name in ("l1", "l2", "l3") else 1
    if value is None or not least <= value <= _MAX_FACT:
        raise UnsupportedTarget(f"{shown(word)} needs a whole number from {least} on; sizes may end in K, M or G")
    return value


def _figure(name: str, number: str, word: str) -> float:
    try:
        return figure(name, number)
    except ValueError as error:
        raise UnsupportedTarget(
            f"{shown(word)} needs a {'whole ' * isinstance(FIGURES[name], int)}number above 0"
        ) from error


def _near(word: str, known: Iterable[str]) -> str:
    names = list(known)
    near = nearest(word, names)
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
