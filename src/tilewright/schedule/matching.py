"""Matches a block with an intrinsic's description, and finds the regions of its operands.

The two bodies must have the same operations in the same order, and indices equal up to the start of the region. Values
are compared without algebra: ``a * b`` does not match ``b * a``, and the message names both.
"""

from collections.abc import Mapping, Sequence

from tilewright.loops.ir import Buffer, Region, Seq, Stmt, Store, Stores
from tilewright.loops.visit import children
from tilewright.schedule.tree import Refusal, depends_on, refuse
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ONE, Binary, Cast, Expr, Read, Select, Unary, Var
from tilewright.symbolic.simplify import equivalent, simplify
from tilewright.symbolic.traversal import substitute


class Matcher:
    """Matches statements over the intrinsic's axes ``inner`` (all other variables are fixed) with its pattern."""

    def __init__(self, intrinsic: str, inner: Sequence[Var], bounds: Bounds) -> None:
        self._intrinsic = intrinsic
        self._inner = frozenset(inner)
        self._bounds = bounds
        self._found: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {}

    def region(self, param: Buffer, sizes: Mapping[Var, Expr]) -> Region:
        """The region that a parameter of the description denotes; leading dimensions that it lacks are points.

        ``sizes``: the run-time extents of the description.
        """
        if param not in self._found:
            raise refuse(f"{self._intrinsic} has the parameter {param.name}, which its description does not use")
        buffer, starts = self._found[param]
        shape = [substitute(extent, sizes) for extent in param.shape]
        extents = [*[ONE] * (len(starts) - len(shape)), *shape]
        return Region(buffer, tuple(zip(starts, extents, strict=True)))

    def statement(self, stmt: Stmt, pattern: Stmt) -> None:
        """Refuse unless ``stmt`` matches ``pattern``."""
        match stmt, pattern:
            case Store(), Store():
                self._store(stmt, pattern)
            case (Stores(), Stores()) | (Seq(), Seq()):
                mine = stmt.stores if isinstance(stmt, Stores) else children(stmt)
                theirs = pattern.stores if isinstance(pattern, Stores) else children(pattern)
                if len(mine) != len(theirs):
                    raise refuse(f"the block stores {len(mine)} values, but {self._intrinsic} {len(theirs)}")
                for own, other in zip(mine, theirs, strict=True):
                    self.statement(own, other)
            case _:
                raise refuse(f"the block is a {type(stmt).__name__}, but {self._intrinsic} a {type(pattern).__name__}")

    def _store(self, store: Store, pattern: Store) -> None:
        try:
            self._access(store.buffer, store.indices, pattern.buffer, pattern.indices)
            self._value(store.value, pattern.value)
        except Refusal as refusal:
            text = f"the block stores `{_text(store)}`, but {self._intrinsic} `{_text(pattern)}`: {refusal.reason}"
            raise refuse(text) from refusal

    def _value(self, expr: Expr, pattern: Expr) -> None:
        match expr, pattern:
            case Read(Buffer() as buffer, indices), Read(Buffer() as param, places):
                self._access(buffer, indices, param, places)
            case (Unary(a, _), Unary(b, _)) | (Binary(a, _, _), Binary(b, _, _)) if a is not b:
                raise refuse(f"`{expr}` is not `{pattern}`")
            case (Unary(), Unary()) | (Binary(), Binary()) | (Select(), Select()) | (Cast(), Cast()):
                self._operands(expr, pattern)
            case _:
                if expr.dtype != pattern.dtype or not equivalent(expr, pattern, self._bounds):
                    raise refuse(f"`{expr}` is not `{pattern}`")

    def _operands(self, expr: Expr, pattern: Expr) -> None:
        if expr.dtype != pattern.dtype:
            raise refuse(f"`{expr}` is {expr.dtype}, but `{pattern}` is {pattern.dtype}")
        for own, other in zip(expr.operands(), pattern.operands(), strict=True):
            self._value(own, other)

    def _access(self, buffer: Buffer, indices: Sequence[Expr], param: Buffer, places: Sequence[Expr]) -> None:
        """``buffer[indices]`` is ``param[places]``: index minus place must be a fixed start."""
        mine, theirs = _element(buffer, indices), _element(param, places)
        leading = len(indices) - len(places)
        if buffer.dtype != param.dtype or leading < 0:
            raise refuse(f"`{buffer!r}` can't be passed as `{param!r}`")
        aligned = [*indices[:leading], *(i - p for i, p in zip(indices[leading:], places, strict=True))]
        starts = tuple(simplify(index, self._bounds) for index in aligned)
        if any(depends_on(start, self._inner) for start in starts):
            raise refuse(f"`{mine}` is not `{theirs}`")
        known = self._found.setdefault(param, (buffer, starts))
        if known != (buffer, starts):
            raise refuse(f"`{mine}` is not `{theirs}`, which is a part of {known[0].name} elsewhere")


def _element(buffer: Buffer, indices: Sequence[Expr]) -> str:
    return f"{buffer.name}[{', '.join(map(str, indices))}]"


def _text(store: Store) -> str:
    return f"{_element(store.buffer, store.indices)} = {store.value}"
