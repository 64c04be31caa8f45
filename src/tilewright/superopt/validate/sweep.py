"""Sweeps two graphs from inputs to outputs, and finds the values of one that equal values of the other.

Values with equal definitions are equal (``congruence``). Where definitions differ, values of the same name are compared
by the region that computes them from shared values (``regions``, ``verdicts``). If they are equal, they get the same
number, so that values computed from them are congruent again.
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
"""How often a region is enlarged before its sides count as different."""
_LARGEST_AFTER_A_FAULT = 24
"""Maximum operators of a region that is compared although one of its operands differs."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A value with different definitions in both graphs. ``operators``: their number in the compared region."""

    value: str
    operators: int
    method: Method
    sizes: Sizes
    """The extents of the comparison, by the original extents; empty if they are the same."""
    error_bound: float
    """An upper bound of the probability of a wrong result."""


@dataclass(slots=True)
class Sweep:
    """The state of a sweep; nodes of ``after`` are added in order."""

    before: Graph
    budget: int
    known: Congruence
    old: Mapping[str, int]
    """The numbers of values of ``before``, by name."""
    numbers: frozenset[int]
    values: Mapping[str, Value]
    """The results of nodes of ``before``, by name."""
    new: dict[str, int]
    """The numbers of values of ``after``, by name."""
    shared: set[int]
    """The numbers of values that both graphs have."""
    same: int = 0
    """The number of values of ``after`` with an equal definition in ``before``."""
    checked: list[Checked] = field(default_factory=list[Checked])
    undecided: dict[str, str] = field(default_factory=dict[str, str])
    """Values that could not be compared, and count as equal, with the reasons."""
    causes: dict[str, str] = field(default_factory=dict[str, str])
    """For values that differ, or depend on such values: the reason for the first one."""
    verdicts: dict[Region, Verdict] = field(default_factory=dict[Region, Verdict])
    """Results of compared regions, as graphs repeat them."""

    @staticmethod
    def of(before: Graph, after: Graph, budget: int) -> "Sweep":
        """The state with all of ``before``, and with the inputs and constants of ``after``."""
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
        """The number of ``value``: that of the value of ``before`` with the same name, if they are equal.

        ``cause``: the reason if an operand differs. Then ``value`` is rarely equal: only small regions are compared.
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
        """The last compared region, and its verdict."""
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
