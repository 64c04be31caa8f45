"""Operators without native code: Python functions of arrays, which are called between native parts of a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadInput
from tilewright.ops.hosted import HostOperator
from tilewright.ops.operator import FusionKind
from tilewright.tensor import build as te
from tilewright.tensor.ir import Tensor


@dataclass(frozen=True, slots=True)
class TensorType:
    """The element type and the shape of an array."""

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


Call: TypeAlias = Callable[[Sequence[Array]], Sequence[object]]


class Caller(Enum):
    """What computes the results of such a function."""

    PYTHON = "python"
    ACCELERATOR = "accelerator"
    LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class CalledOperator(HostOperator):
    """A function of arrays; ``results``: the types of what it returns; ``by``: what computes them."""

    call: Call = tuple
    results: tuple[TensorType, ...] = ()
    by: Caller = Caller.PYTHON

    def __hash__(self) -> int:
        return hash(self.name)

    def on(self, arrays: Sequence[Array], place: str) -> list[Array]:
        """The results for ``arrays``, contiguous. Raises ``BadInput`` if they are of other types than declared.

        What the function itself raises gets a note with the place.
        """
        try:
            found = self.call([_read_only(array) for array in arrays])
        except Exception as error:
            what = "the Python function of the operator" if self.by is Caller.PYTHON else "the device that runs"
            error.add_note(f"{place}: raised by {what} {self.name}")
            raise
        made = [np.ascontiguousarray(one) for one in found]
        if len(made) != len(self.results) or not all(map(_has, made, self.results)):
            given = ", ".join(f"{array.dtype}{list(array.shape)}" for array in made)
            wanted = ", ".join(map(str, self.results))
            raise BadInput(f"{place}: the function of {self.name} returned {given}, and {wanted} was declared")
        return made


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _has(array: Array, kind: TensorType) -> bool:
    return array.dtype == kind.dtype.numpy and array.shape == kind.shape


def called(name: str, call: Call, results: Sequence[TensorType]) -> CalledOperator:
    """The operator; its te function only says which types its results have."""

    def types(*inputs: Tensor) -> tuple[Tensor, ...]:
        del inputs
        return tuple(te.placeholder(one.shape, one.dtype) for one in results)

    return CalledOperator(name, types, FusionKind.OPAQUE, call=call, results=tuple(results))
