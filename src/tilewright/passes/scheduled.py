"""Kernels with their schedules: what the stages of a compilation hand on, and what is shown of it."""

import re
from dataclasses import dataclass, replace

from tilewright.base.names import RESERVED, Names, identifier, readable
from tilewright.loops.program import Program
from tilewright.passes.fuse import Group
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Expr

_WORD = re.compile(r"\b[A-Za-z_]\w*", re.ASCII)
_INDEX_MAP = re.compile(r'"[^"]*->[^"]*"')
"""Matches an index map in a trace; its variables are local."""


@dataclass(frozen=True, slots=True)
class ScheduledKernel:
    """A scheduled kernel, with its naive program, its trace, and its nodes of the user's model."""

    naive: Program
    schedule: Schedule
    groups: tuple[Group, ...]
    constants: tuple[str, ...]
    """The parameters that are constants of the model."""
    measured_us: float | None = None
    """The time of this schedule when it was tuned; None for the analytic choice."""
    simulated: str = ""
    """Whose thousands of cycles that time is, if they were simulated."""
    variants: "tuple[Variant, ...]" = ()
    """What runs instead, of the same parameters: the first whose condition holds."""
    calls: int = 0
    """How often a run calls it."""

    def __str__(self) -> str:
        return self._in_model_names(f"{self.program}\n{self.schedule.trace}")

    def of(self, group: Group, times: int) -> "ScheduledKernel":
        """The kernel with one more group that it computes, so many times in a run."""
        variants = tuple(replace(other, kernel=other.kernel.of(group, times)) for other in self.variants)
        return replace(self, groups=(*self.groups, group), variants=variants, calls=self.calls + times)

    @property
    def program(self) -> Program:
        return self.schedule.program

    @property
    def variant_programs(self) -> tuple[tuple[Program, Expr], ...]:
        """The programs of ``variants``, and where they run."""
        return tuple((other.program, other.where) for other in self.variants)

    def naive_text(self) -> str:
        """The unscheduled program as text."""
        return self._in_model_names(str(self.naive))

    def _in_model_names(self, text: str) -> str:
        """``text`` with the model's names for parameters and results, where all calls have the same.

        Names become identifiers that differ from those of the kernel, so that the program can be parsed.
        """
        own = _INDEX_MAP.sub("", f"{self.naive} {self.program} {self.schedule.trace}")
        names = Names({*RESERVED, *_WORD.findall(own)})
        calls = zip(*((*group.inputs, *group.outputs) for group in self.groups), strict=True)
        known = {
            buffer.name: names.fresh(identifier(readable(values[0].name)))
            for buffer, values in zip(self.naive.params, calls, strict=True)
            if len(set(values)) == 1
        }
        return _WORD.sub(lambda word: known.get(word[0], word[0]), text)


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel that runs in place of another one where its run-time extents, over which ``where`` is, are small."""

    kernel: ScheduledKernel
    where: Expr

    @property
    def program(self) -> Program:
        return self.kernel.program
