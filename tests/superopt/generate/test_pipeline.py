"""Generated rules: known identities are among them, false ones are not, and the same plan gives the same bytes."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations

import pytest

from tilewright.passes.rules import Apply, Number, Rule, Term, Variable, parse_rules
from tilewright.superopt.evaluate.instances import Instance, try_instance
from tilewright.superopt.generate.families import NORMALIZATION, TASO, TRANSFORMER
from tilewright.superopt.generate.generalization import Abstraction, Generalizer, Tree
from tilewright.superopt.generate.operations import Family
from tilewright.superopt.generate.pipeline import Fate, Generation, Plan, generate, print_generations
from tilewright.symbolic.expr import Expr

_COMMUTATIVE = ("Add", "Mul")


@lru_cache(maxsize=8)
def generated(family: str, depth: int, outputs: int = 1) -> Generation:
    families: dict[str, Family] = {f.name: f for f in (TASO, TRANSFORMER, NORMALIZATION)}
    return generate(Plan(families[family], depth, outputs))


# Identities by name. Symbols in attributes follow from the shapes, so what is compared is everything else.

CONSTANTS = "Expand(0.0, shape=(c, c))"
EYE = f"EyeLike({CONSTANTS})"
KERNEL = f"Pad(Unsqueeze({EYE}, axes=(2, 3)), before=(0, 0, 1, 1), after=(0, 0, 1, 1))"
SAME = "pads=(1, 1, 1, 1)"
POOL = "kernel_shape=(3, 3), pads=(1, 1, 1, 1)"
MATRICES = "x[a, b], y[a, b], v[b, c], w[b, c]"
IMAGES = "x[n, c, h, w], y[n, c, h, w], u[d, c, 3, 3], v[d, c, 3, 3], s[]"

SHALLOW = {
    "matmul is associative": ("x[a, b], v[b, c], w[c, d]", "MatMul(MatMul(x, v), w)", "MatMul(x, MatMul(v, w))"),
    "a convolution of 1 x 3 is one of 3 x 3": (
        "x[n, c, h, w], v[d, c, 1, 3]",
        "Conv(x, v, pads=(0, 1, 0, 1))",
        f"Conv(x, Pad(v, before=(0, 0, 1, 0), after=(0, 0, 1, 0)), {SAME})",
    ),
    "an average pool is a depthwise convolution": (
        "x[n, c, h, w]",
        f"AveragePool(x, {POOL}, count_include_pad=True)",
        f"Conv(x, Div(Expand(1.0, shape=(c, 1, 3, 3)), 9.0), {SAME}, group=c)",
    ),
    "a convolution with the identity kernel": ("x[n, c, h, w]", f"Conv(x, {KERNEL}, {SAME})", "x"),
    "a product with the identity matrix": ("x[a, c]", f"MatMul(x, {EYE})", "x"),
    "relu is idempotent": ("x[a, b]", "Relu(Relu(x))", "Relu(x)"),
    "transposed twice": ("x[a, b]", "Transpose(Transpose(x, perm=(1, 0)), perm=(1, 0))", "x"),
    "a scalar moves through matmul": ("x[a, b], v[b, c], s[]", "MatMul(Mul(x, s), v)", "MatMul(x, Mul(v, s))"),
    "a scalar moves out of matmul": ("x[a, b], v[b, c], s[]", "Mul(MatMul(x, v), s)", "MatMul(x, Mul(v, s))"),
    "a scalar moves through a convolution": (IMAGES, f"Conv(Mul(x, s), u, {SAME})", f"Conv(x, Mul(u, s), {SAME})"),
    "a scalar moves through a convolution of 1 x 3": (
        "x[n, c, h, w], v[d, c, 1, 3], s[]",
        "Conv(Mul(x, s), v, pads=(0, 1, 0, 1))",
        "Conv(x, Mul(v, s), pads=(0, 1, 0, 1))",
    ),
    "the first half of a concatenation": (
        MATRICES,
        "Slice(Concat(x, y, axis=1), axes=(1,), starts=(0,), ends=(b,))",
        "x",
    ),
}
DEEP = {
    "matmul distributes on the left": (MATRICES, "MatMul(Add(x, y), v)", "Add(MatMul(x, v), MatMul(y, v))"),
    "matmul distributes on the right": (MATRICES, "MatMul(x, Add(v, w))", "Add(MatMul(x, v), MatMul(x, w))"),
    "a sum of products is one of concatenations": (
        MATRICES,
        "Add(MatMul(x, v), MatMul(y, w))",
        "MatMul(Concat(x, y, axis=1), Concat(v, w, axis=0))",
    ),
    "a convolution is linear in its input": (
        IMAGES,
        f"Conv(Add(x, y), u, {SAME})",
        f"Add(Conv(x, u, {SAME}), Conv(y, u, {SAME}))",
    ),
    "a convolution is linear in its weight": (
        IMAGES,
        f"Conv(x, Add(u, v), {SAME})",
        f"Add(Conv(x, u, {SAME}), Conv(x, v, {SAME}))",
    ),
    "channels that are concatenated are added up": (
        IMAGES,
        f"Add(Conv(x, u, {SAME}), Conv(y, v, {SAME}))",
        f"Conv(Concat(x, y, axis=1), Concat(u, v, axis=1), {SAME})",
    ),
    "batches are concatenated": (
        IMAGES,
        f"Concat(Conv(x, u, {SAME}), Conv(y, u, {SAME}), axis=0)",
        f"Conv(Concat(x, y, axis=0), u, {SAME})",
    ),
    "relu of a concatenation": (MATRICES, "Relu(Concat(x, y, axis=0))", "Concat(Relu(x), Relu(y), axis=0)"),
    "a product transposed": (
        MATRICES,
        "Transpose(MatMul(x, v), perm=(1, 0))",
        "MatMul(Transpose(v, perm=(1, 0)), Transpose(x, perm=(1, 0)))",
    ),
    "what is cut off may be anything": (
        MATRICES,
        "Slice(Concat(x, Relu(y), axis=0), axes=(0,), starts=(0,), ends=(a,))",
        "Slice(Concat(x, y, axis=0), axes=(0,), starts=(0,), ends=(a,))",
    ),
    "blocks are concatenated in either order": (
        MATRICES,
        "Concat(Concat(x, y, axis=1), Concat(v, w, axis=1), axis=0)",
        "Concat(Concat(x, v, axis=0), Concat(y, w, axis=0), axis=1)",
    ),
}
MERGES = {
    "products that share the left operand": (
        MATRICES,
        "MatMul(x, v); MatMul(x, w)",
        "Slice(MatMul(x, Concat(v, w, axis=1)), axes=(1,), starts=(0,), ends=(c,)); "
        "Slice(MatMul(x, Concat(v, w, axis=1)), axes=(1,), starts=(c,), ends=(c + c,))",
    ),
    "products that share the right operand": (
        MATRICES,
        "MatMul(x, v); MatMul(y, v)",
        "Slice(MatMul(Concat(x, y, axis=0), v), axes=(0,), starts=(0,), ends=(a,)); "
        "Slice(MatMul(Concat(x, y, axis=0), v), axes=(0,), starts=(a,), ends=(a + a,))",
    ),
    "convolutions of one input": (
        IMAGES,
        f"Conv(x, u, {SAME}); Conv(x, v, {SAME})",
        f"Slice(Conv(x, Concat(u, v, axis=0), {SAME}), axes=(1,), starts=(0,), ends=(d,)); "
        f"Slice(Conv(x, Concat(u, v, axis=0), {SAME}), axes=(1,), starts=(d,), ends=(d + d,))",
    ),
}
FOLDING = {
    "a factor of each channel is one of the filters": (
        "x[n, c, h, w], u[d, c, 3, 3], s[1, d, 1, 1]",
        f"Mul(Conv(x, u, {SAME}), s)",
        f"Conv(x, Mul(u, Transpose(s, perm=(1, 0, 2, 3))), {SAME})",
    ),
    "a factor and a summand of each channel": (
        "x[n, c, h, w], s[1, c, 1, 1], b[1, c, 1, 1]",
        "Mul(Add(x, b), s)",
        "Add(Mul(x, s), Mul(b, s))",
    ),
}
ATTENTION = {
    "a factor of each row moves out of a product": (
        "x[b, m, k], w[k, n], r[b, m, 1]",
        "MatMul(Mul(x, r), w)",
        "Mul(MatMul(x, w), r)",
    ),
    "a quotient of each row moves out of a product": (
        "x[b, m, k], w[k, n], r[b, m, 1]",
        "MatMul(Div(x, r), w)",
        "Div(MatMul(x, w), r)",
    ),
    "batched matmul is associative": (
        "x[b, m, k], v[k, n], w[n, o]",
        "MatMul(MatMul(x, v), w)",
        "MatMul(x, MatMul(v, w))",
    ),
    "a factor of each column is one of the weights' rows": (
        "x[b, m, k], v[k], w[k, n]",
        "ReduceSum(Mul(x, s), axes=(-1,))",
        "Mul(ReduceSum(x, axes=(-1,)), s)",
    ),
}


def _rule(identity: tuple[str, str, str]) -> Rule:
    variables, sources, targets = identity
    variables = f"{variables}, s[]" if "s[" not in variables else variables
    (rule,) = parse_rules(f"rule r\n  for {variables}\n  from {sources}\n  to {targets}")
    return rule


def _matches(patterns: Sequence[Term], terms: Sequence[Term], bound: dict[str, Term]) -> Iterator[dict[str, Term]]:
    """All ways in which ``terms`` are ``patterns``; operands of sums and products in any order."""
    if not patterns:
        yield bound
        return
    pattern, term = patterns[0], terms[0]
    if isinstance(pattern, Variable):
        if bound.get(pattern.name, term) == term:
            yield from _matches(patterns[1:], terms[1:], {**bound, pattern.name: term})
    elif isinstance(pattern, Number) or not isinstance(term, Apply):
        if pattern == term:
            yield from _matches(patterns[1:], terms[1:], bound)
    elif pattern.op.name == term.op.name and _attributes(pattern) == _attributes(term):
        orders = permutations(term.operands) if term.op.name in _COMMUTATIVE else [term.operands]
        for operands in orders:
            if len(operands) == len(pattern.operands):
                yield from _matches((*pattern.operands, *patterns[1:]), (*operands, *terms[1:]), bound)


def _attributes(term: Apply) -> dict[str, object]:
    return {
        name: tuple(map(_told, value)) if isinstance(value, tuple) else _told(value) for name, value in term.attributes
    }


def _told(value: object) -> object:
    return "symbols" if isinstance(value, Expr) else value


def _is_among(identity: Rule, rules: Sequence[Rule]) -> bool:
    """Whether one of ``rules`` is this, or something more general."""
    sides = [(*identity.sources, *identity.targets), (*identity.targets, *identity.sources)]
    return any(
        next(_matches((*rule.sources, *rule.targets), side, {}), None) is not None
        for rule in rules
        for side in sides
        if len(rule.sources) == len(identity.sources)
    )


@pytest.mark.parametrize("name", SHALLOW)
def test_identities_of_two_operations(name: str) -> None:
    assert _is_among(_rule(SHALLOW[name]), generated("taso", 2).rules)


@pytest.mark.parametrize("name", FOLDING)
def test_normalizations_are_folded(name: str) -> None:
    assert _is_among(_rule(FOLDING[name]), generated("normalization", 3).rules)


@pytest.mark.parametrize("name", ATTENTION)
def test_identities_of_transformers(name: str) -> None:
    assert _is_among(_rule(ATTENTION[name]), generated("transformer", 2).rules)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEP)
def test_identities_of_three_operations(name: str) -> None:
    assert _is_among(_rule(DEEP[name]), generated("taso", 3, 2).rules)


@pytest.mark.slow
@pytest.mark.parametrize("name", MERGES)
def test_what_shares_an_operand_is_merged(name: str) -> None:
    assert _is_among(_rule(MERGES[name]), generated("taso", 3, 2).rules)


@pytest.mark.slow
def test_kernels_are_enlarged_to_be_merged() -> None:
    merged = f"Conv(x, Concat(u, Pad(v, before=(0, 0, 1, 0), after=(0, 0, 1, 0)), axis=0), {SAME})"
    identity = (
        "x[n, c, h, w], u[d, c, 3, 3], v[e, c, 1, 3]",
        f"Conv(x, u, {SAME}); Conv(x, v, pads=(0, 1, 0, 1))",
        f"Slice({merged}, axes=(1,), starts=(0,), ends=(d,)); Slice({merged}, axes=(1,), starts=(d,), ends=(d + e,))",
    )
    assert _is_among(_rule(identity), generated("taso", 4, 2).rules)


def test_an_identity_that_does_not_hold_is_not_among_them() -> None:
    false = _rule(("x[a, b], v[b, c]", "MatMul(Relu(x), v)", "Relu(MatMul(x, v))"))
    assert not _is_among(false, generated("taso", 2).rules)


FALSE = {
    "relu of one is one, not three": (
        "x[n, c, h, w]",
        "Add(x, Add(x, x))",
        "Mul(x, Relu(Expand(1.0, shape=(n, c, h, w))))",
    ),
    "the mean kernel is not one": (
        "x[c, 1, 3, 3], s[]",
        "Mul(x, Mul(Div(Expand(1.0, shape=(c, 1, 3, 3)), 9.0), s))",
        "Mul(x, s)",
    ),
    "the identity kernel does not take what is concatenated back": (
        "x[n, c, h, w]",
        f"Conv(Concat(x, x, axis=1), {KERNEL}, {SAME})",
        "x",
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_false_rules_are_not_generated(name: str) -> None:
    rule = _rule(FALSE[name])
    assert not _is_among(rule, generated("taso", 2).rules)


@pytest.mark.slow
@pytest.mark.parametrize("name", FALSE)
def test_false_rules_are_not_generated_at_depth_three_either(name: str) -> None:
    assert not _is_among(_rule(FALSE[name]), generated("taso", 3, 2).rules)


def test_all_rules_hold_at_other_extents() -> None:
    """Other primes' seeds and other extents than those that the generator tried."""
    pool = (2, 4, 3, 5, 1)
    for family in ("taso", "transformer", "normalization"):
        for rule in generated(family, 2).rules:
            symbols = {symbol: pool[i % 5] for i, symbol in enumerate(sorted(rule.symbols, key=lambda s: s.name))}
            assert try_instance(rule, Instance(symbols, {"s": (3, 1, 2)}), seed=99), str(rule)


def test_what_is_false_at_other_extents_is_no_rule() -> None:
    names = [operation.name for operation in TASO.operations]
    inputs = [each.name for each in TASO.inputs]
    scale, add, image, scalar = names.index("Scale"), names.index("Add"), inputs.index("i1"), inputs.index("s1")
    scaled: Tree = (scale, (image, scalar))
    generalizer = Generalizer(TASO, 0)
    assert generalizer.rule(Abstraction((scaled, (add, (image, image))), ())) is None
    doubled: Tree = (add, (scaled, scaled))
    assert generalizer.rule(Abstraction((doubled, (scale, ((add, (image, image)), scalar))), ())) is not None


def test_what_is_false_of_floats_is_no_rule() -> None:
    """In the field, a quotient by zero is zero."""
    false = _rule(("x[b, m, k], y[b, m, 1]", "Div(x, Sub(y, y))", "Sub(x, x)"))
    assert generated("transformer", 2).fates[Fate.FALSE_OF_FLOATS] == 6
    assert not _is_among(false, generated("transformer", 2).rules)


def test_what_is_pruned_is_counted() -> None:
    found = generated("taso", 2)
    candidates = sum(level.candidates for level in found.levels)
    assert sum(found.fates.values()) == candidates
    assert found.fates[Fate.KEPT] == len(found.rules)
    assert (found.fates[Fate.INSTANCE], found.fates[Fate.KEPT]) == (586, 187)
    assert [level.depth for level in found.levels] == [1, 2]


def test_the_text_is_read_back() -> None:
    found = generated("taso", 2)
    text = print_generations([found])
    assert text.startswith("# Generated by tilewright rules generate")
    assert tuple(parse_rules(text)) == found.rules


@pytest.mark.parametrize(("depth", "outputs"), [(2, 1), pytest.param(3, 2, marks=pytest.mark.slow)])
def test_the_same_plan_gives_the_same_bytes(depth: int, outputs: int) -> None:
    program = (
        "import sys; from tilewright.superopt.generate.pipeline import Plan, generate, print_generations\n"
        "from tilewright.superopt.generate.families import TASO\n"
        f"sys.stdout.write(print_generations([generate(Plan(TASO, {depth}, {outputs}, seed=3))]))"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]
    assert texts[0].count(b"\nrule ") > 100


@pytest.mark.slow
def test_four_operations_fit_into_a_gigabyte() -> None:
    """Seconds are told by the command, and are in ``docs/performance.md``: here, other tests run beside it."""
    assert max(level.memory for level in generated("taso", 4, 2).levels) < 1 << 30
