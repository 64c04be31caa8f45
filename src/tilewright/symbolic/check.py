"""``Check``: bounds checks of data-dependent indices, which are known only when they are read.

``Check(index, extent, origin)`` is ``index``, where that lies in ``0 .. extent - 1``; with ``from_end``, a negative
index counts from the end. Any other index is an error in the data: the interpreter and the evaluator of tensor
expressions raise ``IndexOutOfRange``, a kernel records the error and continues with 0, and the run raises at its end.
So the value is always within the extent, even if the data change meanwhile: the index is read once. Where an extent is
0 no value lies in it, and an access with such an index touches nothing.

It prints as ``check(p1[i], 30522, Gather.indices)``, or ``check_from_end(...)``.
"""

from dataclasses import dataclass, field

from tilewright.base.dtypes import DType
from tilewright.base.dtypes import index as index_dtype
from tilewright.base.errors import BadProgram, IndexOutOfRange
from tilewright.symbolic.expr import ZERO, Const, Expr, ExprLike, as_expr, cast, maximum, minimum, select


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of an index: the ``operand`` of an ``operator``.

    ``number`` distinguishes operators of one kernel with the same name.
    """

    operator: str
    operand: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.operator}.{self.operand}" + (f".{self.number}" if self.number else "")

    @staticmethod
    def parse(text: str) -> "Origin | None":
        """The origin that prints as ``text``; None if there is none."""
        parts = text.split(".")
        number = int(parts.pop()) if parts[-1].isdecimal() else 0
        if len(parts) < 2:
            return None
        *operator, operand = parts
        found = Origin(".".join(operator), operand, number)
        return found if str(found) == text else None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Check(Expr):
    """``index`` (counted from the end if negative and ``from_end``), checked to be in ``0 .. extent - 1``."""

    index: Expr
    extent: Expr
    origin: Origin
    from_end: bool = False
    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", index_dtype)
        # Like a read, it may fail: evaluate it only where its value is used.
        object.__setattr__(self, "_has_reads", True)

    def _key(self) -> tuple[object, ...]:
        return (self.index, self.extent, self.origin, self.from_end)

    def operands(self) -> tuple[Expr, ...]:
        return (self.index, self.extent)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        return checked(operands[0], operands[1], self.origin, from_end=self.from_end)

    def function(self) -> tuple[str, tuple[str, ...]]:
        return CHECK_FROM_END if self.from_end else CHECK, (str(self.origin),)

    def place(self, index: int, extent: int) -> int:
        """The position that ``index`` denotes. Raises ``IndexOutOfRange``."""
        position = index + extent if self.from_end and index < 0 else index
        if not 0 <= position < extent:
            raise IndexOutOfRange(str(self.origin), index, extent, from_end=self.from_end)
        return position


CHECK = "check"
CHECK_FROM_END = "check_from_end"


def checked(index: ExprLike, extent: ExprLike, origin: Origin, *, from_end: bool = False) -> Expr:
    """``index``, an integer, checked as a position in ``extent``; without a check if both are literals that fit.

    Its operands are read once: use it for every data-dependent index.
    """
    position, size = cast(as_expr(index), index_dtype), as_expr(extent)
    if isinstance(position, Const) and isinstance(size, Const):
        place = int(position.value) + (int(size.value) if from_end and position.value < 0 else 0)
        if 0 <= place < size.value:
            return as_expr(place)
    return Check(position, size, origin, from_end)


def clamped(check: Check) -> Expr:
    """The same position without a check: an index outside is clamped to the nearest end."""
    front = check.index
    if check.from_end:
        front = select(front < ZERO, front + check.extent, front)
    return maximum(minimum(front, check.extent - 1), ZERO)


def checked_index(index: ExprLike, extent: ExprLike, name: str, *, from_end: bool = False) -> Expr:
    """A data-dependent ``index``, checked as a position in ``extent``: ``T[te.checked_index(ids[i], n, "Embed.ids")]``.

    An index outside makes the run raise ``IndexOutOfRange``, which has ``name``: an operator and its operand, separated
    by a dot. ``from_end``: a negative index counts from the end. Raises ``BadProgram`` for another form of name.
    """
    origin = Origin.parse(name)
    if origin is None:
        raise BadProgram(f"{name!r} names no indices; write it as OPERATOR.OPERAND")
    return checked(index, extent, origin, from_end=from_end)
