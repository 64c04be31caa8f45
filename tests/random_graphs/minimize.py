"""A smaller case that comes out the same way: nodes go, and what they made is fed instead."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tests.random_graphs.case import Array, Case, pruned
from tests.random_graphs.reference import Estimate, NotEvaluated, evaluate

Fails = Callable[[Case], bool]


def minimize(case: Case, fails: Fails) -> Case:
    """Smaller for as long as ``fails`` holds; the case itself must fail."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(case):
            if fails(candidate):
                case, smaller = candidate, True
                break
    return case


def _candidates(case: Case) -> Iterator[Case]:
    """Cases with less in them, those with much less first."""
    if len(case.outputs) > 1:
        for name in case.outputs:
            yield pruned(replace(case, outputs=(name,)))
        for name in case.outputs:
            yield pruned(replace(case, outputs=tuple(o for o in case.outputs if o != name)))
    fed = _values(case)
    for node in reversed(case.nodes):
        made = {name: fed[name] for name in node.outputs if name in fed}
        kept = tuple(other for other in case.nodes if other is not node)
        outputs = tuple(name for name in case.outputs if name not in made)
        read = {name for other in kept for name in other.inputs}
        if kept and len(made) == len([name for name in node.outputs if name]):
            if not outputs:
                outputs = tuple(name for name in node.inputs if name and name in {o for n in kept for o in n.outputs})
            if outputs:
                inputs = {**case.inputs, **{name: array for name, array in made.items() if name in read}}
                yield pruned(replace(case, nodes=kept, outputs=outputs, inputs=inputs))
    if case.constants:
        yield replace(case, inputs={**case.inputs, **case.constants}, constants={})
    if case.checked:
        yield replace(case, checked=False)
    if case.threads > 1:
        yield replace(case, threads=1)


def _values(case: Case) -> dict[str, Array]:
    """What every node makes, rounded to its dtype."""
    try:
        estimates: dict[str, Estimate] = evaluate(case)
    except NotEvaluated:
        return {}
    with np.errstate(all="ignore"):
        return {name: np.asarray(value.exact.astype(value.dtype)) for name, value in estimates.items()}
