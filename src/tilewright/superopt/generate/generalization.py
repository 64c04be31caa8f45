"""Generalizes two expressions that are equal at some extents to a rule over symbols, if possible.

Extents become symbols, as distinct as operators allow; bounds of slices become sums of symbols. Common subtrees become
variables. The resulting rule is evaluated at other, unrelated extents, over the field and in float64: this rejects
rules that hold only for the shapes of their discovery, or only for the random functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.base.arrays import Array
from tilewright.base.errors import BadProgram, OutOfBounds, Unsupported
from tilewright.passes.rules.terms import Evidence, Proof, Rule, Term, Variable
from tilewright.superopt.evaluate.evaluator import Bindings, Evaluator
from tilewright.superopt.generate.extents import Extent, Mismatch, Part, Shape, Solver, as_expr, size_of, sizes
from tilewright.superopt.generate.operations import Family
from tilewright.symbolic.expr import Symbol, Var
from tilewright.symbolic.traversal import vars_in
from tilewright.tensor.domains import Real

Tree: TypeAlias = int | tuple[int, tuple["Tree", ...]]
"""An input by number (those above the family's stand for common subtrees), or an operation and its operands."""

_VARIABLES = "xyzwvut"
_SYMBOLS = "abcdefghijklmnopqrs"
_POOLS: tuple[tuple[int, ...], ...] = ((3, 2, 5, 4), (2, 5, 3, 1, 4))
"""Extents assigned to symbols, cyclically."""
_POOL_OF_FLOATS = (4, 3, 2, 5)
_SHAPES = 2 + len(_POOLS)
"""The number of shapes at which a rule is evaluated, including that of its discovery."""
_MOST_SYMBOLS = 64
_LEADING = "s"
"""The name of arbitrary leading dimensions, and the extents with which they are tested."""
_LEADING_EXTENTS = (2, 3)
_SAMPLES = 2
_KEPT = 1 << 14
"""Cached values of terms, of a few kilobytes each."""


def matches(pattern: Sequence[Tree], trees: Sequence[Tree], family: Family) -> dict[int, Tree] | None:
    """The substitution of inputs with which ``pattern`` equals ``trees``; constants match themselves only."""
    bound: dict[int, Tree] = {}

    def match(one: Tree, tree: Tree) -> bool:
        if isinstance(one, int):
            if one < len(family.inputs) and family.inputs[one].constant is not None:
                return one == tree
            return bound.setdefault(one, tree) == tree
        if isinstance(tree, int) or one[0] != tree[0]:
            return False
        return all(map(match, one[1], tree[1]))

    return bound if all(map(match, pattern, trees)) else None


def inputs_in(trees: Sequence[Tree], family: Family) -> tuple[int, int]:
    """The number of variables, and the number of occurrences of constants."""
    found = [part for tree in trees for part in parts_of(tree) if isinstance(part, int)]
    variables = {n for n in found if n >= len(family.inputs) or family.inputs[n].constant is None}
    return len(variables), sum(n not in variables for n in found)


def operations_in(tree: Tree) -> int:
    """The number of operations of a tree, with repetitions."""
    return 0 if isinstance(tree, int) else 1 + sum(map(operations_in, tree[1]))


def parts_of(tree: Tree) -> Iterator[Tree]:
    """The tree and all its subtrees, outermost first."""
    yield tree
    if not isinstance(tree, int):
        for operand in tree[1]:
            yield from parts_of(operand)


def renamed(trees: Sequence[Tree], family: Family) -> tuple[Tree, ...]:
    """The trees with variables of each kind numbered by occurrence: equal for rules that differ in names only."""
    names: dict[int, int] = {}
    counts: dict[int, int] = {}

    def name(number: int) -> int:
        if number >= len(family.inputs) or family.inputs[number].constant is not None:
            return number
        if number not in names:
            first = family.first_of_kind[number]
            names[number] = first + counts.get(first, 0)
            counts[first] = counts.get(first, 0) + 1
        return names[number]

    def visit(tree: Tree) -> Tree:
        return name(tree) if isinstance(tree, int) else (tree[0], tuple(map(visit, tree[1])))

    return tuple(map(visit, trees))


@dataclass(frozen=True, slots=True)
class Abstraction:
    """Trees in which inputs from ``start`` on stand for the trees ``hidden``."""

    trees: tuple[Tree, ...]
    hidden: tuple[Tree, ...]


def abstracted(trees: Sequence[Tree], family: Family) -> Abstraction:
    """``trees`` with inputs for subtrees common to both sides; the first half are sources, the others targets."""
    half = len(trees) // 2
    left = {part for tree in trees[:half] for part in parts_of(tree) if not isinstance(part, int)}
    right = {part for tree in trees[half:] for part in parts_of(tree) if not isinstance(part, int)}
    common = left & right - set(trees)
    hidden: list[Tree] = []

    def visit(tree: Tree) -> Tree:
        if isinstance(tree, int):
            return tree
        if tree in common:
            if tree not in hidden:
                hidden.append(tree)
            return len(family.inputs) + hidden.index(tree)
        return tree[0], tuple(map(visit, tree[1]))

    return Abstraction(tuple(map(visit, trees)), tuple(hidden))


@dataclass(frozen=True, slots=True)
class General:
    """A rule and its trees. ``pinned``: extents of inputs that are numbers, by input and dimension."""

    rule: Rule
    trees: tuple[Tree, ...]
    pinned: Mapping[int, Mapping[int, int]]


class Generalizer:
    """Converts trees of a family to rules, and tests these."""

    def __init__(self, family: Family, seed: int) -> None:
        self._family = family
        self._trials = [_Trial(pool, Evaluator(family.domain(seed + at))) for at, pool in enumerate(_POOLS)]
        self._floats = _Trial(_POOL_OF_FLOATS, Evaluator(Real()))

    def rule(self, abstraction: Abstraction) -> General | None:
        """The rule from the first half of the trees to the second half; None if it is false."""
        made = self._symbolic(abstraction)
        return made if made is not None and all(trial.holds(made.rule) for trial in self._trials) else None

    def holds_of_floats(self, rule: Rule) -> bool:
        """Whether the rule holds in float64, for the functions that are random over the field."""
        return self._floats.holds(rule)

    def sizes(self, tree: Tree, hidden: Sequence[Tree]) -> tuple[int, ...]:
        """The shape of the value of a tree, at the extents of discovery."""
        return sizes(_Typing(self._family, hidden).node(tree).shape)

    def _symbolic(self, abstraction: Abstraction) -> General | None:
        typed = _Typing(self._family, abstraction.hidden)
        half = len(abstraction.trees) // 2
        try:
            nodes = [typed.node(tree) for tree in abstraction.trees]
            for left, right in zip(nodes[:half], nodes[half:], strict=True):
                typed.solver.unify_shapes(left.shape, right.shape)
            terms, variables = typed.terms(nodes)
        except Mismatch:
            return None
        proof = Proof(Evidence.TESTED, (), _SHAPES)
        rule = Rule("rule", variables, tuple(terms[:half]), tuple(terms[half:]), (), proof)
        if typed.is_elementwise(abstraction.trees):
            rule = _of_any_rank(rule)
        known = vars_in(extent for v in variables for extent in v.shape)
        determined = known.issuperset(rule.symbols)
        if not determined or rule.sources == rule.targets:
            return None
        return General(rule, abstraction.trees, typed.pinned())


class _Trial:
    """Evaluates rules at extents that depend on the names of symbols only; values of terms are cached for all rules."""

    def __init__(self, pool: Sequence[int], evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._extents: dict[Var, int] = {Symbol(_symbol(at)): pool[at % len(pool)] for at in range(_MOST_SYMBOLS)}
        self._values: dict[Term, Array] = {}

    def holds(self, rule: Rule) -> bool:
        """Whether both sides are well-typed and equal."""
        if len(self._values) > _KEPT:
            self._values.clear()
        bindings = Bindings({v.name: self._random(v) for v in rule.variables}, self._extents)
        try:
            left, right = (
                [self._evaluator.term(term, bindings, self._values) for term in side]
                for side in (rule.sources, rule.targets)
            )
        except (BadProgram, Unsupported, OutOfBounds):
            return False
        agree = self._evaluator.domain.agree
        return all(a.shape[:-1] == b.shape[:-1] and agree(a, b) for a, b in zip(left, right, strict=True))

    def _random(self, variable: Variable) -> Array:
        if variable not in self._values:
            bindings = Bindings({}, self._extents)
            shape = (*(_LEADING_EXTENTS if variable.leading else ()), *map(bindings.integer, variable.shape))
            seed = _VARIABLES.index(variable.name)
            self._values[variable] = self._evaluator.domain.random((*shape, _SAMPLES), seed)
        return self._values[variable]


def _of_any_rank(rule: Rule) -> Rule:
    """An elementwise rule whose variables have one shape, generalized to any shape."""
    return rule.with_variables(lambda v: Variable(v.name, (), _LEADING) if v.shape else v)


@dataclass(frozen=True, slots=True)
class _Node:
    """A tree with the shape of its value. ``tree``: for an input, its number."""

    tree: Tree
    shape: Shape
    operands: tuple["_Node", ...] = ()


@dataclass(slots=True)
class _Typing:
    """The most general shapes of some trees together."""

    family: Family
    hidden: Sequence[Tree]
    solver: Solver = field(default_factory=Solver)
    _inputs: dict[int, _Node] = field(default_factory=dict[int, _Node])

    def node(self, tree: Tree) -> _Node:
        """Raises ``Mismatch``."""
        if isinstance(tree, int):
            return self._input(tree)
        operation, operands = tree
        nodes = tuple(map(self.node, operands))
        shape = self.family.operations[operation].typing(self.solver, [node.shape for node in nodes])
        return _Node(tree, shape, nodes)

    def _input(self, number: int) -> _Node:
        extents = self.family.extents[0]
        if number >= len(self.family.inputs):
            if number not in self._inputs:
                shape = self._freed(self.hidden[number - len(self.family.inputs)])
                self._inputs[number] = _Node(number, shape)
            return self._inputs[number]
        made = self.family.inputs[number]
        if made.constant is not None:  # each may have a shape of its own
            return _Node(number, made.typed(self.solver, extents))
        if number not in self._inputs:
            self._inputs[number] = _Node(number, made.typed(self.solver, extents))
        return self._inputs[number]

    def _freed(self, tree: Tree) -> Shape:
        """The shape of a hidden subtree with fresh symbols; numbers are kept."""
        alone = _Typing(self.family, self.hidden)
        shape = alone.solver.shape(alone.node(tree).shape)
        return tuple(self.solver.fresh(size_of(extent)) for extent in shape)

    def pinned(self) -> dict[int, dict[int, int]]:
        """The extents of inputs that are numbers, by input and dimension."""
        shapes = {number: self.solver.shape(node.shape) for number, node in self._inputs.items()}
        return {
            number: {at: size_of(e) for at, e in enumerate(shape) if all(part.name is None for part in e)}
            for number, shape in shapes.items()
        }

    def is_elementwise(self, trees: Sequence[Tree]) -> bool:
        """Whether all operations are elementwise, and all constants are scalars."""
        parts = [part for tree in trees for part in parts_of(tree)]
        inputs = [part for part in parts if isinstance(part, int) and part < len(self.family.inputs)]
        return all(self.family.inputs[number].constant is None for number in inputs) and all(
            self.family.operations[part[0]].elementwise for part in parts if not isinstance(part, int)
        )

    # Terms

    def terms(self, nodes: Sequence[_Node]) -> tuple[list[Term], tuple[Variable, ...]]:
        """The terms of ``nodes``, and their variables."""
        names: dict[str, Part] = {}
        variables: dict[int, Variable] = {}
        for node in (part for root in nodes for part in _inputs_of(root)):
            number = node.tree
            assert isinstance(number, int), "it is an input"
            if number < len(self.family.inputs) and self.family.inputs[number].constant is not None:
                continue
            shape = self._named(node.shape, names)
            if number not in variables:
                variables[number] = Variable(_VARIABLES[len(variables)], tuple(map(as_expr, shape)))
        return [self._term(node, variables, names)[0] for node in nodes], tuple(variables.values())

    def _term(self, node: _Node, variables: Mapping[int, Variable], names: dict[str, Part]) -> tuple[Term, Shape]:
        """The term of ``node``, and its shape."""
        shape = self._named(node.shape, names)
        if isinstance(node.tree, int):
            if node.tree in variables:
                return variables[node.tree], shape
            constant = self.family.inputs[node.tree].constant
            assert constant is not None, "what is no variable is a constant"
            return constant(shape), shape
        operands = [self._term(operand, variables, names) for operand in node.operands]
        terms, shapes = [term for term, _ in operands], [shape for _, shape in operands]
        return self.family.operations[node.tree[0]].building(terms, shapes, shape), shape

    def _named(self, shape: Shape, names: dict[str, Part]) -> Shape:
        return tuple(self._named_extent(extent, names) for extent in self.solver.shape(shape))

    def _named_extent(self, extent: Extent, names: dict[str, Part]) -> Extent:
        for part in extent:
            if part.name is not None and part.name not in names:
                names[part.name] = Part(part.size, _symbol(len(names)))
        return tuple([part if part.name is None else names[part.name] for part in extent])


def _inputs_of(node: _Node) -> Iterator[_Node]:
    if isinstance(node.tree, int):
        yield node
    for operand in node.operands:
        yield from _inputs_of(operand)


def _symbol(number: int) -> str:
    round_, letter = divmod(number, len(_SYMBOLS))
    return _SYMBOLS[letter] + (str(round_) if round_ else "")
