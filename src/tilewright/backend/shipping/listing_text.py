"""What a program prints of its interface: lines for its tensors, as text, and as LLVM IR where sizes are given."""

from collections.abc import Iterator

from tilewright.backend.shipping.arguments_text import text_constant
from tilewright.backend.shipping.interface import Interface, Tensor


def listing(interface: Interface) -> str:
    """A line for each input, output and open extent. Extents and sizes that are not known are named, or left out."""
    tensors = (f"{kind} {_line(tensor)}\n" for kind, tensor in _tensors(interface))
    bounds = (
        f"size {symbol.minimum} {'-' if symbol.maximum is None else symbol.maximum} {symbol.name}\n"
        for symbol in interface.open
    )
    return "".join((*tensors, *bounds))


def _tensors(interface: Interface) -> Iterator[tuple[str, Tensor]]:
    yield from (("input", tensor) for tensor in interface.inputs)
    yield from (("output", tensor) for tensor in interface.outputs)


def _line(tensor: Tensor) -> str:
    shape = "x".join(str(extent) if isinstance(extent, int) else f"({extent})" for extent in tensor.shape)
    return f"{tensor.dtype} {shape or 'scalar'} {tensor.bytes if tensor.is_fixed else '-'} {tensor.name}"


def listing_text(interface: Interface) -> str:
    """The definition of ``@list``: the lines of inputs and outputs with the numbers in ``@sizes``."""
    pieces = list(_pieces(interface))
    constants = [text_constant(f"piece.{i}", one) for i, one in enumerate(pieces) if isinstance(one, str)]
    calls = "\n".join(
        f"  call void @put(i64 {one})"
        if isinstance(one, int)
        else f"  %written.{i} = call i64 @write(i64 1, ptr @piece.{i}, i64 {len(one.encode())})"
        for i, one in enumerate(pieces)
    )
    return "\n".join((*constants, _PUT, f"define internal void @list() nounwind {{\n{calls}\n  ret void\n}}\n"))


def _pieces(interface: Interface) -> Iterator[str | int]:
    """Texts, and places in the list of sizes."""
    for (kind, tensor), bytes_at in zip(_tensors(interface), interface.bytes_at, strict=True):
        rank = len(tensor.shape)
        yield f"{kind} {tensor.dtype} {'' if rank else 'scalar'}"
        for axis in range(rank):
            if axis:
                yield "x"
            yield bytes_at - rank + axis
        yield " "
        yield bytes_at
        yield f" {tensor.name}\n"


_PUT = """\
; Writes a number of the list of sizes, which is 0 or more.
define internal void @put(i64 %place) nounwind {
entry:
  %digits = alloca [20 x i8]
  %at = getelementptr i64, ptr @sizes, i64 %place
  %number = load i64, ptr %at
  br label %digit
digit:
  %rest = phi i64 [ %number, %entry ], [ %tens, %digit ]
  %end = phi i64 [ 20, %entry ], [ %begin, %digit ]
  %tens = udiv i64 %rest, 10
  %whole = mul i64 %tens, 10
  %one = sub i64 %rest, %whole
  %low = trunc i64 %one to i8
  %letter = add i8 %low, 48
  %begin = sub i64 %end, 1
  %place.at = getelementptr i8, ptr %digits, i64 %begin
  store i8 %letter, ptr %place.at
  %more = icmp ne i64 %tens, 0
  br i1 %more, label %digit, label %done
done:
  %count = sub i64 20, %begin
  %written = call i64 @write(i64 1, ptr %place.at, i64 %count)
  ret void
}
"""
