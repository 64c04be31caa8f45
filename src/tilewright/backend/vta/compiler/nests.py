"""Nests: a block with the loops around it that one instruction may run, and the boxes of their iterations.

Where conditions bind one loop of an instruction at a time, they cut off its ends: what is left is a box. A condition on
two of them (``2 * y + dy >= 1``) is decided by running one outside of instructions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.backend.vta.compiler.forms import Env, Form, Steps

Extents: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Span:
    """Iterations ``start`` to ``stop - 1`` of a loop; those where all is *valid* are ``first`` to ``last - 1``."""

    start: int
    stop: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """Iterations."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Box:
    """Iterations of an instruction's loops, for an environment."""

    env: Env
    spans: Mapping[str, Span]
    """By loop, outermost first."""
    is_valid: bool = True
    """Whether any iteration is valid."""

    def start(self, form: Form) -> tuple[int, Steps]:
        """The value at the first iterations, and the steps of loops that have more than one."""
        base, steps = form.at(self.env)
        base += sum(step * self.spans[name].start for name, step in steps.items())
        return base, {name: steps[name] for name, span in self.spans.items() if span.count > 1 and name in steps}


def boxes(loops: Extents, inside: Sequence[Form], valid: Sequence[Form], env: Env) -> Iterator[Box]:
    """The iterations where all forms of ``inside`` are at least 0, with those where ``valid`` ones are, too."""
    held = [(form.at(env), is_inside) for forms, is_inside in ((inside, True), (valid, False)) for form in forms]
    crowded = next((steps for (_, steps), _ in held if len(steps) > 1), None)
    if crowded is not None:
        chosen = min(crowded, key=lambda name: loops[name])
        rest = {name: extent for name, extent in loops.items() if name != chosen}
        for value in range(loops[chosen]):
            yield from boxes(rest, inside, valid, {**env, chosen: value})
        return
    starts, stops = dict.fromkeys(loops, 0), dict(loops)
    firsts, lasts, is_valid = dict(starts), dict(stops), True
    for (base, steps), is_inside in held:
        if not steps:
            if base < 0 and is_inside:
                return
            is_valid = is_valid and base >= 0
        for name, step in steps.items():
            low, high = (starts, stops) if is_inside else (firsts, lasts)
            if step > 0:
                low[name] = max(low[name], -(base // step))
            else:
                high[name] = min(high[name], base // -step + 1)
    spans = {name: _span(starts[name], stops[name], firsts[name], lasts[name]) for name in loops}
    if all(span.count > 0 for span in spans.values()):
        yield Box(env, spans, is_valid and all(span.first < span.last for span in spans.values()))


def _span(start: int, stop: int, first: int, last: int) -> Span:
    return Span(start, stop, max(start, first), min(stop, last))
