"""What PyTorch assumed of sizes when it traced a program, as conditions: for other sizes, the trace computes something
else than the program.

A program that asks whether an image is larger than a window takes one of two ways, that of the example; so do PyTorch's
own definitions of operators. PyTorch keeps these questions as guards, of which it has a text in Python's notation.
"""

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from traceback import FrameSummary
from typing import Final

import torch
from torch.export import ExportedProgram

from tilewright.base.names import readable
from tilewright.frontend.onnx.read.noted_sizes import Form


def conditions(program: ExportedProgram, dimensions: Mapping[str, Sequence[str]]) -> list[Form]:
    """What must not be negative, in terms of ``dimensions``: the names of those of each input."""
    names, texts = dict[str, str](), dict[str, None]()
    for size, name in _open_sizes(program, dimensions):
        texts.update(
            (str(guard.expr), None) for guard in size.node.shape_env.guards if _decides(guard.sloc.framework_loc)
        )
        if str(size).isidentifier():
            names[str(size)] = name
    return [*dict.fromkeys(form for text in texts if (form := _condition(text, names)) is not None)]


_TORCH: Final = str(Path(torch.__file__).parent) + os.sep
_DEFINITIONS: Final = ("_decomp", "_refs", "functional.py", os.path.join("nn", "functional.py"))
"""Where PyTorch defines operators by others, in its folder. Elsewhere it asks how tensors lie in memory."""


def _decides(where: object) -> bool:
    """Whether the program asked, or a definition of an operator; ``where``: the innermost call in Python."""
    if not isinstance(where, FrameSummary) or not where.filename.startswith(_TORCH):
        return True
    return where.filename.removeprefix(_TORCH).startswith(_DEFINITIONS)


def _open_sizes(
    program: ExportedProgram, dimensions: Mapping[str, Sequence[str]]
) -> Iterator[tuple[torch.SymInt, str]]:
    """PyTorch's sizes of inputs, and the model's names of these."""
    for node in program.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if isinstance(value, torch.Tensor):
            pairs = zip(value.shape, dimensions.get(node.name, ()), strict=False)
            yield from ((size, name) for size, name in pairs if isinstance(size, torch.SymInt))


def _condition(guard: str, names: Mapping[str, str]) -> Form | None:
    """None if the guard is about something else than sizes of inputs, or only about how PyTorch computes.

    Equal products and quotients are about shapes that must fit, which is checked elsewhere. That an extent is not 1
    or 0 is about broadcasting and layouts, which ONNX and Tilewright decide anew.
    """
    tree = ast.parse(guard, mode="eval").body
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - _FUNCTIONS
    if not own or not own <= names.keys() or _is_about_one(tree) or _is_about_quotients(tree):
        return None
    try:
        return _Reader(names).holds(tree)
    except _NoFormError:
        return None


def _is_about_one(tree: ast.expr) -> bool:
    match tree:
        case ast.Call(func=ast.Name(id="Ne"), args=[size, ast.Constant(value=0 | 1)]):
            return not any(isinstance(node, ast.Name) and node.id in _REMAINDERS for node in ast.walk(size))
        case ast.Compare(ops=[op], comparators=[ast.Constant(value=int(least))]):
            return (isinstance(op, ast.GtE) and least <= _MORE_THAN_ONE) or (
                isinstance(op, ast.Gt) and least < _MORE_THAN_ONE
            )
        case _:
            return False


def _is_about_quotients(tree: ast.expr) -> bool:
    match tree:
        case ast.Call(func=ast.Name(id="Eq" | "Ne")):
            return any(isinstance(node, ast.FloorDiv) for node in ast.walk(tree))
        case _:
            return False


class _NoFormError(Exception):
    """A guard has an operation that conditions do not have."""


_MORE_THAN_ONE: Final = 2
_REMAINDERS: Final = {"Mod", "PythonMod"}
_CALLS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_REMAINDERS, "%"),
    "FloorDiv": "//",
    "CleanDiv": "//",
    "Max": "max",
    "Min": "min",
}
_FUNCTIONS: Final = {"Eq", "Ne", "ModularIndexing", *_CALLS}
_OPERATORS: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_NEGATED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.GtE: ast.Lt,
    ast.Lt: ast.GtE,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


class _Reader:
    """Reads guards about sizes of these names."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def holds(self, tree: ast.expr, negated: bool = False) -> Form:
        """What is not negative where the condition holds, or where it does not."""
        match tree:
            case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=inside):
                return self.holds(inside, not negated)
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() as op, right=right):
                both = self.holds(left, negated), self.holds(right, negated)
                return ("min" if isinstance(op, ast.BitAnd) != negated else "max", *both)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _NEGATED:
                kind = _NEGATED[type(op)] if negated else type(op)
                return _compared(kind, self._number(left), self._number(right))
            case ast.Call(func=ast.Name(id="Eq" | "Ne" as name), args=[left, right]):
                kind = ast.Eq if (name == "Eq") != negated else ast.NotEq
                return _compared(kind, self._number(left), self._number(right))
            case _:
                raise _NoFormError(readable(ast.unparse(tree)))

    def _number(self, tree: ast.expr) -> Form:
        match tree:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return self._names[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return ("-", 0, self._number(operand))
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int(power))) if 0 < power <= _HIGHEST:
                return reduce(lambda a, b: ("*", a, b), [self._number(base)] * power)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _applied(_OPERATORS[type(op)], self._number(left), self._number(right))
            case ast.Call(func=ast.Name(id="ModularIndexing"), args=[number, divisor, modulus]):
                quotient = _applied("//", self._number(number), self._number(divisor))
                return _applied("%", quotient, self._number(modulus))
            case ast.Call(func=ast.Name(id=name), args=[*operands]) if name in _CALLS and operands:
                return reduce(lambda a, b: _applied(_CALLS[name], a, b), map(self._number, operands))
            case _:
                raise _NoFormError(readable(ast.unparse(tree)))


_HIGHEST: Final = 8
"""Maximum power of a size."""


def _applied(operation: str, a: Form, b: Form) -> Form:
    """Raises ``_NoFormError`` for a division by anything but a positive number."""
    if operation in ("//", "%") and not (isinstance(b, int) and b > 0):
        raise _NoFormError(f"a division by {b}")
    return (operation, a, b)


def _compared(kind: type[ast.cmpop], a: Form, b: Form) -> Form:
    ahead, behind = ("-", a, b), ("-", b, a)
    found: Mapping[type[ast.cmpop], Form] = {
        ast.GtE: ahead,
        ast.LtE: behind,
        ast.Gt: ("-", ahead, 1),
        ast.Lt: ("-", behind, 1),
        ast.Eq: ("min", ahead, behind),
        ast.NotEq: ("-", ("max", ahead, behind), 1),
    }
    return found[kind]
