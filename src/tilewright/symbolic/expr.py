"""Scalar expressions: the leaves of tensor expressions and of loop programs.

Grammar
-------
::

    expr   = Const(value, dtype) | Var(name, dtype) | Extent(name, dtype, label) | Symbol(name, dtype)
           | Unary(op, a) | Binary(op, a, b) | Select(condition, a, b)
           | Cast(a, dtype) | Read(source, indices) | Check(index, extent)    (the last: ``check``)

Meaning
-------
- Expressions have no effects, so the order of evaluation is free. ``Select`` evaluates only the chosen side: the other
  one may be out of bounds. ``AND`` and ``OR`` on booleans short-circuit.
- Both operands of a ``Binary`` have one dtype; a Python number takes the dtype of the other operand.
- Integers wrap around modulo 2**bits; literals of dtype ``index`` raise instead.
- ``FLOORDIV`` and ``MOD`` round towards minus infinity (``-7 // 2 == -4``, ``-7 % 2 == 1``); by zero, both are 0.
  ``MIN // -1`` wraps to ``MIN``. ``TRUNCDIV`` and ``TRUNCMOD`` round towards zero, as ONNX and C do, and are 0 by zero.
- A shift by the width or more (or by a negative amount) gives 0, or -1 for ``>>`` of a negative number.
- Floats are IEEE 754; ``a * b + c`` may be contracted to one rounding; no other reassociation is allowed. ``MIN`` and
  ``MAX`` give NaN where an operand is NaN.
- ``flush`` is 0 of the same sign for subnormal numbers of f32 and f64, and the number itself for others.
- ``Cast`` from float to integer truncates and saturates, NaN becomes 0; to bool it means ``!= 0``.
- Variables have three kinds, and variables of different kinds are never equal, even with equal names: a ``Var`` is
  local (a loop, an axis, an operand of a reducer), an ``Extent`` is an input (a dimension of a model, a ``te.var``)
  known at run time, a ``Symbol`` is an extent in a rewrite rule.
- ``Read`` out of the source's shape is an error: the interpreter and checked code raise, unchecked code is undefined.

Two expressions are equal (``==``, and as keys) if they have the same structure; ``<``, ``<=``, ``>``, ``>=`` build
expressions, as do ``equal`` and ``not_equal``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadDTypes, BadProgram
from tilewright.base.exact import float_bits
from tilewright.base.names import quoted, readable, shown
from tilewright.symbolic.folding import Operand, Scalar, folded, wrap
from tilewright.symbolic.operations import (
    COMPARISONS,
    PRECEDENCE,
    BinaryOp,
    UnaryOp,
    binary_has_meaning,
    unary_has_meaning,
)
from tilewright.symbolic.python_operators import PythonOperators
from tilewright.symbolic.sharing import size_of


class Arithmetic(PythonOperators):
    """An object that denotes a scalar (an ``Expr``, an axis): Python's operators build expressions of it."""

    __slots__ = ()

    def as_expr(self) -> "Expr":
        """The expression that this object denotes. Raises ``BadProgram`` if there is none."""
        raise BadProgram(f"`{self}` stands for no scalar expression")

    def binary(self, op: BinaryOp, other: "ExprLike") -> "Expr":
        """``self op other``."""
        return binary(op, self, other)

    def reflected(self, op: BinaryOp, other: "ExprLike") -> "Expr":
        """``other op self``."""
        return binary(op, other, self)

    def unary(self, op: UnaryOp) -> "Expr":
        """``op(self)``."""
        return unary(op, self)

    def astype(self, dtype: DType) -> "Expr":
        """This value cast to ``dtype``."""
        return cast(self, dtype)


ExprLike: TypeAlias = Arithmetic | bool | int | float


class Expr(Arithmetic):
    """Base of all scalar expressions: immutable, hashable by structure, with a ``dtype``.

    Attributes that every pass uses are cached: the hash, the variables, whether there is a read.
    """

    __slots__ = ("_has_reads", "_hash", "_shape_variables", "_variables")
    _has_reads: bool
    _hash: int
    _shape_variables: "frozenset[Var]"
    _variables: "frozenset[Var]"
    dtype: DType

    def operands(self) -> "tuple[Expr, ...]":
        """The direct operands."""
        return ()

    def _key(self) -> tuple[object, ...]:
        """The fields that distinguish this expression from others of its class: its operands, and further ones."""
        return self.operands()

    def as_expr(self) -> "Expr":
        return self

    def with_operands(self, operands: "tuple[Expr, ...]") -> "Expr":
        """This expression with other operands; itself if it has none."""
        return self

    def function(self) -> "tuple[str, tuple[str, ...]]":
        """The text of this expression, from a function that prints operands and one that prints names."""
        return object.__repr__(self), ()

    @property
    def variables(self) -> "frozenset[Var]":
        """All variables in this expression."""
        try:
            return self._variables
        except AttributeError:
            found = _union([operand.variables for operand in self.operands()])
            object.__setattr__(self, "_variables", found)
            return found

    @property
    def shape_variables(self) -> "frozenset[Var]":
        """All variables in the shapes of what is read in this expression."""
        if not self.has_reads:
            return frozenset()
        try:
            return self._shape_variables
        except AttributeError:
            shape = self.source.shape if isinstance(self, Read) else ()
            own = [extent.variables for extent in shape]
            found = _union([*own, *(operand.shape_variables for operand in self.operands())])
            object.__setattr__(self, "_shape_variables", found)
            return found

    @property
    def has_reads(self) -> bool:
        """Whether this expression contains a ``Read`` or a ``Check``, which must not be evaluated needlessly."""
        try:
            return self._has_reads
        except AttributeError:
            found = isinstance(self, Read) or any(operand.has_reads for operand in self.operands())
            object.__setattr__(self, "_has_reads", found)
            return found

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            value = hash(self._key())
            object.__setattr__(self, "_hash", value)
            return value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        assert isinstance(other, Expr)
        return self._key() == other._key()

    def __bool__(self) -> bool:
        raise BadProgram(f"{self} is known only at run time; use te.select, `&` and `|`, not `if`, `and`, `or`")

    def __str__(self) -> str:
        if self.operands() and not (size := size_of(self)).is_allowed:
            return f"<an expression of {size}>"
        return format_expr(self, name=given_name)

    __repr__ = __str__


def _union(sets: "list[frozenset[Var]]") -> "frozenset[Var]":
    """The union of ``sets``; one of them if it contains all others."""
    largest = max(sets, key=len) if sets else frozenset[Var]()
    return largest if all(one <= largest for one in sets) else largest.union(*sets)


class Source:
    """The source of a ``Read``: a tensor of a tensor expression, or a buffer of a loop program."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    """A literal. The value is a Python bool for bool, int for integers, float for floats."""

    value: Scalar
    dtype: DType

    def _key(self) -> tuple[object, ...]:
        return (float_bits(self.value) if self.dtype.is_float else self.value, self.dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    """A named scalar: a loop variable, a block's iteration variable. Equal by kind (the class), name and dtype."""

    name: str
    dtype: DType = dtypes.index

    def _key(self) -> tuple[object, ...]:
        return (self.name, self.dtype)

    @property
    def token(self) -> str:
        """The name as it is written in programs."""
        return self.name

    @property
    def given(self) -> str:
        """The name for messages."""
        return self.name

    @property
    def unique(self) -> str:
        """A text that no other variable of any kind has, in alphabetical order of names."""
        return self.name

    @property
    def variables(self) -> "frozenset[Var]":
        try:
            return self._variables
        except AttributeError:
            found = frozenset((self,))
            object.__setattr__(self, "_variables", found)
            return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Extent(Var):
    """A scalar known at run time: never equal to a ``Var``, even with the same name.

    ``name`` is the name in compiled programs, ``label`` that in messages (empty: the same). The importer numbers the
    extents of a model, so that only messages and manifests depend on the names of dimensions. ``least``: its least
    value, which the runtime enforces.
    """

    label: str = ""
    least: int = 0

    def _key(self) -> tuple[object, ...]:
        return (self.name, self.dtype, self.label, self.least)

    @property
    def token(self) -> str:
        return quoted(self.name)

    @property
    def unique(self) -> str:
        return f"{self.name}\0{self.label}" + (f"\0{self.least}" if self.least else "")

    @property
    def given(self) -> str:
        return self.label or self.name

    def unlabelled(self) -> "Extent":
        """The extent's name in programs."""
        return Extent(self.name, self.dtype, least=self.least)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Symbol(Extent):
    """An extent in a rewrite rule: never equal to an extent of the graphs to which the rule is applied."""

    @property
    def token(self) -> str:
        return self.name

    @property
    def unique(self) -> str:
        return f"{self.name}\1"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Factor(Extent):
    """An extent that is at least 1: the size of a tile that is decided later."""

    least: int = 1

    @property
    def unique(self) -> str:
        return f"{self.name}\2"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Expr):
    """``op(a)``."""

    op: UnaryOp
    a: Expr
    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        is_test = self.op in (UnaryOp.ISNAN, UnaryOp.ISINF)
        object.__setattr__(self, "dtype", dtypes.boolean if is_test else self.a.dtype)

    def _key(self) -> tuple[object, ...]:
        return (self.op, self.a)

    def operands(self) -> tuple[Expr, ...]:
        return (self.a,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Expr):
    """``a op b``; both operands have one dtype."""

    op: BinaryOp
    a: Expr
    b: Expr
    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtypes.boolean if self.op in COMPARISONS else self.a.dtype)
        # Most literals are cached; testing for a missing hash would take longer than computing it.
        object.__setattr__(self, "_hash", hash((self.op, self.a, self.b)))

    def _key(self) -> tuple[object, ...]:
        return (self.op, self.a, self.b)

    def operands(self) -> tuple[Expr, ...]:
        return (self.a, self.b)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Expr):
    """``a`` where ``condition`` holds, else ``b``; the other side is not evaluated."""

    condition: Expr
    a: Expr
    b: Expr
    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", self.a.dtype)

    def operands(self) -> tuple[Expr, ...]:
        return (self.condition, self.a, self.b)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
    """``a`` converted to ``dtype``."""

    a: Expr
    dtype: DType

    def _key(self) -> tuple[object, ...]:
        return (self.a, self.dtype)

    def operands(self) -> tuple[Expr, ...]:
        return (self.a,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Read(Expr):
    """``source[indices]``; the indices have dtype ``index``."""

    source: Source
    indices: tuple[Expr, ...]
    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", self.source.dtype)

    def _key(self) -> tuple[object, ...]:
        return (self.source, self.indices)

    def operands(self) -> tuple[Expr, ...]:
        return self.indices


TRUE = Const(True, dtypes.boolean)
FALSE = Const(False, dtypes.boolean)
ZERO = Const(0, dtypes.index)
ONE = Const(1, dtypes.index)


def const(value: Scalar, dtype: DType = dtypes.index) -> Const:
    """The literal ``value`` of type ``dtype``. Raises ``BadProgram`` if an integer type can't hold it."""
    if not isinstance(value, _NUMBERS):
        raise BadProgram(f"{shown(value)} is no scalar; give a number, or an expression of one")
    if dtype.is_bool:
        return TRUE if value else FALSE
    if not dtype.is_float:
        return _integer(value, dtype)
    try:
        return Const(float(value), dtype)
    except OverflowError as error:
        raise BadProgram(f"{shown(value)} does not fit in {dtype}") from error


_NUMBERS: tuple[type, ...] = (bool, int, float, np.bool_, np.integer, np.floating)


@lru_cache(maxsize=4096)
def _integer(value: Scalar, dtype: DType) -> Const:
    """Not cached: a cache of floats would take 0.0 and -0.0 for equal."""
    if not dtype.min <= value <= dtype.max or value != int(value):
        raise BadProgram(f"{shown(value)} does not fit in {dtype}")
    return Const(int(value), dtype)


def as_expr(value: ExprLike, dtype: DType = dtypes.index) -> Expr:
    """``value`` as an expression; a Python number becomes a literal of ``dtype``."""
    return value.as_expr() if isinstance(value, Arithmetic) else const(value, dtype)


def _pair(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    if isinstance(a, Arithmetic):
        left = a.as_expr()
        return left, as_expr(b, left.dtype)
    right = as_expr(b)
    return as_expr(a, right.dtype), right


def binary(op: BinaryOp, a: ExprLike, b: ExprLike) -> Expr:
    """``a op b``, literals folded. Raises ``BadProgram`` if the dtypes differ or ``op`` is not defined for them."""
    left, right = (a, b) if isinstance(a, Expr) and isinstance(b, Expr) else _pair(a, b)
    dtype = left.dtype
    if dtype is not right.dtype and dtype != right.dtype:
        raise BadDTypes(f"`{left} {op.value} {right}` mixes {dtype} and {right.dtype}; cast one with .astype(...)")
    if not binary_has_meaning(op, dtype):
        raise BadDTypes(f"`{op.value}` has no meaning for {dtype} (in `{left} {op.value} {right}`)")
    x = left.value if isinstance(left, Const) else None
    y = right.value if isinstance(right, Const) else None
    found = None if x is None and y is None else folded(op, x, y, dtype)
    if found is None:
        return Binary(op, left, right)
    if isinstance(found, Operand):
        return left if found is Operand.FIRST else right
    if isinstance(found, bool):
        return TRUE if found else FALSE
    return _integer(found, dtype)


def unary(op: UnaryOp, a: ExprLike) -> Expr:
    """``op(a)``. Raises ``BadProgram`` if ``op`` is not defined for the dtype of ``a``."""
    operand = as_expr(a)
    dtype = operand.dtype
    if not unary_has_meaning(op, dtype):
        raise BadDTypes(f"`{op.value}` has no meaning for {dtype} (in `{op.value}({operand})`)")
    if op is UnaryOp.NEG and isinstance(operand, Const) and dtype.is_int:
        return Const(wrap(-int(operand.value), dtype), dtype)
    if op is UnaryOp.NOT and isinstance(operand, Const) and dtype.is_bool:
        return FALSE if operand.value else TRUE
    return Unary(op, operand)


def select(condition: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    """``a if condition else b``; only the chosen side is evaluated, so it may guard an index."""
    test = as_expr(condition, dtypes.boolean)
    left, right = _pair(a, b)
    if not test.dtype.is_bool or left.dtype != right.dtype:
        given = f"{test.dtype}, {left.dtype}, {right.dtype}"
        raise BadDTypes(f"select needs a bool and two values of one dtype, not {given}")
    if isinstance(test, Const):
        return left if test.value else right
    return Select(test, left, right)


def cast(a: ExprLike, dtype: DType) -> Expr:
    """``a`` converted to ``dtype`` (see the module's notes on saturation)."""
    operand = as_expr(a)
    if isinstance(operand, Const) and operand.dtype.is_int and dtype.is_int:
        return Const(wrap(int(operand.value), dtype), dtype)
    return operand if operand.dtype == dtype else Cast(operand, dtype)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The smaller; NaN if either is."""
    return binary(BinaryOp.MIN, a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The larger; NaN if either is."""
    return binary(BinaryOp.MAX, a, b)


def equal(a: ExprLike, b: ExprLike) -> Expr:
    """``a == b`` as an expression."""
    return binary(BinaryOp.EQ, a, b)


def not_equal(a: ExprLike, b: ExprLike) -> Expr:
    """``a != b`` as an expression."""
    return binary(BinaryOp.NE, a, b)


_NAN = float_bits(float("nan"))


def format_const(node: Const) -> str:
    """A literal as printed: plain for ``index`` and bool, ``f32(0.5)`` for all other dtypes.

    A NaN other than the default one is printed with its bits: ``f32(nan:9221120237041090561)``.
    """
    if node.dtype in (dtypes.index, dtypes.boolean):
        return str(node.value)
    if node.value != node.value and float_bits(node.value) != _NAN:
        return f"{node.dtype}(nan:{float_bits(node.value)})"
    return f"{node.dtype}({node.value!r})"


def token(variable: Var) -> str:
    """A variable's name in programs."""
    return variable.token


def given_name(variable: Var) -> str:
    """A variable's name in messages."""
    return readable(variable.given)


def unique_text(expr: Expr) -> str:
    """A sort key: a text that differs between different expressions."""
    return format_expr(expr, name=lambda variable: variable.unique)


def format_expr(
    expr: Expr,
    precedence: int = 0,
    literal: Callable[[Const], str] = format_const,
    name: Callable[[Var], str] = token,
) -> str:
    """The text of ``expr``; in parentheses where its outermost operator binds weaker than ``precedence``."""

    def text(operand: Expr, around: int = 0) -> str:
        return format_expr(operand, around, literal, name)

    match expr:
        case Const():
            return literal(expr)
        case Var():
            return name(expr)
        case Read(source, indices):
            return f"{source.name}[{', '.join(map(text, indices))}]"
        case Cast(a, dtype):
            return f"{dtype}({text(a)})"
        case Select(condition, a, b):
            return f"select({text(condition)}, {text(a)}, {text(b)})"
        case Unary(op, a):
            return f"{op.value}({text(a)})"
        case Binary(op, a, b) if op in PRECEDENCE:
            own = PRECEDENCE[op]
            infix = f"{text(a, own + (op in COMPARISONS))} {op.value} {text(b, own + 1)}"
            return f"({infix})" if own < precedence else infix
        case Binary(op, a, b):
            return f"{op.value}({text(a)}, {text(b)})"
        case _:
            function, names = expr.function()
            return f"{function}({', '.join([*map(text, expr.operands()), *names])})"
