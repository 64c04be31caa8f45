"""ONNX's Einsum: contracts operands two at a time, from the left."""

import string
from collections.abc import Mapping, Sequence

from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value
from tilewright.ops.einsum import Subscripts, parse


def _einsum(request: Request) -> Sequence[Value]:
    """All operands at once would take a step for each combination of all subscripts."""
    operands = [request.input(position) for position in range(len(request.inputs))]
    subscripts, result = parse(request.text("equation", ""), [len(value.shape) for value in operands])
    names = _letters(request, [*subscripts, result])
    value, own = operands[0], subscripts[0]
    if len(operands) == 1:
        return [request.apply("EinsumOfOne", value, equation=f"{_term(own, names)}->{_term(result, names)}")]
    for position in range(1, len(operands)):
        needed = {*result, *(s for later in subscripts[position + 1 :] for s in later)}
        joined = tuple(dict.fromkeys(s for s in (*own, *subscripts[position]) if s in needed))
        left = result if position == len(operands) - 1 else joined
        equation = f"{_term(own, names)},{_term(subscripts[position], names)}->{_term(left, names)}"
        value, own = request.apply("Einsum", value, operands[position], equation=equation), left
    return [value]


def _letters(request: Request, terms: Sequence[Subscripts]) -> dict[str, str]:
    """A letter for each subscript, including those of the ellipsis."""
    used = dict.fromkeys(name for term in terms for name in term)
    free = (c for c in string.ascii_letters if c not in used)
    try:
        return {name: name if len(name) == 1 else next(free) for name in used}
    except StopIteration as error:
        raise request.unsupported(f"{len(used)} subscripts are more than there are letters") from error


def _term(subscripts: Subscripts, names: Mapping[str, str]) -> str:
    return "".join(names[s] for s in subscripts)


RULES: Mapping[str, RuleFunction] = {"Einsum": _einsum}
