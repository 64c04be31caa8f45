"""``StagedExecutable``: a model in stages: native parts, and between them what decides the shapes of what follows.

A stage reads arrays by name and makes others; a ``Plan`` says how. The executables of parts and bodies run native code,
or are staged themselves. Arrays pass from one stage to the next without a copy. An extent that a part needs is handed
on as the shape of an array without elements, ``[extent, 0]``.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.dtypes import STORED
from tilewright.base.errors import BadFeed, Timeout, Unsupported
from tilewright.base.names import readable
from tilewright.runtime.executable import Binding, Executable
from tilewright.runtime.feeds import new_output
from tilewright.runtime.manifest import MAX_NUMBER, Manifest


class Kind(Enum):
    """What a stage is."""

    PART = "part"
    """Native code, or a model in stages."""
    SIZES = "sizes"
    """The elements of an array, as extents."""
    WITNESS = "witness"
    """One extent of an array."""
    VIEW = "view"
    """The bytes of an array, as elements of another type."""
    BRANCH = "if"
    """One of two bodies, by the first array that it reads."""
    LOOP = "loop"
    """A body, again and again."""
    CALL = "call"
    """A Python function; in no artifact."""


_BODIES: Mapping[Kind, int] = {Kind.PART: 1, Kind.BRANCH: 2, Kind.LOOP: 1}


@dataclass(frozen=True, slots=True)
class Plan:
    """One stage. ``number``: of a witness, the axis; of a loop, the number of states; of a view, the place of its type
    in ``dtypes.STORED``."""

    kind: Kind
    name: str
    """For people: unique in its model."""
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    number: int = 0

    @property
    def bodies(self) -> int:
        """The number of executables that it runs."""
        return _BODIES.get(self.kind, 0)


@dataclass(frozen=True, slots=True)
class Stage:
    """A plan, and the executables that it runs."""

    plan: Plan
    executables: Sequence[Executable]

    def run(self, arrays: Mapping[str, Array], threads: int | None, end: float | None) -> Sequence[Array]:
        """What it makes. ``end``: when it must be done, by ``time.perf_counter``. Raises as ``Executable.run``."""
        reads = [arrays[name] for name in self.plan.reads]
        match self.plan.kind:
            case Kind.PART:
                return _call(self.executables[0], arrays, threads, end)
            case Kind.SIZES:
                return _sizes(reads[0], self.plan.name)
            case Kind.WITNESS:
                return [_witness(reads[0].shape[self.plan.number])]
            case Kind.VIEW:
                return [reads[0].view(STORED[self.plan.number].numpy)]
            case Kind.BRANCH:
                then, otherwise = self.executables
                return _call(then if _is_true(reads[0], self.plan.name) else otherwise, arrays, threads, end)
            case Kind.LOOP:
                return _Loop(self.plan, self.executables[0]).run(arrays, threads, end)
            case Kind.CALL:
                raise Unsupported(f"{self.plan.name} is a call, which only the compiler knows")


def _call(
    executable: Executable, arrays: Mapping[str, Array], threads: int | None, end: float | None
) -> Sequence[Array]:
    feeds = {spec.name: arrays[spec.name] for spec in executable.manifest.inputs}
    return executable.run(feeds, threads=threads, timeout=_left(end))


def _left(end: float | None) -> float | None:
    """Seconds until ``end``; not less than a moment, as the run is then stopped."""
    return None if end is None else max(end - time.perf_counter(), 1e-6)


def _sizes(numbers: Array, name: str) -> list[Array]:
    """A witness of each number. Raises ``BadFeed`` if one is no size."""
    found = [int(number) for number in numbers.flat]
    wrong = [number for number in found if not 0 <= number <= MAX_NUMBER]
    if wrong:
        raise BadFeed(f"{name}: a size is computed as {wrong[0]} for these inputs; sizes are not negative")
    return [_witness(number) for number in found]


def _witness(extent: int) -> Array:
    return np.empty((extent, 0), np.bool_)


def _is_true(condition: Array, name: str) -> bool:
    if condition.size != 1:
        raise BadFeed(f"{name}: the condition has {condition.size} elements for these inputs, and must have one")
    return bool(condition.item())


@dataclass(frozen=True, slots=True)
class _Loop:
    """One run of a loop."""

    plan: Plan
    body: Executable

    def run(self, arrays: Mapping[str, Array], threads: int | None, end: float | None) -> list[Array]:
        """The last states, and what the steps made, stacked; only as many as are wanted."""
        most, first, *states = (arrays[name] for name in self.plan.reads[: 2 + self.plan.number])
        goes_on = _is_true(first, self.plan.name)
        names = [spec.name for spec in self.body.manifest.inputs]
        around = {name: arrays[name] for name in names[2 + len(states) :]}
        steps: list[Sequence[Array]] = []
        limit = self._limit(most)
        while goes_on and len(steps) < limit:
            if end is not None and time.perf_counter() >= end:
                raise Timeout(f"{self.plan.name}: the run took longer than its timeout")
            feeds = self._feeds(names, len(steps), states, around)
            condition, *results = self.body.run(feeds, threads=threads, timeout=_left(end))
            states, made = results[: len(states)], results[len(states) :]
            steps.append(made)
            goes_on = _is_true(condition, self.plan.name)
        if not steps:
            empty = self._none(self._feeds(names, 0, states, around), len(states))
            return [*states, *empty][: len(self.plan.makes)]
        return [*states, *(self._stacked(parts) for parts in zip(*steps, strict=True))][: len(self.plan.makes)]

    def _limit(self, most: Array) -> int:
        if most.size != 1:
            raise BadFeed(f"{self.plan.name}: the number of steps is {most.size} numbers, and must be one")
        return int(most.item())

    def _feeds(
        self, names: Sequence[str], step: int, states: Sequence[Array], around: Mapping[str, Array]
    ) -> dict[str, object]:
        own = (np.array(step, np.int64), np.array(True), *states)
        return {**dict(zip(names[: len(own)], own, strict=True)), **around}

    def _none(self, feeds: Mapping[str, object], states: int) -> list[Array]:
        """What no steps make: arrays without elements."""
        specs = self.body.manifest.outputs[1 + states :]
        shapes = self.body.output_shapes(feeds)[1 + states :] if specs else []
        return [new_output((0, *shape), spec.dtype.numpy)[0] for spec, shape in zip(specs, shapes, strict=True)]

    def _stacked(self, parts: Sequence[Array]) -> Array:
        if any(part.shape != parts[0].shape for part in parts):
            shapes = " and ".join(map(str, sorted({part.shape for part in parts})[:2]))
            raise BadFeed(
                f"{self.plan.name}: steps make arrays of shapes {shapes} for these inputs; they must be equal"
            )
        stack, _ = new_output((len(parts), *parts[0].shape), parts[0].dtype)
        for at, part in enumerate(parts):
            stack[at] = part
        return stack


class StagedExecutable(Executable):
    """Runs stages in order. ``manifest``: its constants are what stages read, and its ``calls`` the stages' names."""

    def __init__(
        self, manifest: Manifest, constants: Sequence[Array], stages: Sequence[Stage], threads: int | None
    ) -> None:
        super().__init__(replace(manifest, calls=tuple(stage.plan.name for stage in stages)), constants, threads)
        self.stages = tuple(stages)
        self.seconds = [0.0] * len(stages)
        """The time of all runs so far, of each stage."""
        self._dead = _dead_after(self.stages, [spec.name for spec in manifest.outputs])

    @property
    def kept_bytes(self) -> int:
        """Bytes of workspace and of large results kept for later calls, of all parts."""
        return sum(each.kept_bytes for stage in self.stages for each in stage.executables)

    def output_shapes(self, feeds: Mapping[str, object]) -> list[tuple[int, ...]]:
        """As the base; extents that are known only after a run are 0."""
        found = {**dict.fromkeys(self.manifest.late, 0), **self._extents(self._accept(feeds))}
        return [spec.concrete(found) for spec in self.manifest.outputs]

    def bind(
        self, feeds: Mapping[str, object], out: Mapping[str, Array] | None = None, *, threads: int | None = None
    ) -> Binding:
        """As the base. Raises ``Unsupported`` if the shapes of outputs are known only after a run."""
        if self.manifest.late:
            names = ", ".join(readable(name) for name in self.manifest.late)
            raise Unsupported(f"outputs can't be bound: the extents {names} are known only after a run; use run")
        return super().bind(feeds, out, threads=threads)

    def _run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, Array],
        threads: int | None,
        timeout: float | None,
        runs: int,
        /,
    ) -> tuple[list[Array], list[float]]:
        """Python functions are not stopped by the timeout, which is checked before each stage."""
        inputs = self._accept(feeds)
        self._extents(inputs)
        given = {spec.name: array for spec, array in zip(self.manifest.inputs, inputs, strict=True)}
        kept = {spec.name: array for spec, array in zip(self.manifest.constants, self.constants, strict=True)}
        passed = [0.0] * len(self.stages)
        arrays: dict[str, Array] = {}
        for _ in range(runs):
            arrays = {**kept, **given}
            self._once(arrays, threads or self.threads, timeout, passed)
        return self._results(arrays, out, inputs), passed

    def _once(self, arrays: dict[str, Array], threads: int, timeout: float | None, passed: list[float]) -> None:
        """Run all stages: adds to ``arrays`` what they make, and to ``passed`` the time of each."""
        end = None if timeout is None else time.perf_counter() + timeout
        for at, stage in enumerate(self.stages):
            begin = time.perf_counter()
            if end is not None and begin >= end:
                raise Timeout(f"{stage.plan.name} was not begun: the run took longer than its timeout")
            arrays.update(zip(stage.plan.makes, stage.run(arrays, threads, end), strict=True))
            seconds = time.perf_counter() - begin
            passed[at] += seconds
            self.seconds[at] += seconds
            for name in self._dead[at]:
                del arrays[name]

    def _results(self, arrays: Mapping[str, Array], out: Mapping[str, Array], inputs: Sequence[Array]) -> list[Array]:
        made = [arrays[spec.name] for spec in self.manifest.outputs]
        others = (*inputs, *self.constants)
        if not out:
            return [array.copy() if _shares(array, others) else array for array in made]
        results = self._outputs(out, inputs, [(array.shape, array.dtype) for array in made])
        for array, result in zip(made, results, strict=True):
            result[...] = array
        return results


def _shares(array: Array, others: Sequence[Array]) -> bool:
    return any(np.may_share_memory(array, other) for other in others)


def _dead_after(stages: Sequence[Stage], leaving: Sequence[str]) -> list[list[str]]:
    """Of each stage, the arrays that no later one needs."""
    last: dict[str, int] = {}
    for at, stage in enumerate(stages):
        last.update(dict.fromkeys(_needed(stage), at))
    kept = set(leaving)
    return [[name for name, end in last.items() if end == at and name not in kept] for at in range(len(stages))]


def _needed(stage: Stage) -> Iterator[str]:
    """What a stage reads and makes."""
    yield from stage.plan.reads
    yield from stage.plan.makes
