"""Traces: the recorded steps of a schedule, as text and as JSON, for replay.

A trace has all decisions: the primitives, their loops and blocks, their numbers, and their results. Random choices are
steps of their own (``sample_perfect_tile``), and later steps refer to their results (``Sampled``), so a tuner changes a
decision and replays. ``str(trace)`` is Python code that repeats the steps.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tilewright.base.errors import BadInput
from tilewright.loops.memory import MEMORIES, Memory, Sharing
from tilewright.schedule.index_map import IndexMap
from tilewright.schedule.tree import BlockRef, LoopRef
from tilewright.symbolic.expr import Extent


class Primitive(Enum):
    """All primitives; the value is the name of the method of ``Schedule``."""

    SPLIT = "split"
    TILE = "tile"
    FUSE = "fuse"
    REORDER = "reorder"
    SERIAL = "serial"
    UNROLL = "unroll"
    VECTORIZE = "vectorize"
    PARALLEL = "parallel"
    BIND = "bind"
    COMPUTE_AT = "compute_at"
    REVERSE_COMPUTE_AT = "reverse_compute_at"
    COMPUTE_INLINE = "compute_inline"
    REVERSE_COMPUTE_INLINE = "reverse_compute_inline"
    CACHE_READ = "cache_read"
    CACHE_WRITE = "cache_write"
    RFACTOR = "rfactor"
    DECOMPOSE_REDUCTION = "decompose_reduction"
    SKIP_ZEROS = "skip_zeros"
    SKIP_PADDING = "skip_padding"
    SET_SCOPE = "set_scope"
    PREFETCH = "prefetch"
    TRANSFORM_LAYOUT = "transform_layout"
    PAD = "pad"
    STORAGE_ALIGN = "storage_align"
    DOUBLE_BUFFER = "double_buffer"
    LOWER_VIRTUAL_THREAD = "lower_virtual_thread"
    PLACE_BARRIERS = "place_barriers"
    TENSORIZE = "tensorize"
    ANNOTATE = "annotate"
    UNANNOTATE = "unannotate"
    BIND_FACTORS = "bind_factors"
    SAMPLE_PERFECT_TILE = "sample_perfect_tile"
    SAMPLE_CATEGORICAL = "sample_categorical"


SAMPLING = frozenset({Primitive.SAMPLE_PERFECT_TILE, Primitive.SAMPLE_CATEGORICAL})


@dataclass(frozen=True, slots=True)
class UserStep:
    """The name of a user-defined primitive (``user_primitive``), which contains a dot."""

    value: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """A number from a sampling step; denotes ``value`` in the arguments of later steps."""

    name: str
    value: int

    def __int__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return self.name


Result: TypeAlias = LoopRef | BlockRef | Sampled
Argument: TypeAlias = Result | Extent | Memory | IndexMap | int | float | str | tuple["Argument", ...] | None
Options: TypeAlias = tuple[tuple[str, Argument], ...]
_Json: TypeAlias = "int | float | str | list[_Json] | dict[str, _Json] | None"

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One primitive: its arguments (the optional ones by name), and the resulting handles or numbers."""

    primitive: Primitive | UserStep
    arguments: tuple[Argument, ...]
    options: Options = ()
    results: tuple[Result, ...] = ()

    def __str__(self) -> str:
        made = ", ".join(re.sub(r"\W", "_", str(result)) for result in self.results)
        return f"{made} = s.{self.call()}" if made else f"s.{self.call()}"

    def call(self) -> str:
        """The step as a call, without the schedule and the results: ``split("i", (None, 8))``."""
        options = (f"{name}={_text(value)}" for name, value in self.options)
        name, own = self.primitive.value, isinstance(self.primitive, UserStep)
        return f"{'apply' if own else name}({', '.join([*[_text(name)] * own, *map(_text, self.arguments), *options])})"


@dataclass(frozen=True, slots=True)
class Trace:
    """Steps, in order."""

    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def then(self, step: Step) -> "Trace":
        """This trace and one more step."""
        return Trace((*self.steps, step))

    def to_json(self) -> str:
        """The trace as JSON, one line for each step; ``from_json`` reads it back."""
        steps = ",\n  ".join(json.dumps(_step_to_json(step)) for step in self.steps)
        return (
            f'{{"version": {_VERSION}, "steps": [\n  {steps}\n]}}'
            if steps
            else f'{{"version": {_VERSION}, "steps": []}}'
        )

    @staticmethod
    def from_json(text: str) -> "Trace":
        """The trace that ``to_json`` wrote. Raises ``BadInput`` if ``text`` is not a trace of this version."""
        try:
            data: _Json = json.loads(text)
        except ValueError as error:
            raise BadInput(f"a trace must be JSON: {error}") from error
        if not isinstance(data, dict) or data.get("version") != _VERSION:
            raise BadInput(f"this is no trace of version {_VERSION}; record it again with this version of Tilewright")
        return Trace(tuple(_step_from_json(step) for step in _list(data.get("steps"))))


def _text(value: Argument) -> str:
    """``value`` as Python source; handles as their names, which all methods take too."""
    match value:
        case LoopRef() | BlockRef():
            return json.dumps(value.name)
        case IndexMap():
            return json.dumps(str(value))
        case str():
            return json.dumps(value)
        case tuple():
            inside = ", ".join(map(_text, value))
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        case _:
            return str(value)


# JSON ----------------------------------------------------------------------------------------------------------------


def _step_to_json(step: Step) -> dict[str, _Json]:
    options: dict[str, _Json] = {name: _to_json(value) for name, value in step.options}
    return {
        "primitive": step.primitive.value,
        "arguments": [_to_json(value) for value in step.arguments],
        "options": options,
        "results": [_to_json(result) for result in step.results],
    }


def _step_from_json(data: _Json) -> Step:
    fields = _dict(data)
    name = fields.get("primitive")
    try:
        primitive = UserStep(name) if isinstance(name, str) and "." in name else Primitive(name)
    except ValueError as error:
        raise BadInput(f"the trace has a primitive that this version has not: {name}") from error
    arguments = tuple(map(_from_json, _list(fields.get("arguments"))))
    options = tuple((name, _from_json(value)) for name, value in _dict(fields.get("options")).items())
    results: list[Result] = []
    for value in _list(fields.get("results")):
        result = _from_json(value)
        if not isinstance(result, LoopRef | BlockRef | Sampled):
            raise BadInput(f"a result in a trace is a loop, a block or a sampled number, not {value}")
        results.append(result)
    return Step(primitive, arguments, options, tuple(results))


def _to_json(value: Argument) -> _Json:
    """Plain values unchanged; everything else as an object with one key for its kind."""
    match value:
        case LoopRef(name):
            return {"loop": name}
        case BlockRef(name):
            return {"block": name}
        case Sampled(name, number):
            return {"sampled": name, "value": number}
        case Extent(name):
            return {"symbol": name}
        case Memory():
            return _memory_to_json(value)
        case IndexMap():
            return {"index_map": str(value)}
        case tuple():
            return [_to_json(item) for item in value]
        case _:
            return value


def _memory_to_json(memory: Memory) -> dict[str, _Json]:
    if MEMORIES.get(memory.name) == memory:
        return {"scope": memory.name}
    facts: list[_Json] = [memory.sharing.value, memory.alignment]
    return {"scope": memory.name, "capacity": memory.capacity, "facts": facts}


def _from_json(value: _Json) -> Argument:
    if isinstance(value, list):
        return tuple(map(_from_json, value))
    if not isinstance(value, dict):
        return value
    match value:
        case {"loop": str(name)}:
            return LoopRef(name)
        case {"block": str(name)}:
            return BlockRef(name)
        case {"sampled": str(name), "value": int(number)}:
            return Sampled(name, number)
        case {"symbol": str(name)}:
            return Extent(name)
        case {"scope": str(name), "capacity": int() | None as most, "facts": [str(by), int(at), *_]}:
            try:
                return Memory(name, most, Sharing(by), at)
            except ValueError as error:
                raise BadInput(f"the trace has a memory that this version has not: {error}") from error
        case {"scope": str(name)} if name in MEMORIES:
            return MEMORIES[name]
        case {"index_map": str(text)}:
            return IndexMap.parse(text)
        case _:
            raise BadInput(f"a trace can't have the argument {json.dumps(value)}")


def _dict(value: _Json) -> Mapping[str, _Json]:
    if not isinstance(value, dict):
        raise BadInput(f"a trace has an object here, not {json.dumps(value)}")
    return value


def _list(value: _Json) -> Sequence[_Json]:
    if not isinstance(value, list):
        raise BadInput(f"a trace has a list here, not {json.dumps(value)}")
    return value
