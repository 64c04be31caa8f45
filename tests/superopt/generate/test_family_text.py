"""Families of a user: what their text says is combined, and what is found is true by NumPy."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.cli.schema import report
from tilewright.base.errors import ParseError
from tilewright.cli import main
from tilewright.passes.rules import Apply, Number, Rule, Term, Variable, parse_rules
from tilewright.superopt.generate.families import TASO
from tilewright.superopt.generate.family_text import parse_families

TEXT = """
# Two layers.
family gates
  extents m = 2, 4, 6
  extents k = 4, 6, 2
  for x[m, k], y[m, k], w: weight[k, k]
  operations MatMul, Add, Mul
  operations Neg, Sigmoid
"""
BY_NUMPY: Mapping[str, Callable[..., np.ndarray]] = {
    "MatMul": np.matmul,
    "Add": np.add,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def value(term: Term, values: Mapping[str, np.ndarray]) -> np.ndarray:
    match term:
        case Variable(name):
            return values[name]
        case Number(number):
            return np.asarray(number)
        case Apply(op, operands):
            return BY_NUMPY[op.name](*(value(operand, values) for operand in operands))


def difference(rule: Rule) -> float:
    sizes = {"a": 3, "b": 3, "c": 3, "d": 3}
    random = np.random.default_rng(2)
    shapes = {v.name: (2, 3) if v.leading else tuple(sizes[str(e)] for e in v.shape) for v in rule.variables}
    values = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    pairs = zip(rule.sources, rule.targets, strict=True)
    return max(float(np.abs(value(a, values) - value(b, values)).max()) for a, b in pairs)


def test_a_family_is_read() -> None:
    (family,) = parse_families(TEXT)
    assert [(made.name, made.shape, made.is_weight) for made in family.inputs] == [
        ("x", ("m", "k"), False),
        ("y", ("m", "k"), False),
        ("w", ("k", "k"), True),
    ]
    assert [(made.name, made.arity, made.commutes) for made in family.operations] == [
        ("MatMul", 2, False),
        ("Add", 2, True),
        ("Mul", 2, True),
        ("Neg", 1, False),
        ("Sigmoid", 1, False),
    ]
    assert family.extents == ({"m": 2, "k": 4}, {"m": 4, "k": 6}, {"m": 6, "k": 2})


def test_an_operation_brings_its_second_half() -> None:
    first = next(made.name for made in TASO.operations if made.second_half)
    (family,) = parse_families(f"family f\n  extents m = 2, 4\n  for x[m, 2]\n  operations {first}\n")
    assert [made.name for made in family.operations] == [first, first.replace(".0", ".1")]
    assert family.inputs[0].shape == ("m", 2)


def test_what_is_found_is_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "own.families", tmp_path / "found.rules"
    path.write_text(TEXT)
    command = ["rules", "generate", "--family", str(path), "--depth", "3", "-o", str(out), "--json"]
    assert main(command) == 0
    (told,) = report("rules", capsys.readouterr().out)["families"]
    rules = parse_rules(out.read_text())
    assert (told["family"], told["rules"]) == ("gates", len(rules))
    assert len(rules) > 20
    used = {name for name in BY_NUMPY if name in out.read_text()}
    assert {"MatMul", "Add", "Mul", "Neg"} <= used
    for rule in rules:
        assert difference(rule) < 1e-9, rule.name
    assert main([*command, "--families", "gates,normalization", "--depth", "1"]) == 0
    families = report("rules", capsys.readouterr().out)["families"]
    assert [family["family"] for family in families] == ["gates", "normalization"]


WRONG = [
    ("extents m = 2, 4", "line 1: 'extents m = 2, 4' stands before the first line of a family"),
    ("family f\n  fly", "line 2: 'fly' is none of extents, for, operations"),
    ("family f\n  extents m = 2, 17", "line 2: '17' is no size from 1 to 16"),
    ("family f\n  extents m 2", "line 2: '' is no size"),
    ("family f\n  for x[*s, m]", "line 2: x has leading dimensions: name each"),
    ("family f\n  for x[m + 1]", "line 2: the extent `m + 1` is neither a name nor a number"),
    ("family f\n  for x(m)", "line 2: variables are declared as"),
    ("family f\n  operations Ad", "line 2: there is no operation 'Ad'; there are Add"),
    ("family f\n  operations Softmax", "line 2: Softmax is not elementwise with one or two floats"),
    ("family f\n  operations Less", "line 2: Less is not elementwise with one or two floats"),
    ("family f\n  operations And", "line 2: And is not elementwise with one or two floats"),
    ("family f\n  operations Where", "line 2: Where is not elementwise with one or two floats"),
    ("family f\n  for x[m]", "line 1: a family has a name, inputs"),
    ("family\n  for x[2]\n  operations Add", "line 1: a family has a name, inputs"),
    ("family f\n  for x[m], x[m]\n  operations Add", "line 1: the family f declares x twice"),
    ("family f\n  for x[m]\n  operations Add", "line 1: the family f does not say how large m is: `extents m = 2, 4`"),
    ("family f\n  extents m = 2\n  for x[m]\n  operations Add", "needs as many sizes of each extent, at least 2"),
    (
        "family f\n  extents m = 2, 4\n  extents n = 2, 4, 6\n  for x[m, n]\n  operations Add",
        "needs as many sizes of each extent",
    ),
    ("family f\n  for x[2]\n  operations Add", "needs as many sizes of each extent, at least 2"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_is_no_family(text: str, said: str) -> None:
    with pytest.raises(ParseError, match=re.escape(said)):
        parse_families(text)


def test_files_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.families"
    for text, said in (
        ("", "there is no family in it"),
        ("fly", "line 1: 'fly' stands before"),
        (None, "can't be read"),
    ):
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        assert main(["rules", "generate", "--family", str(path)]) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert str(path) in told
        assert said in told
    path.write_text(TEXT)
    assert main(["rules", "generate", "--family", str(path), "--depth", "1", "-o", str(path)]) == 2
    assert path.read_text() == TEXT
