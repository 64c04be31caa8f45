"""What ``math=`` permits rules to do to floats: under ``strict``, no bit changes; nothing is left out silently."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tests.frontend.models import single_node
from tests.test_superoptimizer import printed, twins
from tilewright.backend.reference.backend import REFERENCE
from tilewright.base.arrays import has_same_bits
from tilewright.base.dtypes import DType, f16, f32
from tilewright.base.errors import BadInput
from tilewright.base.numerics import Math
from tilewright.base.superopt import Superopt
from tilewright.cli import main
from tilewright.compilation import ALONE, Options, compile_prepared, prepare
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.passes.normalize import eliminate_dead_code
from tilewright.passes.rules import (
    ALGEBRA,
    GENERATED,
    SEARCH,
    Evidence,
    Floats,
    Proof,
    Rule,
    floats_of,
    is_permitted,
    load_rules,
    parse_rules,
    permitted_floats,
    print_rule,
    sweeps,
)
from tilewright.passes.rules.given import RuleFile
from tilewright.superopt.search.optimization import Search
from tilewright.superopt.search.result import Cause
from tilewright.superopt.validate.bits import differing, telling_feeds
from tilewright.superoptimizer import compile_by_rules, superoptimize
from tilewright.symbolic.expr import const
from tilewright.target.target import Target

RULES: tuple[Rule, ...] = tuple(rule for name in (ALGEBRA, SEARCH, GENERATED) for rule in load_rules(name))
EXACT = [rule for rule in RULES if floats_of(rule) is Floats.EXACT]
STRICT = Options(Target.host(), 1, math=Math.STRICT)
FACTOR = """
rule factor-out
  for x[*s], y[*s], z[*s]
  from Add(Mul(x, z), Mul(y, z))
  to Mul(Add(x, y), z)
  proof tested; 0 shapes
"""
JOINED = """
rule columns-joined
  for x[m, k], v: weight[k, n1], w: weight[k, n2]
  from Concat(MatMul(x, v), MatMul(x, w), axis=-1)
  to MatMul(x, Concat(v, w, axis=-1))
  proof tested; 0 shapes
"""
MOVED = """
rule relu-of-joined
  for x[m, n1], y[m, n2]
  from Concat(Relu(x), Relu(y), axis=-1)
  to Relu(Concat(x, y, axis=-1))
  proof tested; 0 shapes
"""


class Drawn:
    """A graph in the making: elementwise operators, products, and parts that are moved."""

    def __init__(self, dtype: DType, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype, self.nodes, self.constants = dtype, list[Node](), dict[Value, Array]()
        self.rows, self.columns = int(self.random.integers(1, 9)), int(self.random.integers(2, 70))
        self.inputs = tuple(Value(name, dtype, tuple(map(const, (self.rows, self.columns)))) for name in "xy")
        self.values = list(self.inputs)

    def add(self, op: str, inputs: Sequence[Value], **attributes: Attribute) -> Value:
        self.nodes.append(make_node(require(op), inputs, [f"v{len(self.nodes)}"], attributes))
        return self.nodes[-1].outputs[0]

    def weight(self, *shape: int) -> Value:
        value = Value(f"w{len(self.constants)}", self.dtype, tuple(map(const, shape)))
        drawn = self.random.standard_normal(shape) / np.sqrt(shape[0])
        self.constants[value] = drawn.astype(self.dtype.numpy)
        return value

    def one(self) -> Value:
        return self.values[int(self.random.integers(len(self.values)))]

    def part(self, of: Value, start: int, end: int) -> Value:
        return self.add("Slice", [of], starts=(start,), ends=(end,), axes=(1,), steps=(1,))

    def step(self) -> None:
        function = ("Relu", "Exp", "Tanh", "Sigmoid")[int(self.random.integers(4))]
        cut = int(self.random.integers(1, self.columns))
        match int(self.random.integers(5)):
            case 0 | 1 as which:
                other = self.one() if self.random.random() < 0.5 else self.weight(self.columns)
                made = self.add(("Mul", "Add")[which], [self.one(), other])
            case 2:
                made = self.add("MatMul", [self.one(), self.weight(self.columns, self.columns)])
            case 3:
                both = self.add("Concat", [self.add(function, [self.one()]), self.add(function, [self.one()])], axis=1)
                made = self.part(both, cut, cut + self.columns)
            case _:
                whole = self.one()
                parts = self.part(whole, 0, cut), self.part(whole, cut, self.columns)
                made = self.add("Concat", [self.add(function, [part]) for part in parts], axis=1)
        self.values.append(made)

    def graph(self) -> Graph:
        return eliminate_dead_code(
            Graph("drawn", self.inputs, (self.values[-1],), tuple(self.nodes), dict(self.constants))
        )


def drawn(seed: int, dtype: DType) -> Graph:
    """A graph in which some exact rule matches."""
    for attempt in range(1000):
        drawing = Drawn(dtype, 1000 * seed + attempt)
        for _ in range(6):
            drawing.step()
        graph = prepare(drawing.graph(), math=Math.STRICT)
        if next(sweeps(graph, EXACT, fold=False), None) is not None:
            return graph
    raise AssertionError("no exact rule matches")


def with_rules(options: Options, *texts: str, is_asked: bool = True) -> Options:
    return replace(options, rules=tuple(RuleFile("own.rules", text, is_asked) for text in texts))


def test_what_is_permitted() -> None:
    assert permitted_floats(Math.STRICT) == {Floats.EXACT}
    assert permitted_floats(Math.CAREFUL) == {Floats.EXACT, Floats.REASSOCIATES}
    assert all(permitted_floats(math) == set(Floats) for math in (Math.DEFAULT, Math.FAST))
    search = Search.at(Superopt.FAST)
    assert (search.under(Math.DEFAULT).rules, search.under(Math.DEFAULT).left_out) == (search.rules, ())
    for math in (Math.STRICT, Math.CAREFUL):
        under = search.under(math)
        assert all(is_permitted(rule, math) for rule in under.rules)
        assert not any(is_permitted(rule, math) for rule in under.left_out)
        of_floats = [rule for rule in under.rules if not rule.only_integers]
        assert len(of_floats) + len(under.left_out) == len(search.rules)
        assert len(under.rules) > len(of_floats)


def see_that_bits_stay(graph: Graph) -> None:
    """With a search, and with all exact rules wherever they match; by feeds of other seeds than the compiler's."""
    plain = compile_prepared(graph, STRICT)
    text = "\n".join(print_with_claim(rule) for rule in EXACT)
    searched = superoptimize(graph, replace(STRICT, superopt=Superopt.FAST)).compiled
    ruled = compile_by_rules(graph, with_rules(STRICT, text), ALONE)
    for seed in (100, 101):
        for given in telling_feeds(graph, seed):
            expected = plain.executable.run(given)
            for model in (searched, ruled):
                assert all(map(has_same_bits, model.executable.run(given), expected)), model.applied


def print_with_claim(rule: Rule) -> str:
    return print_rule(replace(rule, proof=Proof(Evidence.TESTED)))


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_strict_keeps_the_bits(seed: int, dtype: DType) -> None:
    see_that_bits_stay(drawn(seed, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
@pytest.mark.parametrize("seed", range(3, 60))
def test_strict_keeps_the_bits_of_many(seed: int, dtype: DType) -> None:
    see_that_bits_stay(drawn(seed, dtype))


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_exact_rules_keep_the_bits_in_the_interpreter(seed: int, dtype: DType) -> None:
    """Where nothing is contracted, and sums are added in the order of the operator."""
    graph, options = drawn(seed, dtype), replace(STRICT, backend=REFERENCE)
    *_, (after, _) = sweeps(graph, EXACT, fold=False)
    assert after.nodes != graph.nodes
    before, changed = (compile_prepared(each, options).executable.run for each in (graph, after))
    for given in telling_feeds(graph, 7):
        assert all(map(has_same_bits, changed(given), before(given)))


def contracted() -> Graph:
    """A product and a sum that a rule brings together: then a processor rounds them once."""
    making = Drawn(f32, 0)
    x, y = making.inputs
    product = making.add("Mul", [x, y])
    parts = making.part(product, 0, 1), making.part(product, 1, making.columns)
    making.values.append(making.add("Add", [making.add("Concat", parts, axis=1), x]))
    return making.graph()


def test_code_with_other_bits_is_left_out_and_told() -> None:
    graph = prepare(contracted(), math=Math.STRICT)
    found = compile_by_rules(graph, with_rules(STRICT, print_with_claim(EXACT_OF_PARTS)), ALONE)
    assert found.applied == ()
    (left,) = found.left_out
    assert (left.rule, left.floats, left.matches, left.cause) == ("parts-as-whole.-1", Floats.EXACT, 1, Cause.BITS)
    plain = compile_prepared(graph, STRICT)
    assert differing(graph, plain.executable.run, found.executable.run) is None
    usual = compile_by_rules(graph, with_rules(Options(Target.host(), 1), print_with_claim(EXACT_OF_PARTS)), ALONE)
    assert len(usual.applied) == 1
    if "fma" in Target.host().features:
        assert differing(graph, plain.executable.run, usual.executable.run) is not None


EXACT_OF_PARTS = next(rule for rule in RULES if rule.name == "parts-as-whole.-1")


def test_bits_of_zeros_and_of_no_numbers() -> None:
    nan = np.array([np.nan, 1.0], np.float32)
    assert has_same_bits(nan, np.array([-np.nan, 1.0], np.float32))
    assert not has_same_bits(nan, np.array([np.nan, 1.0000001], np.float32))
    assert not has_same_bits(np.array([0.0]), np.array([-0.0]))
    assert not has_same_bits(np.array([0], np.int8), np.array([0], np.uint8))


@pytest.mark.parametrize(
    ("text", "math", "remedy"),
    [(FACTOR, "strict", "default"), (FACTOR, "careful", "default"), (JOINED, "strict", "careful")],
)
@pytest.mark.parametrize("superopt", ["off", "fast"])
def test_a_rule_that_is_not_permitted_is_refused(
    text: str, math: str, remedy: str, superopt: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.rules"
    path.write_text(MOVED + text)
    (rule,) = parse_rules(text)
    told = f"own.rules: the rule {rule.name} can't be applied under math={math}, .*: {floats_of(rule).value}; "
    with pytest.raises(BadInput, match=f"{told}leave it out, or give math={remedy}"):
        tilewright.compile(twins(2), rules=path, math=math, superopt=superopt)


def test_what_is_permitted_is_applied() -> None:
    graph = products_and_functions()
    strict = compile_by_rules(graph, with_rules(STRICT, MOVED), ALONE)
    assert [step.rule.name for step in strict.applied] == ["relu-of-joined"]
    careful = compile_by_rules(graph, with_rules(replace(STRICT, math=Math.CAREFUL), JOINED), ALONE)
    assert [step.rule.name for step in careful.applied] == ["columns-joined"]


def test_what_a_package_brings_is_left_out_and_told() -> None:
    graph = products_and_functions()
    found = compile_by_rules(graph, with_rules(STRICT, MOVED + JOINED + FACTOR, is_asked=False), ALONE)
    assert [step.rule.name for step in found.applied] == ["relu-of-joined"]
    assert list(map(str, found.left_out)) == ["columns-joined (1 place, reassociates)"]


def products_and_functions() -> Graph:
    """Two products of one matrix that are joined, and two functions of the same that are joined."""
    making = Drawn(f32, 1)
    x, y = making.inputs
    both = making.add("Concat", [making.add("Relu", [x]), making.add("Relu", [y])], axis=1)
    weights = [making.weight(making.columns, making.columns) for _ in range(2)]
    products = making.add("Concat", [making.add("MatMul", [x, weight]) for weight in weights], axis=1)
    return replace(making.graph(), nodes=tuple(making.nodes), outputs=(both, products), constants=making.constants)


def test_strict_search_finds_what_is_exact_and_tells_the_rest() -> None:
    model = onnx.parser.parse_model(HALVES)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"))
    strict = tilewright.compile(model, superopt="fast", math="strict", threads=1)
    explanation = strict.explain()
    assert {row.floats for row in explanation.rules} == {"exact"}
    assert explanation.left_out
    assert Floats.EXACT not in {one.floats for one in explanation.left_out}
    told = printed(explanation)
    assert "left out by math=strict: " in told
    assert str(explanation.left_out[0]) in told
    written = json.loads(json.dumps(explanation.to_json()))["left_out"]
    assert written[0] == explanation.left_out[0].to_json()
    x = np.random.default_rng(0).standard_normal((1, 64, 56, 56)).astype(np.float32)
    (found,), (expected,) = strict(x), tilewright.compile(model, math="strict", threads=1)(x)
    assert has_same_bits(np.asarray(found), np.asarray(expected))


HALVES = """
<ir_version: 10, opset_import: ["": 18]>
halves (float[1, 64, 56, 56] x) => (float[1, 64, 56, 56] y)
{
  rows = Constant <value_ints = [64, 3136]> ()
  whole = Constant <value_ints = [1, 64, 56, 56]> ()
  a, b = Split <axis = 1, num_outputs = 2> (x)
  c = Relu(a)
  d = Relu(b)
  e = Concat <axis = 1> (c, d)
  p = Reshape(e, rows)
  q = MatMul(w, p)
  r = MatMul(w, q)
  y = Reshape(r, whole)
}
"""


def test_careful_never_has_new_values() -> None:
    """``(Q K) V`` stays, as ``K V`` may overflow; weights are added."""
    graph = prepare(importer.load(twins()))
    careful = superoptimize(graph, Options(Target.host(), 1, math=Math.CAREFUL, superopt=Superopt.FAST))
    assert "sum-of-weights" in {step.rule.name for step in careful.optimized.steps}
    assert all(floats_of(step.rule) is not Floats.MAY_OVERFLOW for step in careful.optimized.steps)
    chain = chain_of_data()
    free, kept = (
        superoptimize(chain, Options(Target.host(), 1, math=math, superopt=Superopt.FAST))
        for math in (Math.DEFAULT, Math.CAREFUL)
    )
    assert free.optimized.steps and not free.compiled.left_out
    assert not kept.optimized.steps
    assert any(one.floats is Floats.MAY_OVERFLOW for one in kept.compiled.left_out)


def chain_of_data() -> Graph:
    shapes = {"q": (512, 16), "k": (16, 512), "v": (512, 16)}
    q, k, v = (Value(name, f32, tuple(map(const, shape))) for name, shape in shapes.items())
    first = make_node(require("MatMul"), [q, k], ["s"], {})
    last = make_node(require("MatMul"), [first.outputs[0], v], ["y"], {})
    return Graph("chain", (q, k, v), last.outputs, (first, last), {})


def test_the_command_line_tells_what_was_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, own = tmp_path / "twins.onnx", tmp_path / "own.rules"
    onnx.save(twins(2), path)
    own.write_text(FACTOR)
    command = ["optimize", str(path), "--superopt", "fast", "--threads", "1", "--quiet", "--math", "strict"]
    assert main([*command, "--rules", f"+{own}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rules"] == {}
    assert {one["floats"] for one in found["left_out"]} <= {"reassociates", "may overflow"}
    assert "sum-of-weights" in {one["rule"] for one in found["left_out"]}
    (given,) = found["given"]
    assert (given["fate"], given["reason"]) == (
        "not permitted",
        "math=strict does not permit what it does to floats: may overflow",
    )
    assert main(command) == 0
    assert "left out by --math strict: " in capsys.readouterr().out


def test_careful_has_no_other_terms() -> None:
    image = np.random.default_rng(0).standard_normal((1, 64, 28, 28)).astype(np.float32)
    weight = np.random.default_rng(1).standard_normal((64, 64, 3, 3)).astype(np.float32)
    model = single_node("Conv", {"x": image}, {"w": weight}, pads=[1, 1, 1, 1])
    strict, careful = (tilewright.compile(model, math=math, threads=1) for math in ("strict", "careful"))
    assert has_same_bits(np.asarray(strict(image)[0]), np.asarray(careful(image)[0]))
    assert careful.math is Math.CAREFUL
