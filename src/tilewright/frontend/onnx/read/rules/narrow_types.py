"""ONNX's conversions from and to types that native code has as codes (``read.narrow``)."""

from dataclasses import replace

import numpy as np

from tilewright.base.dtypes import DType, f32, i32
from tilewright.frontend.onnx.read.narrow import NARROW, Narrow
from tilewright.frontend.onnx.read.protos import dtype_of
from tilewright.frontend.onnx.read.rules.rule import Request
from tilewright.graph import Value
from tilewright.ops import Attribute
from tilewright.ops.power_codes import PowerRounding


def target_of(request: Request, name: str) -> DType | Narrow | None:
    """The element type of an attribute, given by number; None for 0, or if it is omitted."""
    code = request.integer(name, 0)
    return NARROW.get(code) or (dtype_of(code, request.place) if code else None)


def converted(request: Request, value: Value, to: DType | Narrow) -> Value:
    """``value`` as ``Cast`` converts it."""
    own = request.importer.narrow(value)
    if own is to:
        return value
    numbers = value if own is None else decoded(request, value, own)
    return request.apply("Cast", numbers, to=to) if isinstance(to, DType) else encoded(request, numbers, to)


def decoded(request: Request, value: Value, own: Narrow) -> Value:
    """The numbers of codes: in f32, or as the integers that they are."""
    return value if own.dtype.is_int else request.apply("DecodeFloat", value, of=own.dtype)


def encoded(request: Request, numbers: Value, to: Narrow) -> Value:
    """The codes of numbers: floats are rounded, and saturate if the node says so; of integers the last bits remain."""
    if to.dtype.is_int:
        whole = request.apply("Cast", numbers, to=i32) if numbers.dtype.is_float else numbers
        codes = request.apply("LowBits", request.apply("Cast", whole, to=to.held), bits=to.bits)
    else:
        options = {"saturate": bool(request.integer("saturate", 1)), "rounding": _rounding(request).value}
        codes = request.apply("EncodeFloat", request.apply("Cast", numbers, to=f32), to=to.dtype, **options)
    return noted(request, codes, to)


def _rounding(request: Request) -> PowerRounding:
    name = request.text("round_mode", PowerRounding.UP.value)
    try:
        return PowerRounding(name)
    except ValueError as error:
        known = ", ".join(each.value for each in PowerRounding)
        raise request.invalid(f"attribute round_mode is {name}; there are {known}") from error


def noted(request: Request, codes: Value, to: Narrow) -> Value:
    """``codes``, which are of the type ``to``."""
    request.importer.note_narrow(codes, to)
    return codes


def with_scale_of_numbers(request: Request) -> Request:
    """``request`` with the numbers of its scale, if that is of codes: powers of two, as in OCP MX."""
    scale = request.input(1)
    own = request.importer.narrow(scale)
    if own is None:
        return request
    return replace(request, inputs=(request.inputs[0], decoded(request, scale, own), *request.inputs[2:]))


def quantized(request: Request, to: Narrow) -> Value:
    """The codes of ``QuantizeLinear``."""
    x, scale, zero = request.input(0), request.input(1), request.optional(2)
    precision = request.dtype("precision") or scale.dtype
    if to.dtype.is_int:
        options = {"dtype": to.held, "precision": precision, **_place(request)}
        codes = request.apply("QuantizeLinear", x, scale, zero, **options)
        limits = (request.constant(np.array(limit, to.held.numpy)) for limit in (to.dtype.min, to.dtype.max))
        return noted(request, request.apply("Clip", codes, *limits), to)
    options = {"divide": True, "precision": precision, **_place(request)}
    return encoded(request, request.apply("Scaled", x, scale, _zero_point(request, to), **options), to)


def dequantized(request: Request, own: Narrow) -> Value:
    """The numbers of ``DequantizeLinear`` of floats."""
    x, scale = decoded(request, request.input(0), own), request.input(1)
    options = {"dtype": request.dtype("output_dtype") or scale.dtype, **_place(request)}
    return request.apply("Scaled", x, scale, _zero_point(request, own), **options)


def _place(request: Request) -> dict[str, Attribute]:
    return {"axis": request.integer("axis", 1), "block_size": request.integer("block_size", 0)}


def _zero_point(request: Request, own: Narrow) -> Value | None:
    """The numbers of a zero point; None if all are 0, as they mostly are."""
    zero = request.optional(2)
    known = None if zero is None else request.importer.known(zero)
    return None if zero is None or (known is not None and not known.any()) else decoded(request, zero, own)
