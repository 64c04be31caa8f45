"""Bodies: graphs inside of nodes. Those of functions, branches and steps of loops are imported in place of the node;
where it is known at run time only which branch is taken, or how many steps there are, by ``run_time_bodies``.

A body has a scope of its own (``scopes``). Names may repeat those outside, and the initializers of a branch or loop are
shared by all of its steps.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
import onnx

from tilewright.base.errors import BadProgram, InvalidModel, UnsupportedModel
from tilewright.base.names import readable
from tilewright.frontend.onnx.read import protos
from tilewright.frontend.onnx.read.functions import called_nodes
from tilewright.frontend.onnx.read.listed import Bound, Listed, are_alike, leaves, like, only_tensors, tensor
from tilewright.frontend.onnx.read.protos import Storage
from tilewright.frontend.onnx.read.rules import Request
from tilewright.frontend.onnx.read.run_time_bodies import AT_RUN_TIME, Encloser, branch_at_run_time
from tilewright.frontend.onnx.read.scopes import Scope
from tilewright.frontend.onnx.read.unrolling import UNROLLED, Run
from tilewright.graph import Array, Value


class Visitor(Encloser, Protocol):
    """The importer's services for bodies."""

    @property
    def storage(self) -> Storage:
        """Where the data of constants come from."""
        ...

    def visit(self, scope: Scope) -> None:
        """Import the nodes of ``scope``."""
        ...

    def value(self, name: str, scope: Scope, place: str) -> Bound:
        """The value of a name. Raises ``InvalidModel`` if there is none."""
        ...

    def counted_constant(self, array: Array) -> Value:
        """A constant with a fresh name, whose bytes are already counted."""
        ...

    def tried(self, unroll: Callable[[], list[Bound]]) -> list[Bound] | None:
        """What ``unroll`` imports; None, and nothing is imported, if a loop can't be unrolled."""
        ...

    def note_constants(self, proto: onnx.GraphProto, scope: Scope) -> None:
        """Note the initializers of types that native code has as codes."""
        ...


def called(
    importer: Visitor,
    function: onnx.FunctionProto,
    call: onnx.NodeProto,
    inputs: Sequence[Bound | None],
    wanted: int,
    scope: Scope,
    place: str,
) -> list[Bound | None]:
    """The results of a function: imports its body in place of the call."""
    if len(inputs) > len(function.input) or wanted > len(function.output):
        raise InvalidModel(
            f"{place} has {len(inputs)} inputs and {wanted} outputs; the function {readable(function.name)} has "
            f"{len(function.input)} and {len(function.output)}"
        )
    inside = scope.inside(called_nodes(function, call), place, is_branch=False)
    own = protos.opsets_of(function.opset_import, f"function {readable(function.name)}")
    inside.opsets = {**scope.opsets, **own} if scope.is_own else own
    given = (*inputs, *[None] * (len(function.input) - len(inputs)))
    inside.values.update(zip(function.input, given, strict=True))
    importer.visit(inside)
    pairs = itertools.zip_longest(function.output[:wanted], call.output[:wanted])
    return [importer.value(inner, inside, place) if outer else None for inner, outer in pairs]


def branch(
    importer: Visitor, node: onnx.NodeProto, inputs: Sequence[Bound | None], wanted: int, scope: Scope, place: str
) -> list[Bound | None]:
    """The results of an ``If``: those of the branch that is taken, if it is known."""
    if inputs[0] is None:
        raise InvalidModel(f"{place}: the condition is missing")
    names = ("then_branch", "else_branch")
    then, otherwise = (_body_of_branch(importer, node, name, wanted, scope, place) for name in names)
    condition = importer.known(given := tensor(inputs[0], place))
    if condition is None:
        both = _Alike(place)
        values = branch_at_run_time(importer, given, both.of_tensors(then), both.of_tensors(otherwise), place)
        return [*like(both.form, iter(values))]
    if condition.size != 1 or condition.dtype != np.bool_:
        raise InvalidModel(f"{place}: the condition is {condition.dtype}{list(condition.shape)}, not one bool")
    chosen, name = (then, names[0]) if condition.item() else (otherwise, names[1])
    return [*chosen((), f"{place} {name}")]


@dataclass(slots=True)
class _Alike:
    """The results of two branches, which have sequences of equal lengths at the same places."""

    place: str
    form: list[Bound] = field(default_factory=list[Bound])

    def of_tensors(self, run: Run) -> Callable[[Sequence[Value], str], list[Value]]:
        """``run`` with the tensors in its results only."""

        def flat(given: Sequence[Value], where: str) -> list[Value]:
            found = run(given, where)
            if self.form and not are_alike(self.form, found):
                raise UnsupportedModel(
                    f"{self.place}: which branch is taken is known at run time only, and the branches make sequences "
                    "of different lengths; join their tensors in the branches (ConcatFromSequence)"
                )
            self.form = found
            return [*leaves(found)]

        return flat


def _body_of_branch(importer: Visitor, node: onnx.NodeProto, name: str, wanted: int, scope: Scope, place: str) -> Run:
    """What imports a branch."""
    body = next(attribute.g for attribute in node.attribute if attribute.name == name)

    def run(given: Sequence[Bound], where: str) -> list[Bound]:
        if wanted > len(body.output):
            raise InvalidModel(f"{place}: {wanted} outputs are wanted, and {name} has {len(body.output)}")
        if body.input:
            raise InvalidModel(f"{place}: {name} has inputs; a branch has none, and reads values around it by name")
        return of_body(importer, body, given, where, with_constants(importer, body, scope, where))[:wanted]

    return run


def repeated(
    importer: Visitor,
    node: onnx.NodeProto,
    opset: int,
    inputs: Sequence[Bound | None],
    wanted: int,
    scope: Scope,
    place: str,
) -> list[Bound | None]:
    """The results of a Scan or Loop: unrolled if the number of steps is known, and not too large."""
    body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
    plain = [attribute for attribute in node.attribute if attribute.name != "body"]
    attributes = {a.name: protos.attribute_of(a, place, importer.storage) for a in plain}
    request = Request(node.op_type, place, opset, only_tensors(inputs), attributes, wanted, importer)
    run = partial(of_body, importer, body, scope=with_constants(importer, body, scope, place))
    try:
        results = importer.tried(lambda: UNROLLED[node.op_type](request, inputs, body, run))
        if results is None:
            _check_states(inputs, place)
            results = AT_RUN_TIME[node.op_type](request, importer, body, partial(_of_tensors, run))
    except BadProgram as error:
        raise request.invalid(str(error)) from error
    return [*results[:wanted]]


def _check_states(inputs: Sequence[Bound | None], place: str) -> None:
    if any(isinstance(each, Listed) for each in inputs):
        raise UnsupportedModel(
            f"{place}: the number of steps is known at run time only, or large, and a state is a sequence; give a "
            "constant number, or make the sequence a result of each step (a scan output)"
        )


def _of_tensors(run: Run, given: Sequence[Value], place: str) -> list[Value]:
    """The results of ``run``, which must be tensors."""
    return [tensor(each, place) for each in run(given, place)]


def with_constants(importer: Visitor, body: onnx.GraphProto, scope: Scope, place: str) -> Scope:
    """A scope with the initializers of a body, which all steps share."""
    around = scope.inside((), place, is_branch=True)
    around.depth = scope.depth  # no body of its own
    for name, array, where in protos.initializers(body, importer.storage):
        around.define(name, importer.counted_constant(array), where)
    importer.note_constants(body, around)
    return around


def of_body(importer: Visitor, body: onnx.GraphProto, given: Sequence[Bound], place: str, scope: Scope) -> list[Bound]:
    """The outputs of a body for given inputs."""
    inside = scope.inside(body.node, place, is_branch=True)
    for info, value in zip(body.input, given, strict=True):
        inside.define(info.name, value, place)
    importer.visit(inside)
    return [importer.value(info.name, inside, place) for info in body.output]
