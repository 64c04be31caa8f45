"""ONNX's operators on sequences and optionals (``listed``): none of them computes anything.

Positions and lengths must be known; but an element at a position that is data is chosen when the model runs, if all
elements have one shape.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.base.errors import UnsupportedModel
from tilewright.frontend.onnx.read.listed import Bound, Listed, tensor
from tilewright.frontend.onnx.read.protos import dtype_of
from tilewright.frontend.onnx.read.rules.rule import Request
from tilewright.ops.shapes import same_shape

SequenceRule = Callable[[Request, Sequence[Bound | None]], Bound]
"""From a node and its inputs to its only result; the request has those inputs that are tensors."""


def _sequence(request: Request, given: Sequence[Bound | None]) -> Listed:
    """The first input, a sequence."""
    found = given[0] if given else None
    if not isinstance(found, Listed) or found.is_optional:
        raise request.invalid(f"{found if found is not None else 'what is left out'} is no sequence")
    return found


def _construct(request: Request, given: Sequence[Bound | None]) -> Bound:
    return Listed(tuple(request.input(position) for position in range(len(given))))


def _empty(request: Request, given: Sequence[Bound | None]) -> Bound:
    del given
    return Listed((), dtype_of(request.integer("dtype", 1), request.place))


def _place(request: Request, position: int, count: int, places: int) -> int:
    """A constant position in a sequence of ``count``, counted from the front; by default the last of ``places``."""
    found = request.integers(position)
    place = places - 1 if found is None else found[0]
    if not -count <= place < places:
        raise request.invalid(f"position {place} is out of range: there are {count} elements")
    return place + count if place < 0 else place


def _at(request: Request, given: Sequence[Bound | None]) -> Bound:
    sequence, position = _sequence(request, given), request.input(1)
    if request.importer.known(position) is not None:
        return sequence.elements[_place(request, 1, len(sequence.elements), len(sequence.elements))]
    parts = [tensor(element, request.place) for element in sequence.elements]
    if not parts or not all(same_shape(part.shape, parts[0].shape) for part in parts):
        raise UnsupportedModel(
            f"{request.place}: an element at a position that is data, of {sequence} of different shapes; give a "
            "constant position"
        )
    stack = request.apply_many("Concat", [request.apply("Unsqueeze", part, axes=(0,)) for part in parts], 1, axis=0)[0]
    return request.apply("Gather", stack, request.apply("Reshape", position, shape=()), axis=0)


def _insert(request: Request, given: Sequence[Bound | None]) -> Bound:
    sequence, new = _sequence(request, given), request.input(1)
    count = len(sequence.elements)
    at = _place(request, 2, count, count + 1)
    return Listed((*sequence.elements[:at], new, *sequence.elements[at:]), sequence.dtype)


def _erase(request: Request, given: Sequence[Bound | None]) -> Bound:
    sequence = _sequence(request, given)
    count = len(sequence.elements)
    at = _place(request, 1, count, count)
    return Listed((*sequence.elements[:at], *sequence.elements[at + 1 :]), sequence.dtype)


def _length(request: Request, given: Sequence[Bound | None]) -> Bound:
    return request.constant(np.array(len(_sequence(request, given).elements), np.int64))


def _concatenated(request: Request, given: Sequence[Bound | None]) -> Bound:
    parts = [tensor(element, request.place) for element in _sequence(request, given).elements]
    if not parts:
        raise request.invalid("an empty sequence has no elements that could be joined")
    axis = request.integer("axis", 0)
    if request.integer("new_axis", 0):
        parts = [request.apply("Unsqueeze", part, axes=(axis,)) for part in parts]
    return request.apply_many("Concat", parts, 1, axis=axis)[0]


def _split(request: Request, given: Sequence[Bound | None]) -> Bound:
    """Into parts of one length, of which the last may be shorter, or of given ones; by default into single elements."""
    del given
    data, lengths = request.input(0), request.integers(1)
    axis, rank = request.integer("axis", 0), len(data.shape)
    if not -rank <= axis < rank:
        raise request.invalid(f"axis {axis} is out of range for {data!r}")
    extent = request.extent(data, axis)
    if lengths is None or not request.input(1).shape:
        length = 1 if lengths is None else lengths[0]
        if length < 1:
            raise request.invalid(f"parts of length {length} make up nothing")
        lengths = tuple(min(length, extent - begin) for begin in range(0, extent, length))
    if min(lengths, default=0) < 0 or sum(lengths) != extent:
        raise request.invalid(f"lengths {lengths} do not make up extent {extent} of dimension {axis} of {data!r}")
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    parts = [
        request.apply("Slice", data, starts=(end - length,), ends=(end,), axes=(axis,))
        for length, end in zip(lengths, ends, strict=True)
    ]
    if request.optional(1) is None and not request.integer("keepdims", 1):
        parts = [request.apply("Squeeze", part, axes=(axis,)) for part in parts]
    return Listed(tuple(parts), data.dtype)


def _optional(request: Request, given: Sequence[Bound | None]) -> Bound:
    del request
    return Listed(tuple(each for each in given if each is not None), is_optional=True)


def _has_element(request: Request, given: Sequence[Bound | None]) -> Bound:
    found = given[0] if given else None
    is_there = found is not None and not (isinstance(found, Listed) and found.is_optional and not found.elements)
    return request.constant(np.array(is_there))


def _element(request: Request, given: Sequence[Bound | None]) -> Bound:
    found = given[0]
    if isinstance(found, Listed) and found.is_optional:
        if not found.elements:
            raise request.invalid("the optional has no element")
        return found.elements[0]
    return request.input(0) if found is None else found


def _itself(request: Request, given: Sequence[Bound | None]) -> Bound:
    found = given[0]
    assert found is not None, "as asked for"
    del request
    return found


_RULES: Mapping[str, SequenceRule] = {
    "ConcatFromSequence": _concatenated,
    "Optional": _optional,
    "OptionalGetElement": _element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}


def sequence_rule(op_type: str, given: Sequence[Bound | None]) -> SequenceRule | None:
    """The rule of an operator on sequences or optionals; Identity of one is that itself."""
    if op_type == "Identity" and isinstance(given[0], Listed):
        return _itself
    return _RULES.get(op_type)
