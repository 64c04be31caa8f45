"""Folds terms of a rule's targets that depend on weights only.

Operators' te programs are evaluated in float64, inlined into one expression: roundings do not accumulate, and large
weights are processed in chunks. A program is built once for all shapes, with the symbols of the rule as extents.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from tilewright.base.dtypes import DType, f64
from tilewright.base.errors import BadProgram
from tilewright.base.exact import Exact
from tilewright.graph import Array
from tilewright.loops.evaluate_extern import evaluate_extern
from tilewright.ops.build import narrowed, tensor
from tilewright.ops.shapes import Shape
from tilewright.passes.rules.binding import Attributes, Binding, spliced
from tilewright.passes.rules.terms import Apply, Number, Term, Variable, subterms
from tilewright.symbolic.expr import Const, Expr, Read, const
from tilewright.symbolic.traversal import substitute, transform_reads
from tilewright.tensor.build import placeholder
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import Compute, Tensor


class NotFolded(BadProgram):
    """A term can't be folded, or would not be finite."""


@lru_cache(maxsize=4096)
def is_weight(term: Term) -> bool:
    """Whether ``term`` depends on weights and numbers only."""
    return (
        term.is_weight if isinstance(term, Variable) else isinstance(term, Number) or all(map(is_weight, term.operands))
    )


def folded(term: Apply, binding: Binding, arrays: Mapping[str, Array]) -> Array:
    """The elements of ``term``, for which ``is_weight`` holds, given the constants ``arrays`` by name.

    Raises ``NotFolded`` if one is not finite (``inf * x - inf`` is NaN where ``inf * (x - mean)`` is not), or if a
    weight is missing in ``arrays``, as it is too large to be kept.
    """
    variables = [part for part in subterms([term]) if isinstance(part, Variable)]
    values = {variable.name: binding.values[variable] for variable in variables}
    dtypes = tuple((name, value.dtype) for name, value in values.items())
    leading = tuple((v.leading, binding.leading[v.leading]) for v in variables if v.leading is not None)
    used = {part.rest for part in subterms([term]) if isinstance(part, Apply)}
    rests = tuple(sorted((name, Exact(rest)) for name, rest in binding.rests.items() if name in used))
    program = _program(term, dtypes, tuple(dict.fromkeys(leading)), rests)
    if any(value.name not in arrays for value in values.values()):
        raise NotFolded(f"{', '.join(values)} are not all constants")
    feeds = {program.inputs[name]: arrays[value.name] for name, value in values.items()}
    dims = {symbol: int(extent.value) for symbol, extent in binding.symbols.items() if isinstance(extent, Const)}
    (result,) = evaluate([program.result], feeds, dims, evaluate_extern)
    if not bool(np.isfinite(result).all()):
        raise NotFolded(f"a number of {term} would not be finite")
    return result


@dataclass(slots=True)
class _Program:
    """A term as a tensor; tensors of terms so far."""

    inputs: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    tensors: dict[Term, Tensor] = field(default_factory=dict[Term, Tensor])

    @property
    def result(self) -> Tensor:
        return next(reversed(self.tensors.values()))


@lru_cache(maxsize=512)
def _program(
    term: Apply,
    dtypes: tuple[tuple[str, DType], ...],
    leading: tuple[tuple[str, Shape], ...],
    rests: tuple[tuple[str, Exact[Attributes]], ...],
) -> _Program:
    """``term`` of variables with ``dtypes`` and ``leading`` dimensions; all intermediate floats are float64."""
    program, attributes, before = _Program(), dict(rests), dict(leading)
    for part in subterms([term]):
        match part:
            case Variable(name, shape):
                first = () if part.leading is None else before[part.leading]
                own = program.inputs[name] = placeholder((*first, *shape), dict(dtypes)[name], name)
                program.tensors[part] = narrowed(own, f64) if own.dtype.is_float else own
            case Number(value):
                program.tensors[part] = tensor((), lambda _, value=value: const(value, f64))
            case Apply():
                rest = {} if part.rest is None else dict(attributes[part.rest].value)
                operands = [program.tensors[operand] for operand in part.operands]
                results = part.op.apply(
                    operands, {**rest, **{name: spliced(value, before) for name, value in part.attributes}}
                )
                program.tensors[part] = results[part.output]
    result = program.tensors[term]
    dtype = next((dtype for _, dtype in dtypes if dtype.is_float), f64) if result.dtype.is_float else result.dtype
    program.tensors = {term: _inlined(narrowed(result, dtype))}
    return program


def _inlined(result: Tensor) -> Tensor:
    """``result`` as one expression over inputs and reduced intermediates."""
    op = result.op
    if not isinstance(op, Compute) or op.reduction is not None:
        return result
    return tensor(result.shape, lambda index: transform_reads(result[index], _element))


def _element(read: Read) -> Expr | None:
    """The expression of the element that ``read`` reads."""
    source = read.source
    if not isinstance(source, Tensor) or not isinstance(source.op, Compute) or source.op.reduction is not None:
        return None
    axes = {axis.var: index for axis, index in zip(source.op.axes, read.indices, strict=True)}
    return transform_reads(substitute(source.op.bodies[source.output], axes), _element)
