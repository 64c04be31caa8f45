"""Instances of rules: numbers for symbols, extents for leading dimensions, values for unwritten attributes.

A rule is tested by evaluating both sides of its instances at random points of a finite field, and in float64.
Instances with an ill-typed side are ignored; the first one at which the sides differ is a counterexample.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter
from itertools import product
from math import prod
from random import Random

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.errors import BadProgram, OutOfBounds, Unsupported
from tilewright.ops import Attribute
from tilewright.ops.operator import map_expressions
from tilewright.ops.shapes import number_at
from tilewright.passes.rules.binding import spliced
from tilewright.passes.rules.generic_points import point_where
from tilewright.passes.rules.kinds import has_kinds
from tilewright.passes.rules.normal_form import normal_rule
from tilewright.passes.rules.terms import Apply, Rule, Term, Variable, subterms
from tilewright.superopt.evaluate.evaluator import Bindings, Evaluator
from tilewright.superopt.evaluate.typed import agrees_in_bits, check_slice
from tilewright.symbolic import Bounds, simplify
from tilewright.symbolic.expr import TRUE, Expr, Symbol, Var, const
from tilewright.symbolic.traversal import substitute, vars_in
from tilewright.tensor.domains import Domain, Modular, Real

_SAMPLES = 4
"""Random points for each instance; unequal polynomials agree at a point with probability degree / 2**31."""

_LISTS: Mapping[str, tuple[int, int, int]] = {
    "strides": (1, 1, 2),
    "pads": (2, 0, 1),
    "dilations": (1, 1, 2),
    "kernel_shape": (1, 1, 3),
    "kernel": (1, 1, 4),
    "begins": (1, 0, 2),
    "spatial": (1, 1, 4),
}
"""Attributes of windows: number of integers for each spatial dimension, minimum and maximum."""

_CHOICES: Mapping[str, tuple[Attribute, ...]] = {
    "group": (1, 2, 3),
    "epsilon": (1e-5, 0.5),
    "count_include_pad": (False, True),
    "keepdims": (True, False),
    "axis": (-1,),
    "transpose_a": (False, True),
    "transpose_b": (False, True),
    "alpha": (1.0, 0.5, -3.0),
    "beta": (1.0, 0.25, 2.0),
}
"""Values of unwritten attributes; all others keep their defaults."""


FIELD = Modular(0)
"""The numbers at which rules are compared."""
_FLOATS = 1
"""The number of instances that are also evaluated in float64, with the true functions."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One choice of all sizes, leading dimensions and unwritten attributes of a rule."""

    symbols: Mapping[Var, int]
    leading: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    rests: Mapping[str, Mapping[str, Attribute]] = field(default_factory=dict[str, Mapping[str, Attribute]])

    def __str__(self) -> str:
        parts = [f"{symbol}={value}" for symbol, value in sorted(self.symbols.items(), key=lambda item: item[0].name)]
        parts += [f"*{name}={list(extents)}" for name, extents in sorted(self.leading.items())]
        parts += [f"{name}={value}" for _, rest in sorted(self.rests.items()) for name, value in sorted(rest.items())]
        return ", ".join(parts) or "no choice"

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """The extents of a variable."""
        leading = self.leading[variable.leading] if variable.leading else ()
        return *leading, *(self.integer(extent) for extent in variable.shape)

    def integer(self, value: Expr) -> int:
        """The value of an expression over symbols. Raises ``BadProgram`` for a symbol without a value."""
        return number_at(value, self.symbols)

    def simplified(self, value: Expr) -> Expr:
        """An expression with symbols replaced by their values."""
        return simplify(
            substitute(value, {symbol: const(number) for symbol, number in self.symbols.items()}), Bounds({})
        )

    def concrete_rule(self, rule: Rule) -> Rule:
        """``rule`` at this instance, with literal shapes and attributes."""
        sides = [tuple(map(self.concrete, side)) for side in (rule.sources, rule.targets)]
        variables = [self.concrete(variable) for variable in rule.variables]
        return Rule(rule.name, tuple(v for v in variables if isinstance(v, Variable)), sides[0], sides[1])

    def concrete(self, term: Term) -> Term:
        """``term`` without symbols, leading dimensions and unwritten attributes."""
        if isinstance(term, Variable):
            return replace(term, shape=tuple(map(const, self.shape(term))), leading=None)
        if not isinstance(term, Apply):
            return term
        written = {name: self._concrete(value) for name, value in term.attributes}
        for name, value in self.rests[term.rest].items() if term.rest is not None else ():
            if name in term.op.parameters:
                written.setdefault(name, value)
        return Apply(term.op, tuple(map(self.concrete, term.operands)), tuple(written.items()), None, term.output)

    def _concrete(self, value: Attribute) -> Attribute:
        leading = {name: tuple(map(const, extents)) for name, extents in self.leading.items()}
        return map_expressions(spliced(value, leading), self.integer)


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of evaluating a rule: the number of instances that agree, and a counterexample, if there is one."""

    shapes: int
    counterexample: Instance | None = None

    @property
    def holds(self) -> bool:
        """Whether the sides agreed at all instances, and at least at one."""
        return self.counterexample is None and self.shapes > 0


def try_rule(
    rule: Rule,
    *,
    shapes: int = 8,
    largest: int = 4,
    seed: int = 0,
    tries: int | None = None,
    domain: Callable[[int], Domain] = Modular,
) -> Trial:
    """Evaluate both sides at up to ``shapes`` instances, sizes from 1 to ``largest``; at most ``tries`` are drawn, by
    default 50 for each of ``shapes`` and at least 400. The draws depend on ``seed`` and on the rule only.

    ``domain``: the numbers at which they are compared first, from a seed.

    Instances without a value over any domain are ignored, as ill-typed ones are.
    """
    drawn = max(400, 50 * shapes) if tries is None else tries
    return try_instances(rule, sampled(rule, largest, seed, drawn), shapes, domain(seed))


def try_instances(rule: Rule, instances: Iterable[Instance], shapes: int, domain: Domain = FIELD) -> Trial:
    """Evaluate both sides at up to ``shapes`` of ``instances``, each once."""
    found = 0
    exact, real = Evaluator(domain), Evaluator(Real(1e-7))
    for instance in _distinct(instances):
        if found == shapes:
            break
        agrees = _agrees(rule, instance, exact, real, with_floats=found < _FLOATS)
        if agrees is False:
            return Trial(found, instance)
        found += agrees is True
    return Trial(found)


def _distinct(instances: Iterable[Instance]) -> Iterator[Instance]:
    seen: set[str] = set()
    for instance in instances:
        if str(instance) not in seen:
            seen.add(str(instance))
            yield instance


def try_floats(rule: Rule, instances: Iterable[Instance], shapes: int) -> Trial:
    """Evaluate both sides in float64 only, for functions that have no meaning over a finite field."""
    found, real = 0, Evaluator(Real(1e-7))
    for instance in _distinct(instances):
        agrees = _agrees(rule, instance, real, real, with_floats=False)
        if agrees is False:
            return Trial(found, instance)
        found += agrees is True
        if found == shapes:
            break
    return Trial(found)


def try_instance(rule: Rule, instance: Instance, seed: int = 0) -> bool | None:
    """Whether both sides agree at one instance; None if a side is ill-typed."""
    return _agrees(rule, instance, Evaluator(Modular(seed)), Evaluator(Real(1e-7)), with_floats=True)


def _agrees(rule: Rule, instance: Instance, exact: Evaluator, real: Evaluator, *, with_floats: bool) -> bool | None:
    if any(instance.simplified(need) != TRUE for need in rule.needs):
        return None
    concrete = instance.concrete_rule(rule)
    if not _is_typed(concrete):
        return None
    if has_kinds(rule):
        return agrees_in_bits(concrete)
    try:
        return _equal(concrete, exact) and (not with_floats or _equal(concrete, real))
    except Unsupported:
        return _equal_or_none(concrete, real)
    except (BadProgram, OutOfBounds):
        return None


def _equal_or_none(rule: Rule, real: Evaluator) -> bool | None:
    try:
        return _equal(rule, real)
    except (BadProgram, OutOfBounds, Unsupported):
        return None


def _is_typed(rule: Rule) -> bool:
    """Whether all bounds and pads are at least 0, and all extents at least 1, as rules require."""
    return all(
        min((i for i in value if isinstance(i, int)), default=least) >= least
        for part in subterms((*rule.sources, *rule.targets))
        if isinstance(part, Apply)
        for name, value in part.attributes
        if isinstance(value, tuple) and (least := _least(part, name)) is not None
    )


def _least(term: Apply, attribute: str) -> int | None:
    """The minimum of the integers in an attribute of ``term``; None if there is none."""
    if attribute == "shape" and term.op.name == "Expand":
        return 1
    return 0 if attribute in ("pads", "before", "after", "starts", "ends") else None


def _equal(rule: Rule, evaluator: Evaluator) -> bool:
    """Whether the sides of a rule whose shapes are literals have equal values."""
    pairs = sides(rule, evaluator, inputs(rule, evaluator.domain))
    return all(left.shape == right.shape and evaluator.domain.agree(left, right) for left, right in pairs)


def inputs(rule: Rule, domain: Domain) -> dict[str, Array]:
    """Random values ``[*shape, samples]`` for the variables of a rule whose shapes are literals."""
    return {
        variable.name: domain.random((*(int(str(extent)) for extent in variable.shape), _SAMPLES), seed)
        for seed, variable in enumerate(rule.variables)
    }


def sides(rule: Rule, evaluator: Evaluator, values: Mapping[str, Array]) -> Iterator[tuple[Array, Array]]:
    """The values of each result on the left and on the right, ``[*shape, samples]``."""
    bindings, known = Bindings(values), dict[Term, Array]()
    for source, target in zip(rule.sources, rule.targets, strict=True):
        left, right = (_value(side, evaluator, bindings, known) for side in (source, target))
        samples = max(left.shape[-1], right.shape[-1])
        yield (
            np.broadcast_to(left, (*left.shape[:-1], samples)),
            np.broadcast_to(right, (*right.shape[:-1], samples)),
        )


def _value(side: Term, evaluator: Evaluator, bindings: Bindings, known: dict[Term, Array]) -> Array:
    for part in subterms([side]):
        if part in known:
            continue
        if isinstance(part, Apply) and part.op.name == "Slice":
            check_slice(part, known[part.operands[0]].shape[:-1])
        evaluator.term(part, bindings, known)
    return known[side]


def sampled(rule: Rule, largest: int, seed: int, tries: int) -> Iterator[Instance]:
    """``tries`` random instances. The equations between sizes are solved, so that most instances are well-typed."""
    random = Random(f"{seed} {rule.name}")
    equations, names = _equations(rule), _Names.of(rule)
    for _ in range(tries):
        rests = {name: names.attributes(name, random) for name in names.rests}
        sizes = {symbol: random.randint(names.smallest(symbol), largest) for symbol in names.symbols}
        yield _solved(names, sizes, rests, equations, names.leading_extents(random, largest))


def has_leading(rule: Rule) -> bool:
    """Whether some variable or attribute of ``rule`` has leading dimensions."""
    names = _Names.of(rule)
    return bool(names.declared or names.targets)


def at_every_size(rule: Rule, largest: int, seed: int, draws: int = 1) -> Iterator[Instance]:
    """Each choice of extents from 1 to ``largest`` (other symbols: from 0), ``draws`` times; the rest is random."""
    random = Random(f"{seed} {rule.name}")
    equations, names = _equations(rule), _Names.of(rule)
    ranges = [range(names.smallest(symbol), largest + 1) for symbol in names.symbols]
    for choice in (choice for choice in product(*ranges) for _ in range(draws)):
        rests = {name: names.attributes(name, random) for name in names.rests}
        sizes = dict(zip(names.symbols, choice, strict=True))
        yield _solved(names, sizes, rests, equations, names.leading_extents(random, largest))


def _solved(
    names: "_Names",
    sizes: Mapping[Var, int],
    rests: Mapping[str, Mapping[str, Attribute]],
    equations: Sequence[tuple[Expr, Expr]],
    leading: Mapping[str, tuple[int, ...]],
) -> Instance:
    """The instance of these sizes, with those replaced that equations determine."""
    symbols = {**sizes, **_given(rests)}
    for a, b in equations:
        _solve(symbols, a, b)
    known = {symbol: value for symbol, value in symbols.items() if symbol in sizes}
    return Instance(known, leading, rests)


def _first_variable(term: Term) -> Variable | None:
    """The first variable of ``term``, which has the rank of ``term`` for concatenations, sums and the like."""
    while isinstance(term, Apply) and term.operands:
        term = term.operands[0]
    return term if isinstance(term, Variable) else None


def _equations(rule: Rule) -> list[tuple[Expr, Expr]]:
    try:
        return list(normal_rule(rule, point_where(rule.needs))[1].point.required)
    except BadProgram:
        return []


def _given(rests: Mapping[str, Mapping[str, Attribute]]) -> dict[Var, int]:
    """The integers among unwritten attributes, by their names in equations."""
    return {
        Symbol(f"{name}.{attribute}"): value
        for name, rest in rests.items()
        for attribute, value in rest.items()
        if isinstance(value, int)
    }


def _solve(symbols: dict[Var, int], a: Expr, b: Expr) -> None:
    """Set a symbol so that ``a == b``, if one of them is a symbol."""
    for left, right in ((a, b), (b, a)):
        if isinstance(left, Var) and left in symbols and right.variables <= symbols.keys() - {left}:
            symbols[left] = Instance(symbols).integer(right)
            return


@dataclass(frozen=True, slots=True)
class _Names:
    """The symbols, leading dimensions and unwritten attributes of a rule."""

    extents: frozenset[Var]
    """Symbols in shapes of variables."""
    symbols: tuple[Var, ...]
    """All symbols, sorted by name: random draws must not depend on the order of a set."""
    declared: tuple[str, ...]
    """Leading dimensions of variables."""
    targets: frozenset[str]
    """Leading dimensions that occur in attributes only."""
    rests: Mapping[str, Sequence[Parameter]]
    spatial: Mapping[str, int]
    """Number of spatial dimensions, by the name of the rest: all except the first two of the operand."""

    @staticmethod
    def of(rule: Rule) -> "_Names":
        extents = vars_in(extent for v in rule.variables for extent in v.shape)
        starred = {symbol.name[1:] for symbol in rule.symbols if symbol.name.startswith("*")}
        declared = tuple(dict.fromkeys(v.leading for v in rule.variables if v.leading))
        others = {symbol for symbol in rule.symbols if not symbol.name.startswith("*")}
        symbols = tuple(sorted(extents | others, key=lambda symbol: symbol.name))
        rests: dict[str, dict[str, Parameter]] = {}
        for term in subterms([*rule.sources, *rule.targets]):
            if isinstance(term, Apply) and term.rest is not None:
                written = {name for name, _ in term.attributes}
                open_ = {n: p for n, p in term.op.parameters.items() if n not in written}
                rests.setdefault(term.rest, {}).update(open_)
        unwritten = {name: list(found.values()) for name, found in rests.items()}
        spatial = {
            term.rest: len(first.shape) - 2
            for term in subterms([*rule.targets, *rule.sources])
            if isinstance(term, Apply) and term.rest is not None and (first := _first_variable(term)) is not None
        }
        return _Names(extents, symbols, declared, frozenset(starred - set(declared)), unwritten, spatial)

    def smallest(self, symbol: Var) -> int:
        """The least value of a symbol."""
        return 1 if symbol in self.extents else 0

    def attributes(self, rest: str, random: Random) -> dict[str, Attribute]:
        """Random values of the attributes of ``**rest``."""
        found: dict[str, Attribute] = {}
        for parameter in self.rests[rest]:
            if parameter.kind is Parameter.KEYWORD_ONLY and parameter.name in _CHOICES:
                found[parameter.name] = random.choice(_CHOICES[parameter.name])
            elif parameter.kind is Parameter.KEYWORD_ONLY and parameter.name in _LISTS:
                times, low, high = _LISTS[parameter.name]
                found[parameter.name] = tuple(
                    random.randint(low, high) for _ in range(times * self.spatial.get(rest, 2))
                )
        return found

    def leading_extents(self, random: Random, largest: int) -> dict[str, tuple[int, ...]]:
        """Random lists that broadcast with each other; in attributes, shapes with the same number of elements."""
        base = tuple(random.randint(1, largest) for _ in range(random.randint(0, 2)))
        found = {name: base for name in self.declared}
        if len(self.declared) > 1:
            for name in self.declared:
                kept = base[random.randint(0, len(base)) if random.random() < 0.5 else 0 :]
                found[name] = tuple(1 if random.random() < 0.2 else extent for extent in kept)
        for name in sorted(self.targets):
            found[name] = random.choice([base, base[::-1], (prod(base),), (*base, 1), (1, *base)])
        return found
