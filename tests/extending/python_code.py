"""A back end in one file: kernels as Python text, as ``docs/extending.md`` shows it."""

from collections.abc import Mapping
from functools import partial
from math import inf, nan

import numpy as np

from tilewright.backend.hosted import HostedBackend, Kernel
from tilewright.base.arrays import Array
from tilewright.base.dtypes import Kind
from tilewright.base.errors import Unsupported
from tilewright.loops.dissolve import dissolve
from tilewright.loops.ir import Alloc, Buffer, If, Loop, Seq, Stmt, Store, Stores
from tilewright.loops.program import Program
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Extent, Read, Select, Unary, Var
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.target.target import Target

_INFIX = {op: op.value for op in BinaryOp if not op.value.isalpha()}
_CALLED = {
    BinaryOp.MIN: "np.minimum",
    BinaryOp.MAX: "np.maximum",
    BinaryOp.POW: "np.power",
    UnaryOp.NEG: "-",
    UnaryOp.SQRT: "np.sqrt",
    UnaryOp.EXP: "np.exp",
    UnaryOp.TANH: "np.tanh",
}


class PythonCode(HostedBackend):
    """Writes one Python function for each kernel, with a loop for each loop."""

    name = "python"

    def write(self, program: Program, target: Target) -> str:
        names = {buffer: f"b{number}" for number, buffer in enumerate(program.params)}
        lines = ["def kernel(arrays, extents):"]
        lines += [f"    {name} = arrays[{buffer.name!r}]" for buffer, name in names.items()]
        return "\n".join([*lines, *_Writer(names).lines(dissolve(program.body), "    "), ""])

    def load(self, program: Program, text: str) -> Kernel:
        names = {"np": np, "inf": inf, "nan": nan}
        exec(text, names)  # it is our own text: all names in it are numbered
        return partial(_quietly, names["kernel"])


def _quietly(kernel: Kernel, arrays: Mapping[str, Array], extents: Mapping[str, int]) -> None:
    with np.errstate(all="ignore"):
        kernel(arrays, extents)


class _Writer:
    def __init__(self, buffers: dict[Buffer, str]) -> None:
        self._buffers = buffers
        self._variables: dict[Var, str] = {}

    def lines(self, stmt: Stmt, indent: str) -> list[str]:
        inside = f"{indent}    "
        match stmt:
            case Seq(stmts):
                return [line for part in stmts for line in self.lines(part, indent)] or [f"{indent}pass"]
            case Loop(var, extent, body):
                self._variables[var] = f"i{len(self._variables)}"
                return [f"{indent}for {self._variables[var]} in range({self.text(extent)}):", *self.lines(body, inside)]
            case If(condition, then, None):
                return [f"{indent}if {self.text(condition)}:", *self.lines(then, inside)]
            case If(condition, then, other):
                lines = [f"{indent}if {self.text(condition)}:", *self.lines(then, inside), f"{indent}else:"]
                return [*lines, *self.lines(other, inside)]
            case Alloc(buffer, body):
                self._buffers[buffer] = f"b{len(self._buffers)}"
                shape = ", ".join(map(self.text, buffer.shape))
                made = f"np.empty([{shape}], np.{buffer.dtype.numpy})"
                return [f"{indent}{self._buffers[buffer]} = {made}", *self.lines(body, indent)]
            case Store(buffer, indices, value):
                return [f"{indent}{self._element(buffer, indices)} = {self.text(value)}"]
            case Stores(stores):
                targets = ", ".join(self._element(store.buffer, store.indices) for store in stores)
                return [f"{indent}{targets} = {', '.join(self.text(store.value) for store in stores)}"]
            case _:
                raise Unsupported(f"Python text has no {type(stmt).__name__}")

    def text(self, expr: Expr) -> str:
        match expr:
            case Const(value, dtype):
                return f"np.{dtype.numpy}({value})" if dtype.kind is Kind.FLOAT else str(value)
            case Extent():
                return f"extents[{expr.name!r}]"
            case Var():
                return self._variables[expr]
            case Binary(op, a, b) if op in _INFIX:
                return f"({self.text(a)} {_INFIX[op]} {self.text(b)})"
            case Binary(op, a, b) if op in _CALLED:
                return f"{_CALLED[op]}({self.text(a)}, {self.text(b)})"
            case Unary(op, a) if op in _CALLED:
                return f"{_CALLED[op]}({self.text(a)})"
            case Select(condition, a, b):
                return f"({self.text(a)} if {self.text(condition)} else {self.text(b)})"
            case Cast(a, dtype):
                return f"np.{dtype.numpy}({self.text(a)})"
            case Read(Buffer() as buffer, indices):
                return self._element(buffer, indices)
            case _:
                raise Unsupported(f"Python text has no form for {expr}")

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        return f"{self._buffers[buffer]}[{', '.join(map(self.text, indices)) or '()'}]"


PYTHON = PythonCode()
