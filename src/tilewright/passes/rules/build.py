"""Builds the nodes of a rule's targets.

Equal terms become one node. A replacement has the name of the replaced value; other names say where they are read
(``y.weight``: the parameter ``weight`` of the operator that makes ``y``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from tilewright.base.dtypes import DType, from_numpy
from tilewright.base.errors import BadProgram
from tilewright.base.names import Names
from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops import Operator
from tilewright.ops.operator import require
from tilewright.ops.shapes import same_shape
from tilewright.passes.rules.binding import Binding
from tilewright.passes.rules.terms import Apply, Number, Rule, Term, Variable, subterms
from tilewright.passes.rules.weights import folded, is_weight
from tilewright.symbolic.expr import const

_IDENTITY = require("Identity")


@dataclass(frozen=True, slots=True)
class Part:
    """Neighbours among the operands of a longer concatenation ``whole``; the operands before and after them."""

    whole: Node
    before: tuple[Value, ...]
    after: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """The match of a rule's sources in a graph. ``part``: what is matched is no value, but a part of one."""

    rule: Rule
    binding: Binding
    nodes: tuple[Node, ...]
    """The nodes that compute the sources, in the order of the graph."""
    part: Part | None = None

    @property
    def matched(self) -> tuple[Value, ...]:
        """The values of the sources."""
        return tuple(self.binding.values[source] for source in self.rule.sources)

    @property
    def replaced(self) -> tuple[Value, ...]:
        """The values of the graph that are computed in another way."""
        return self.matched if self.part is None else self.part.whole.outputs

    @property
    def source(self) -> str:
        """The matched nodes' places in the user's model."""
        return ", ".join(dict.fromkeys(node.source for node in self.nodes if node.source))


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of a match."""

    match: Match
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array]
    renamed: Mapping[str, Value]
    """Values replaced by other existing values, rather than by nodes of ``nodes``."""


def replacement(
    match: Match, names: Names, leaving: frozenset[str], arrays: Mapping[str, Array] | None = None
) -> Replacement | None:
    """The nodes of the targets; None if they are not well-typed, or have other types than the sources.

    ``leaving``: names of the graph's outputs, which nodes must produce. ``arrays``: constants by name; if given, terms
    over weights only are folded, and the result is None if that is impossible.
    """
    building = _Building(match, names, leaving, arrays)
    try:
        return building.built()
    except BadProgram:
        return None


class _OtherType(BadProgram):
    """A target has another type than its source."""


@dataclass(slots=True)
class _Building:
    """Values of terms so far, and the nodes added for them."""

    match: Match
    names: Names
    leaving: frozenset[str]
    arrays: Mapping[str, Array] | None
    values: dict[Term, Value] = field(init=False)
    roots: dict[Term, Value] = field(default_factory=dict[Term, Value])
    nodes: list[Node] = field(default_factory=list[Node])
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    renamed: dict[str, Value] = field(default_factory=dict[str, Value])

    def __post_init__(self) -> None:
        sources = set(self.match.rule.sources)
        self.values = {term: value for term, value in self.match.binding.values.items() if term not in sources}

    def built(self) -> Replacement:
        """Raises ``BadProgram``."""
        targets = list(zip(self.match.rule.targets, self._olds(), strict=True))
        for target, old in targets:
            if isinstance(target, Apply) and target not in self.values and not self._is_folded(target):
                self.roots.setdefault(target, old)
        for target, old in targets:
            made = self._value(target, old.name, old.dtype)
            if made.dtype != old.dtype or not same_shape(made.shape, old.shape):
                raise _OtherType(f"{self.match.rule.name}: {made!r} can't replace {old!r}")
            if self.match.part is not None:
                self._join(self.match.part, made)
            elif made.name != old.name:
                self._rename(old, made)
        return Replacement(self.match, tuple(self.nodes), self.constants, self.renamed)

    def _olds(self) -> Sequence[Value]:
        """The values of the sources; a part of one has no name in the graph so far."""
        if self.match.part is None:
            return self.match.matched
        return [replace(value, name=self.names.fresh(value.name)) for value in self.match.matched]

    def _join(self, part: Part, made: Value) -> None:
        whole = part.whole
        operands, names = [*part.before, made, *part.after], [value.name for value in whole.outputs]
        node = make_node(whole.op, operands, names, dict(whole.attributes), self.match.source)
        self.nodes.append(replace(node, outputs=whole.outputs))

    def _rename(self, old: Value, made: Value) -> None:
        if old.name in self.leaving:
            self.nodes.append(make_node(_IDENTITY, [made], [old.name], {}, self.match.source))
        else:
            self.renamed[old.name] = made

    def _value(self, term: Term, name: str, dtype: DType) -> Value:
        """The value of ``term``, called ``name`` if that is free; ``dtype``: that of a number alone."""
        found = self.values.get(term)
        if found is None:
            assert not isinstance(term, Variable), "variables are bound"
            if isinstance(term, Number):  # with another dtype, it is another constant
                return self._constant(np.asarray(term.value, dtype.numpy), name)
            found = self._folded(term, name) if self._is_folded(term) else self._apply(term, name, dtype)
            self.values[term] = found
        return found

    def _is_folded(self, term: Apply) -> bool:
        return self.arrays is not None and is_weight(term)

    def _folded(self, term: Apply, name: str) -> Value:
        assert self.arrays is not None, "somebody asked for it"
        return self._constant(folded(term, self.match.binding, self.arrays), name)

    def _constant(self, array: Array, name: str) -> Value:
        value = Value(self.names.fresh(name), from_numpy(array.dtype), tuple(map(const, array.shape)))
        self.constants[value] = array
        return value

    def _apply(self, term: Apply, name: str, dtype: DType) -> Value:
        root = self.roots[term].name if term in self.roots else name
        operands = self._operands(term, root, dtype)
        options = {name: self.match.binding.attribute(value) for name, value in term.attributes}
        if term.rest is not None:
            options = {**dict(self.match.binding.rests[term.rest]), **options}
        siblings = _siblings(term, self.match.rule.targets)
        names = [self.roots[s].name if s in self.roots else self.names.fresh(root) for s in siblings]
        node = make_node(term.op, operands, names, options, self.match.source)
        node = replace(node, outputs=tuple(map(self._as_before, siblings, node.outputs)))
        self.nodes.append(node)
        self.values.update(zip(siblings, node.outputs, strict=True))
        return self.values[term]

    def _as_before(self, term: Apply, made: Value) -> Value:
        """``made`` with its extents written as those of the replaced value."""
        old = self.roots.get(term)
        return old if old is not None and old.dtype == made.dtype and same_shape(old.shape, made.shape) else made

    def _operands(self, term: Apply, root: str, dtype: DType) -> list[Value]:
        """Numbers last, as they get the dtype of the others."""
        names = [f"{root}.{parameter}" for parameter in _parameters(term.op, len(term.operands))]
        typed = {
            position: self._value(operand, names[position], dtype)
            for position, operand in enumerate(term.operands)
            if not isinstance(operand, Number)
        }
        known = [value.dtype for value in typed.values()]
        own = dtype if not known or dtype in known else known[-1]
        return [
            typed[position] if position in typed else self._value(operand, names[position], own)
            for position, operand in enumerate(term.operands)
        ]


@lru_cache(maxsize=4096)
def _siblings(term: Apply, targets: tuple[Term, ...]) -> tuple[Apply, ...]:
    """All results of the node of ``term``, up to the last one used in ``targets``."""
    alone = replace(term, output=0)
    used = [t.output for t in _applications(targets) if t.op == term.op and replace(t, output=0) == alone]
    return tuple(replace(term, output=output) for output in range(max(used) + 1))


def _applications(terms: Sequence[Term]) -> Iterator[Apply]:
    return (term for term in subterms(terms) if isinstance(term, Apply))


@lru_cache(maxsize=512)
def _parameters(op: Operator, count: int) -> tuple[str, ...]:
    """What ``op`` calls its first ``count`` operands; the last of its parameters may stand for several."""
    listed = list(op.parameters)
    return tuple(listed[min(position, len(listed) - 1)] for position in range(count))
