"""Two graphs swept from their inputs to their outputs: which values of one are values of the other.

A value that is computed alike in both is one value (``congruence``). Where they begin to differ, two values of one name
are compared by the region that makes them of values which both graphs have (``regions``, ``verdicts``). If they are
equal, they are one value from then on, and what follows from them alike is again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.graph import Graph, Node, Value
from tilewright.ops.shapes import same_extent
from tilewright.superopt.validate.congruence import Congruence
from tilewright.superopt.validate.extent_relations import Sizes
from tilewright.superopt.validate.regions import Region, regions
from tilewright.superopt.validate.verdicts import Method, Verdict, decide

_GROWTH = 8
"""How often a region is made larger before its sides are taken to differ."""
_LARGEST_AFTER_A_FAULT = 24
"""Operators of a region that is still compared if a value in it is known to differ."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A value that both graphs compute, each in its own way. ``operators``: how many make it, of both together."""

    value: str
    operators: int
    method: Method
    sizes: Sizes
    """The extents at which they were compared, by those that they stand for; empty for their own."""
    error_bound: float
    """The most that the probability of a wrong answer can be."""


@dataclass(slots=True)
class Sweep:
    """What is known of ``after``, whose nodes are added in their order."""

    before: Graph
    budget: int
    known: Congruence
    old: Mapping[str, int]
    """The numbers of values of ``before``, by name."""
    numbers: frozenset[int]
    values: Mapping[str, Value]
    """Those of ``before`` that nodes make, by name."""
    new: dict[str, int]
    """The numbers of values of ``after``, by name."""
    shared: set[int]
    """The numbers of values that both graphs have."""
    same: int = 0
    """Values of ``after`` that are computed alike in ``before``."""
    checked: list[Checked] = field(default_factory=list[Checked])
    undecided: dict[str, str] = field(default_factory=dict[str, str])
    """Values that could not be compared, and are taken to be equal; why."""
    causes: dict[str, str] = field(default_factory=dict[str, str])
    """Of values that are not what they were, or follow from such: what is wrong with the first one."""
    verdicts: dict[Region, Verdict] = field(default_factory=dict[Region, Verdict])
    """Of regions that were compared: graphs repeat themselves."""

    @staticmethod
    def of(before: Graph, after: Graph, budget: int) -> "Sweep":
        """All of ``before``, and of ``after`` the inputs and constants."""
        known = Congruence()
        old = known.of_leaves(before)
        for node in before.nodes:
            operands = [None if value is None else old[value.name] for value in node.inputs]
            old.update(zip((v.name for v in node.outputs), known.results(node, operands), strict=True))
        new = known.of_leaves(after)
        values = {value.name: value for node in before.nodes for value in node.outputs}
        numbers = frozenset(old.values())
        return Sweep(before, budget, known, old, numbers, values, new, set(numbers.intersection(new.values())))

    def add(self, node: Node) -> None:
        """The next node of ``after``."""
        operands = [None if value is None else self.new[value.name] for value in node.inputs]
        cause = next((self.causes[name] for name in _names(node) if name in self.causes), None)
        for value, number in zip(node.outputs, self.known.results(node, operands), strict=True):
            found = self.new[value.name] = self._compared(node, value, number, cause)
            if found in self.numbers:
                self.same += found == number
                self.shared.add(found)

    def _compared(self, node: Node, value: Value, number: int, cause: str | None) -> int:
        """The number of ``value``: that of ``before``'s value of its name, if they are equal.

        ``cause``: what is wrong with an operand. Its readers are hardly ever equal again, so little is tried.
        """
        wanted = self.old.get(value.name)
        if wanted == number:
            return number
        comparable = wanted is not None and self._has_type(value)
        if wanted is None or not comparable:
            if cause is not None:
                self.causes[value.name] = cause
            return number
        region, verdict = self._decided(wanted, number, has_cause=cause is not None)
        if verdict.is_equal is False:
            self.causes[value.name] = cause or f"{value.name}, made by `{node}`, differs from what it was"
            return number
        self._note(value, region, verdict)
        return wanted

    def _note(self, value: Value, region: Region, verdict: Verdict) -> None:
        if verdict.method is None:
            self.undecided[value.name] = verdict.reason
        else:
            bound = verdict.error_bound
            self.checked.append(Checked(value.name, len(region.steps), verdict.method, verdict.sizes, bound))

    def _has_type(self, value: Value) -> bool:
        old = self.values.get(value.name)
        return old is not None and same_type(old, value)

    def _decided(self, wanted: int, number: int, *, has_cause: bool) -> tuple[Region, Verdict]:
        """The last region that was compared, and what came out."""
        found: tuple[Region, Verdict] | None = None
        for growth, region in enumerate(regions(self.known, wanted, number, self.shared.__contains__)):
            if has_cause and len(region.steps) > _LARGEST_AFTER_A_FAULT:
                return region, Verdict(False)
            verdict = self.verdicts.get(region) or decide(region, self.budget)
            self.verdicts[region] = verdict
            if found is not None and verdict.is_equal is None:
                return found
            found = region, verdict
            if verdict.is_equal is not False or growth == _GROWTH:
                return found
        assert found is not None, "there is a first region"
        return found


def same_type(a: Value, b: Value) -> bool:
    """Whether dtypes and shapes are provably equal."""
    return a.dtype == b.dtype and len(a.shape) == len(b.shape) and all(map(same_extent, a.shape, b.shape))


def _names(node: Node) -> tuple[str, ...]:
    return tuple("" if value is None else value.name for value in node.inputs)
