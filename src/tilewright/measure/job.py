"""``Job``: a requested measurement: a naive program, a schedule for it, and how to run it.

All fields are texts and numbers, so that a job can be sent, stored and hashed. Two jobs with the same ``id`` are the
same measurement.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache

from tilewright.base import fields
from tilewright.base.errors import CorruptRecord, TilewrightError
from tilewright.loops.identity import family, identity
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Intrinsic
from tilewright.target.target import Target

IR_VERSION = 2
"""Version of the notation and of the identity of loop programs: part of a workload's key."""

MOST_BETWEEN = 1 << 30
"""Bytes of other data between two runs: more than the size of any cache."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Timing parameters of a candidate: ``repeats`` times, each a mean over as many runs as take ``least_seconds``.

    ``cold``: inputs that other data push out of the caches between two runs, as happens to the weights of a model in
    which each kernel has its own; ``between_bytes``: how much data that is. Other inputs stay where runs leave them.
    ``hopeless``: a candidate that takes so many times as long as the best of its workload is timed once; 0: none is.
    ``simulated``: whose cycles are simulated in place of a measurement (``measure.simulated``); empty on a processor.
    ``device``: what times depend on beside the target, on a device of a fleet (``fleet.inventory``); empty on this
    machine.
    """

    repeats: int = 10
    least_seconds: float = 0.01
    cold: tuple[str, ...] = ()
    between_bytes: int = 0
    hopeless: float = 0.0
    simulated: str = ""
    device: str = ""

    def described(self) -> dict[str, object]:
        """As JSON has it. What is not asked for is left out: records that do not know of it stay valid."""
        optional = ("hopeless", "simulated", "device")
        return {name: value for name, value in asdict(self).items() if name not in optional or value}


@dataclass(frozen=True, slots=True)
class Form:
    """A user-defined ``Intrinsic`` as text, for processes that can't import it."""

    name: str
    description: str
    implementation: str
    features: tuple[str, ...]

    @staticmethod
    def of(intrinsic: Intrinsic) -> "Form":
        """Its text."""
        return Form(intrinsic.name, str(intrinsic.description), intrinsic.implementation, intrinsic.features)

    def intrinsic(self) -> Intrinsic:
        """The intrinsic. Raises ``ParseError`` for malformed text."""
        return Intrinsic(self.name, parse_program(self.description), self.implementation, self.features)


@dataclass(frozen=True, slots=True)
class Job:
    """``program``: text of a naive loop program with fixed extents; ``trace``: JSON of the schedule (``Trace``);
    ``target``: text of a ``Target``; ``seed``: of the inputs.

    ``scheduled``: text of the program that the trace makes, from whoever has it already; it is then not made again.
    ``intrinsics``: those that it calls, beside Tilewright's own. ``digits``: which candidate of a space this is, kept
    with the record for who learns from it later. ``decisions``: the same for who reads it: names of knobs, and values.
    """

    program: str
    trace: str
    target: str
    threads: int = 1
    seed: int = 0
    timing: Timing = field(default_factory=Timing)
    scheduled: str = field(default="", compare=False)
    intrinsics: tuple[Form, ...] = ()
    digits: tuple[int, ...] = field(default=(), compare=False)
    decisions: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def workload(self) -> str:
        """Hash of the program's structure, not of its text."""
        return workload_hash(self.program)

    @property
    def id(self) -> str:
        """Hash of everything that determines the measurement."""
        config = self.threads, self.seed, self.timing.described(), *map(asdict, self.intrinsics)
        return job_id(self.workload, _parsed(self.trace), target_fingerprint(self.target), config)


def read_timing(value: object) -> Timing:
    """A ``Timing`` from JSON. Raises ``KeyError``, ``TypeError``, ``ValueError`` if it is malformed."""
    timing = fields.mapping(value)
    cold, between = tuple(map(fields.text, fields.items(timing["cold"]))), fields.whole(timing["between_bytes"])
    if not 0 <= between <= MOST_BETWEEN:
        raise ValueError(f"between two runs there may be up to {MOST_BETWEEN} bytes, not {between}")
    hopeless = fields.number(timing.get("hopeless", 0.0))
    repeats, least = fields.whole(timing["repeats"]), fields.number(timing["least_seconds"])
    simulated, device = (fields.text(timing.get(name, "")) for name in ("simulated", "device"))
    return Timing(repeats, least, cold, between, hopeless, simulated, device)


def read_forms(values: Iterable[object]) -> tuple[Form, ...]:
    """Intrinsics from JSON. Raises ``KeyError``, ``TypeError`` if they are malformed."""
    return tuple(map(_read_form, map(fields.mapping, values)))


def _read_form(form: Mapping[str, object]) -> Form:
    features = tuple(map(fields.text, fields.items(form["features"])))
    name, description, code = (fields.text(form[key]) for key in ("name", "description", "implementation"))
    return Form(name, description, code, features)


def job_id(workload: str, schedule: object, fingerprint: str, config: tuple[object, ...]) -> str:
    """The hash of a workload's key, a schedule's JSON, a processor's key and timing parameters."""
    steps = json.dumps(schedule, sort_keys=True, separators=(",", ":"))
    return _hash("\0".join(("job", workload, steps, fingerprint, json.dumps(config, sort_keys=True))))


def workload_hash(program: str) -> str:
    """The key of a program (``identity``)."""
    return workload_keys(program)[0]


@lru_cache(maxsize=1024)
def workload_keys(program: str) -> tuple[str, str]:
    """The identity and the family of a program; a malformed text has its own key, and no family."""
    try:
        parsed = parse_program(program)
    except (TilewrightError, ValueError):  # ValueError: of numbers of too many digits
        return hashlib.sha256(b"no program\0" + program.encode(errors="surrogatepass")).hexdigest(), ""
    return identity(parsed), family(parsed)


@lru_cache(maxsize=16)
def target_fingerprint(target: str) -> str:
    """The key of a processor. Raises ``ParseError`` if ``target`` is malformed."""
    return _hash(target_json(target))


def target_json(target: str) -> str:
    """The canonical text of a processor, without the cost model's parameters."""
    parsed = Target.parse(target)
    facts = asdict(parsed)
    del facts["machine"], facts["system"]
    return json.dumps({**facts, "arch": parsed.platform}, sort_keys=True)


def _parsed(trace: str) -> object:
    try:
        return json.loads(trace)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"a schedule must be JSON: {error}") from error


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
