"""``bind_factors``: replaces symbolic split factors by their values."""

import dataclasses
from collections.abc import Mapping

from tilewright.loops import visit
from tilewright.loops.program import Program
from tilewright.schedule.simplification import simplified
from tilewright.schedule.tree import normalize, refuse
from tilewright.symbolic.expr import Expr, const


def bind_factors(program: Program, values: Mapping[str, int]) -> tuple[Program, None]:
    """Replace symbolic factors by numbers, by name, and remove guards that are then proven.

    Refuses if a name is not a symbol of the program or a value is not positive.
    """
    known = {dim.var.name: dim for dim in program.dims}
    for name, value in values.items():
        if name not in known:
            raise refuse(f"`{name}` is no symbol of the program; these are: {', '.join(known) or 'none'}")
        if value < 1 or (known[name].bound or value) < value:
            raise refuse(f"the value {value} of `{name}` is not positive, or above its bound")
    numbers: dict[str, Expr] = {name: const(value) for name, value in values.items()}
    dims = tuple(dim for dim in program.dims if dim.var.name not in values)
    bound = dataclasses.replace(program, dims=dims)
    body = visit.substitute(program.body, {known[name].var: number for name, number in numbers.items()})
    return dataclasses.replace(bound, body=normalize(simplified(body, bound.bounds))), None
