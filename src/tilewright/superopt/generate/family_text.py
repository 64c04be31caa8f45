"""The text format of families of users.

::

    family gates
      extents m = 2, 4, 6
      extents k = 4, 6, 2
      for x[m, k], y[m, k], w: weight[k, k]
      operations MatMul, Add, Mul, Sigmoid

``for`` declares the inputs, as in a rule. ``extents`` gives the sizes of each name: terms are compared at the first
sizes, and operands must fit each other at all sizes, so that none fits by chance. An operation is one of the built-in
families, or any elementwise operator of one or two floats. ``#`` begins a comment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import Parameter, signature
from typing import NoReturn

from tilewright.base.dtypes import f64
from tilewright.base.errors import BadProgram, ParseError
from tilewright.base.names import nearest, shown
from tilewright.ops import Operator, Trait
from tilewright.ops.operator import find
from tilewright.passes.rules.terms import Variable
from tilewright.passes.rules.text import read_declarations
from tilewright.superopt.generate.families import NORMALIZATION, TASO, TRANSFORMER, elementwise, unary
from tilewright.superopt.generate.operations import Family, Input, Operation
from tilewright.symbolic.expr import Const, Expr, Var
from tilewright.tensor.build import placeholder

_LARGEST = 16
"""Maximum extent: arrays are evaluated many thousand times."""
_FEWEST = 2
"""Minimum number of sizes."""


@dataclass(slots=True)
class _Block:
    """The lines of one family so far."""

    number: int
    name: str
    inputs: list[Input] = field(default_factory=list[Input])
    extents: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    operations: dict[str, Operation] = field(default_factory=dict[str, Operation])


def parse_families(text: str) -> list[Family]:
    """All families of a file. Raises ``ParseError`` with the line and the remedy."""
    blocks: list[_Block] = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.split("#", 1)[0].strip()
        keyword, _, rest = content.partition(" ")
        if keyword == "family":
            blocks.append(_Block(number, rest.strip()))
        elif content and not blocks:
            _fail(number, f"{shown(content)} stands before the first line of a family: write `family NAME`")
        elif content:
            _read(blocks[-1], number, keyword, rest.strip())
    return [_family(block) for block in blocks]


def _fail(number: int, reason: str) -> NoReturn:
    raise ParseError(f"line {number}: {reason}")


def _read(block: _Block, number: int, keyword: str, text: str) -> None:
    match keyword:
        case "extents":
            name, _, sizes = text.partition("=")
            block.extents[name.strip()] = tuple(_size(number, size.strip()) for size in sizes.split(","))
        case "for":
            block.inputs += [_input(number, variable) for variable in read_declarations(number, text)]
        case "operations":
            for name in text.split(","):
                block.operations |= {made.name: made for made in _operations(number, name.strip())}
        case _:
            _fail(number, f"{shown(keyword)} is none of extents, for, operations")


def _size(number: int, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:4]) <= _LARGEST:
        _fail(number, f"{shown(text)} is no size from 1 to {_LARGEST}; write `extents m = 2, 4, 6`")
    return int(text)


def _input(number: int, variable: Variable) -> Input:
    if variable.leading is not None:
        _fail(number, f"{variable.name} has leading dimensions: name each of them, as in `x[b, m]`")
    return Input(variable.name, tuple(_extent(number, extent) for extent in variable.shape), variable.is_weight)


def _extent(number: int, extent: Expr) -> str | int:
    match extent:
        case Var(name):
            return name
        case Const(value):
            return int(value)
        case _:
            _fail(number, f"the extent `{extent}` is neither a name nor a number")


def _operations(number: int, name: str) -> Iterator[Operation]:
    """The operation called ``name``; for the first half of a split, also the second half."""
    known = _built_in()
    if name in known:
        yield known[name]
        second = known[name].second_half
        if second is not None:
            yield known[second]
        return
    op = find(name)
    if op is None:
        near = nearest(name, known) or list(known)
        _fail(number, f"there is no operation {shown(name)}; there are {', '.join(near)}, and elementwise operators")
    count = _operands(op)
    if count not in (1, 2) or not _is_float(op, count):
        _fail(number, f"{name} is not elementwise with one or two floats; there are {', '.join(known)}")
    yield unary(name) if count == 1 else elementwise(name)


@cache
def _built_in() -> Mapping[str, Operation]:
    """The operations of the built-in families by name; for equal names, the one for most ranks."""
    return {made.name: made for family in (TASO, NORMALIZATION, TRANSFORMER) for made in family.operations}


def _operands(op: Operator) -> int:
    """The number of required operands of an elementwise operator (1 if variadic); 0 for other operators."""
    parameters = signature(op.function).parameters.values()
    needed = [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY and p.default is Parameter.empty]
    return len(needed) if op.has(Trait.ELEMENTWISE) else 0


def _is_float(op: Operator, count: int) -> bool:
    """Whether the operator maps floats to a float."""
    try:
        made = op.apply([placeholder((2,), f64, name) for name in "ab"[:count]], {})
    except BadProgram:
        return False
    return all(tensor.dtype == f64 for tensor in made)


def _family(block: _Block) -> Family:
    if not block.name or not block.inputs or not block.operations:
        _fail(block.number, "a family has a name, inputs (`for x[m, k]`) and operations (`operations Add, Mul`)")
    names = [made.name for made in block.inputs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        _fail(block.number, f"the family {block.name} declares {twice[0]} twice: give it another name")
    used = dict.fromkeys(extent for made in block.inputs for extent in made.shape if isinstance(extent, str))
    missing = [name for name in used if name not in block.extents]
    if missing:
        _fail(
            block.number,
            f"the family {block.name} does not say how large {missing[0]} is: `extents {missing[0]} = 2, 4`",
        )
    return Family(block.name, tuple(block.inputs), tuple(block.operations.values()), _choices(block))


def _choices(block: _Block) -> tuple[Mapping[str, int], ...]:
    counts = sorted({len(sizes) for sizes in block.extents.values()})
    if len(counts) > 1 or counts[:1] < [_FEWEST]:
        _fail(block.number, f"the family {block.name} needs as many sizes of each extent, at least {_FEWEST}")
    return tuple({name: sizes[at] for name, sizes in block.extents.items()} for at in range(counts[0]))
