"""The attributes that convolution and pooling share: strides, dilations, pads, auto_pad."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.errors import InvalidModel, ResourceLimit
from tilewright.frontend.onnx.read import protos
from tilewright.frontend.onnx.read.protos import MAX_ELEMENTS
from tilewright.frontend.onnx.read.rules.rule import Request
from tilewright.graph import Value
from tilewright.ops import Attribute
from tilewright.ops.shapes import Shape, simplified, static
from tilewright.ops.windows import same_pads
from tilewright.symbolic.expr import Const, Expr


@dataclass(frozen=True, slots=True)
class Sliding:
    """The movement of a window of ``kernel`` over the spatial dimensions of ``data``, by the node's attributes."""

    data: Value
    kernel: Shape
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def spatial(self) -> Shape:
        """The spatial extents of the input."""
        return self.data.shape[2:]

    def rooms(self, pads: Sequence[int | Expr]) -> list[Expr]:
        """The difference of the padded input and the window; negative if the window does not fit."""
        rank = len(self.kernel)
        places = zip(self.spatial, pads[:rank], pads[rank:], self.kernel, self.dilations, strict=True)
        return [simplified(extent + begin + end - ((k - 1) * d + 1)) for extent, begin, end, k, d in places]


def sliding(request: Request, data: Value, kernel: Shape) -> Sliding:
    """The node's window over ``data``. Raises ``InvalidModel`` or ``ResourceLimit`` for invalid attributes."""
    rank = len(data.shape) - 2
    if rank < 1 or len(kernel) != rank:
        raise request.invalid(f"a window of {len(kernel)} dimensions can't slide over {data!r} of shape [N, C, ...]")
    numbers = {name: request.ints(name) for name in ("strides", "dilations", "pads", "kernel_shape", "output_padding")}
    for name, values in numbers.items():
        if values is not None:
            check_entries(request, name, values, rank * 2 if name == "pads" else rank, _LEAST.get(name, 1))
    ones = (1,) * rank
    return Sliding(data, kernel, numbers["strides"] or ones, numbers["dilations"] or ones)


_LEAST = {"pads": 0, "output_padding": 0}


def check_entries(request: Request, name: str, values: tuple[int, ...], count: int, least: int) -> None:
    """Raises ``InvalidModel`` or ``ResourceLimit`` unless there are ``count`` entries, none too small or too large."""
    if len(values) != count:
        raise request.invalid(f"attribute {name} is {list(values)}; it needs {count} entries")
    if min(values) < least:
        raise request.invalid(f"attribute {name} is {list(values)}; each entry must be at least {least}")
    if max(values) > MAX_ELEMENTS:
        text = f"attribute {name} is {list(values)}; no entry may be more than {MAX_ELEMENTS}: no tensor is so large"
        raise ResourceLimit(f"{request.place}: {text}")


def window_attributes(request: Request, data: Value, kernel: Shape) -> dict[str, Attribute]:
    """``strides``, ``dilations`` and explicit ``pads`` for the operators of ``ops``."""
    own = sliding(request, data, kernel)
    pads = _pads(request, own)
    rank = len(own.spatial)
    padded = static(data.shape[:2] + tuple(map(_sum, own.spatial, pads[:rank], pads[rank:])))
    protos.check_size(padded or (), f"{request.place}: its input with pads [{', '.join(map(str, pads))}]")
    for room in own.rooms(pads):
        if not isinstance(room, Const):  # the operator itself refuses known cases
            request.importer.symbolic.require(room)
    return {"strides": own.strides, "dilations": own.dilations, "pads": pads}


def _sum(extent: Expr, begin: int | Expr, end: int | Expr) -> Expr:
    return simplified(extent + begin + end)


def _pads(request: Request, own: Sliding) -> tuple[int | Expr, ...]:
    given = request.ints("pads")
    match request.text("auto_pad", "NOTSET"):
        case "NOTSET" | "":
            return given or (0,) * (2 * len(own.kernel))
        case "VALID":
            return (0,) * (2 * len(own.kernel))
        case "SAME_UPPER" | "SAME_LOWER" as mode:
            return same_pads(own.spatial, own.kernel, own.strides, own.dilations, upper=mode == "SAME_UPPER")
        case mode:
            raise unknown_auto_pad(request, mode)


def unknown_auto_pad(request: Request, mode: str) -> InvalidModel:
    """The error for an ``auto_pad`` that ONNX does not know."""
    return request.invalid(f"auto_pad is {mode}; it must be NOTSET, SAME_UPPER, SAME_LOWER or VALID")
