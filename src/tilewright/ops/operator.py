"""The class of operators, and the table of all operators.

An operator is one Python function from tensors (and attributes, as keyword arguments) to tensors. The te program that
it returns defines its shape and dtype rules, its semantics and its reference code.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, Flag
from functools import lru_cache
from inspect import Parameter, Signature, signature
from typing import TypeAlias, TypeVar

from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram, InternalError
from tilewright.symbolic.expr import Const, Expr
from tilewright.tensor.ir import Tensor

Attribute: TypeAlias = (
    bool
    | int
    | float
    | str
    | DType
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[str, ...]
    | Expr
    | tuple[int | Expr, ...]
    | None
)
Attributes: TypeAlias = Mapping[str, Attribute]


def map_expressions(value: Attribute, change: Callable[[Expr], int | Expr]) -> Attribute:
    """``value`` with ``change`` applied to the expressions in it."""
    if isinstance(value, Expr):
        return change(value)
    if isinstance(value, tuple) and any(isinstance(item, Expr) for item in value):
        integers = [item for item in value if isinstance(item, int | Expr)]
        return tuple(change(item) if isinstance(item, Expr) else item for item in integers)
    return value


def entries_of(attribute: Attribute, count: int, default: int) -> tuple[int, ...]:
    """The entries of an attribute that a node may leave out; -1 in place of what is known only at run time."""
    if not isinstance(attribute, tuple) or not attribute:
        return (default,) * count
    return tuple(int(str(entry)) if isinstance(entry, int | Const) else -1 for entry in attribute)


Function: TypeAlias = Callable[..., Tensor | tuple[Tensor, ...]]
Decorated = TypeVar("Decorated", bound=Function)


class FusionKind(Enum):
    """How an operator may be fused with others into one kernel (TVM's pattern kinds, Chen et al. 2018)."""

    VIEW = "view"
    """Only re-indexes elements (reshape, transpose): folded into the indices of its consumers."""
    INJECTIVE = "injective"
    """Each output element is a function of single input elements: inlined into its consumers, or an epilogue."""
    REDUCTION = "reduction"
    """Reduces rows, possibly several times (softmax, normalizations): elementwise producers are inlined."""
    CONTRACTION = "contraction"
    """A sum of products: the anchor of a kernel; injective consumers become its epilogue."""
    OPAQUE = "opaque"
    """Has a body in loop IR, or gathers by data: never fused."""


class Trait(Flag):
    """Declared properties of an operator, which would be expensive to derive from its te program."""

    NONE = 0
    ELEMENTWISE = 1
    """One result, whose elements are functions of all inputs' elements at the same positions, with broadcasting."""
    COMMUTATIVE = 2
    """Commutative: swapping the inputs gives the same result, bit for bit."""
    MOVES = 4
    """Each element of the result is one of an input, selected by attributes and shapes."""
    NEUTRAL = 8
    """If the result has the dtype and the shape of the first input, it equals that input."""
    SUMS_CHANNELS = 16
    """Channels are the second dimension of data and result. Each channel of the result has its own filter, along the
    first dimension of the second input ``[filters, channels of a group, taps...]``, which is multiplied with the data
    around each position and summed. Attribute ``group``: the number of groups of channels. Its kernel can work on
    blocks of channels, and store them blocked or plain."""
    REGROUPS = 32
    """The elements of the first input in row-major order, usually in another shape."""
    FLAT_AXES = 64
    """What it does over several axes that lie side by side, it does over one of as many elements, and so for all axes
    that follow. It reduces ``axes``; if it is ``LIKE_FIRST``, it normalizes ``axis``, or with parameters beside the
    data, all axes from ``axis`` on."""
    RELOCATES = 128
    """Each element of the result is one of an input or a constant, mostly from another place: not by broadcasting."""
    DIVIDES = 256
    """Divides by its second input."""
    LIKE_FIRST = 512
    """The first result has the shape of the first input."""
    POOLS = 1024
    """Reduces, in each channel, a window around each position of ``[batch, channels, spatial...]``. The attributes of
    windows are those of a convolution, and ``kernel_shape`` and ``ceil_mode``."""
    COMPOSITE = 2048
    """Is computed by nodes of other operators, which an alternative makes (``passes/alternatives``), and which have
    alternatives and layouts of their own."""
    STORES_BLOCKS = 4096
    """A sum over channels, with its filters packed for it, that can be computed in blocks of channels; its kernel can
    store these plain."""
    WIDENS = 8192
    """The elements of the first input in a wider type: constants stay narrow until it is known who reads them."""


@dataclass(frozen=True, slots=True)
class BatchAxis:
    """The dimension of each operand, and of the result, that is this batch axis; None for operands shared along it."""

    operands: tuple[int | None, ...]
    result: int


@dataclass(frozen=True, slots=True)
class Batch:
    """An operator applies the same function to each position along ``axes``, independently of the others.

    ``attributes``: those of the operator without these dimensions, or with extent 1 if it ``keeps`` them.
    """

    axes: tuple[BatchAxis, ...]
    attributes: Attributes
    keeps: bool = False


Batched: TypeAlias = Callable[[Attributes, Sequence[tuple[int, ...]]], Batch | None]
"""From attributes and the operands' shapes, which may be invalid, to the batch axes; None if unknown."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A named te function and its properties; ``batched``: its batch axes if it is not elementwise."""

    name: str
    function: Function
    kind: FusionKind
    traits: Trait = Trait.NONE
    batched: Batched | None = None

    def has(self, trait: Trait) -> bool:
        """Whether all flags of ``trait`` are declared."""
        return trait in self.traits

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Of the function: operands, then attributes (keyword-only), in order."""
        return _signature(self.function).parameters

    @property
    def defaults(self) -> Attributes:
        """What attributes are where they are not written."""
        return _defaults(self.function)

    def apply(self, inputs: Sequence[Tensor | None], attributes: Attributes) -> tuple[Tensor, ...]:
        """The outputs' tensors. Raises ``BadProgram`` if inputs, shapes, dtypes or attributes do not fit."""
        self._check_inputs(inputs)
        try:
            _signature(self.function).bind(*inputs, **attributes)
        except TypeError as error:
            raise BadProgram(f"{self.name}: {error}") from error
        result = self.function(*inputs, **attributes)
        return result if isinstance(result, tuple) else (result,)

    def _check_inputs(self, inputs: Sequence[Tensor | None]) -> None:
        """Only parameters with a default may be left out."""
        parameters = list(self.parameters.values())
        for position, tensor in enumerate(inputs):
            parameter = parameters[min(position, len(parameters) - 1)]
            if tensor is None and parameter.default is Parameter.empty:
                raise BadProgram(f"{self.name}: input {position} is missing")

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


@lru_cache(maxsize=512)
def _signature(function: Function) -> Signature:
    return signature(function)


@lru_cache(maxsize=512)
def _defaults(function: Function) -> Attributes:
    own = (p for p in _signature(function).parameters.values() if p.kind is Parameter.KEYWORD_ONLY)
    return {p.name: p.default for p in own if p.default is not Parameter.empty}


_TABLE: dict[str, Operator] = {}


def operator(
    name: str, kind: FusionKind, traits: Trait = Trait.NONE, batched: Batched | None = None
) -> Callable[[Decorated], Decorated]:
    """A decorator: register the function as the operator ``name``."""

    def enter(function: Decorated) -> Decorated:
        if name in _TABLE:
            raise InternalError(f"operator {name} is defined twice")
        _TABLE[name] = Operator(name, function, kind, traits, batched)
        return function

    return enter


def find(name: str) -> Operator | None:
    """The operator called ``name``."""
    return _TABLE.get(name)


def require(name: str) -> Operator:
    """The operator called ``name``, which must exist."""
    found = find(name)
    assert found is not None, f"{name} is no operator"
    return found


def names() -> tuple[str, ...]:
    """All operators, sorted."""
    return tuple(sorted(_TABLE))
