"""Imports ONNX models as graphs.

Every node becomes operators of ``ops`` by the rule of its type (``rules``). A node without a rule raises
``UnsupportedModel``, which names the node, its operator and the most similar known one.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import onnx

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram, InvalidModel, UnsupportedModel
from tilewright.base.memory import Budget
from tilewright.base.names import fresh_name, readable
from tilewright.frontend.api import GivenShapes
from tilewright.frontend.onnx.read import bodies, protos
from tilewright.frontend.onnx.read.attempts import import_assuming_least
from tilewright.frontend.onnx.read.building import Building
from tilewright.frontend.onnx.read.external_data import ExternalData, Outside
from tilewright.frontend.onnx.read.foreign import OnnxOperator, chosen, not_imported, unsupported
from tilewright.frontend.onnx.read.functions import Functions, schema_body
from tilewright.frontend.onnx.read.inputs import declared, inputs_of
from tilewright.frontend.onnx.read.kept import Kept, cut
from tilewright.frontend.onnx.read.listed import Bound, only_tensors, outputs_of, renamed, tensors
from tilewright.frontend.onnx.read.narrow import NARROW, OF_DTYPES, Narrow, narrow_attribute
from tilewright.frontend.onnx.read.noted_sizes import with_noted_sizes
from tilewright.frontend.onnx.read.protos import Storage
from tilewright.frontend.onnx.read.python_functions import PythonFunction
from tilewright.frontend.onnx.read.rules import (
    BY_BODY_OF_DATA,
    CHECKED_INPUTS,
    OF_OTHER_DOMAINS,
    RULES,
    Request,
    microsoft,
    sequence_rule,
)
from tilewright.frontend.onnx.read.scopes import Scope
from tilewright.frontend.onnx.read.symbolic_values import SymbolicValues
from tilewright.frontend.onnx.read.text import check_text
from tilewright.frontend.onnx.read.unrolling import UNROLLED, NotUnrolled
from tilewright.frontend.onnx.read.user_lines import with_line
from tilewright.frontend.onnx.read.weights_in_file import opened_apart
from tilewright.graph import Array, Graph, Value, make_node
from tilewright.graph.ir import extents_of
from tilewright.ops.hosted import VIEW
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import const

_OF_ONNXRUNTIME = tuple(
    OnnxOperator(domain, name, rule)
    for domain, rules in ((microsoft.DOMAIN, microsoft.RULES), ("", microsoft.OF_ONNX))
    for name, rule in rules.items()
)


def load(
    source: str | os.PathLike[str] | onnx.ModelProto,
    shapes: GivenShapes | None = None,
    bounds: Mapping[str, int] | None = None,
    most_bytes: int | None = None,
    operators: Sequence[OnnxOperator] = (),
    outside: Outside | None = None,
) -> Graph:
    """The graph of an ONNX model: a path or a ``ModelProto``; ``operators``: of other domains, or other meanings.
    ``outside``: the source of external data; by default files in the model's folder, and none for a ``ModelProto``.

    ``shapes`` gives the shapes of inputs by name; a str names a dimension known only at run time, and ``bounds`` its
    upper bound. ``most_bytes``: maximum of all constants together; by default available memory. Raises ``InvalidModel``
    if the file is missing or malformed, ``UnsupportedModel`` if it can't be compiled, ``ResourceLimit`` for too large
    tensors and functions, ``UntrustedData`` for external data outside of the model's folder.
    """
    given = (shapes or {}, bounds or {}, most_bytes, operators)
    if isinstance(source, onnx.ModelProto) or outside is not None:
        return _loaded(_model_of(source), outside, *given)
    with opened_apart(Path(source)) as (model, beside):
        check_text(model)
        return _loaded(model, beside, *given)


def load_around(
    source: str | os.PathLike[str] | onnx.ModelProto,
    shapes: GivenShapes,
    bounds: Mapping[str, int],
    operators: Sequence[OnnxOperator] = (),
) -> tuple[Graph, Kept | None]:
    """As ``load``, but without nodes that are unknown or computed by Python, which are the second result (``kept``)."""
    native = (one for one in operators if not isinstance(one.rule, PythonFunction))
    rest, kept = cut(_model_of(source), (*native, *_OF_ONNXRUNTIME))
    outside = None if isinstance(source, onnx.ModelProto) else ExternalData(Path(source).parent)
    return _loaded(rest, outside, shapes, bounds, None, operators), kept


def _model_of(source: str | os.PathLike[str] | onnx.ModelProto) -> onnx.ModelProto:
    model = source if isinstance(source, onnx.ModelProto) else protos.read_model(Path(source))
    check_text(model)
    return model


def _loaded(
    model: onnx.ModelProto,
    outside: Outside | None,
    shapes: GivenShapes,
    bounds: Mapping[str, int],
    most_bytes: int | None,
    operators: Sequence[OnnxOperator],
) -> Graph:
    import_within = partial(_import, model, outside, most_bytes, shapes, operators)
    extents = [extent.given for extent in extents_of(inputs_of(model, shapes))]
    return with_noted_sizes(import_assuming_least(import_within, bounds, extents), model)


def _import(
    model: onnx.ModelProto,
    outside: Outside | None,
    most_bytes: int | None,
    shapes: GivenShapes,
    operators: Sequence[OnnxOperator],
    symbolic: SymbolicValues,
) -> Graph:
    budget = Budget(most_bytes)
    if outside is not None:
        outside.check(model, budget)
    storage = Storage(budget, None if outside is None else outside.read)
    scope = Scope(model.graph.node, protos.opsets_of(model.opset_import))
    names = frozenset(name for node in model.graph.node for name in (*node.input, *node.output))
    return _Importer(symbolic, budget, names, model.graph, Functions(model), scope, storage, operators).graph(shapes)


@dataclass(slots=True)
class _Importer(Building):
    """Visits the nodes of a graph, and of the bodies in it (``bodies``), and translates them."""

    proto: onnx.GraphProto
    functions: Functions
    top: Scope
    storage: Storage
    operators: Sequence[OnnxOperator]

    def graph(self, shapes: GivenShapes) -> Graph:
        for name, array, place in protos.initializers(self.proto, self.storage):
            self._initializer(name, array, place)
        self.note_constants(self.proto, self.top)
        inputs = self._inputs(shapes)
        self.symbolic.declare(inputs)
        self.visit(self.top)
        outputs = self._outputs()
        limits, constants = tuple(self.symbolic.limits), dict(self.constants)
        self.constants.clear()  # its parts refer to each other: weights in it would stay until garbage is collected
        return Graph(self.proto.name or "main", inputs, outputs, tuple(self.nodes), constants, limits=limits)

    # The model's own values

    def _initializer(self, name: str, array: Array, place: str) -> None:
        value = Value(name, dtypes.from_numpy(array.dtype), tuple(map(const, array.shape)))
        self.top.define(name, value, place)
        self.constants[value] = array

    def note_constants(self, proto: onnx.GraphProto, scope: Scope) -> None:
        """See ``bodies.Visitor``."""
        for tensor in proto.initializer:
            value = scope.values.get(tensor.name)
            if tensor.data_type in NARROW and isinstance(value, Value):
                self.note_narrow(value, NARROW[tensor.data_type])

    def _inputs(self, given: GivenShapes) -> tuple[Value, ...]:
        """The inputs that are not constants (old models list those as well)."""
        infos = [info for info in self.proto.input if info.name not in self.top.values]
        inputs = declared(infos, given, self.symbolic.assumed.least)
        codes = {value: self._codes_of(value) for value in inputs.values if value.dtype in OF_DTYPES}
        for name, bound in (*((value.name, value) for value in inputs.values), *inputs.lists.items()):
            self.top.define(name, renamed(bound, codes), f"input {readable(name)}")
        return inputs.values

    def _codes_of(self, value: Value) -> Value:
        """The codes of an input of a narrow type. Arrays of ml-dtypes do not extend the signs of integers."""
        narrow, place = OF_DTYPES[value.dtype], f"input {readable(value.name)}"
        codes = self._read_anew(value, self.fresh_name(), narrow.held, place)
        if narrow.dtype.is_int:
            (codes,) = self.add("LowBits", [codes], {"bits": narrow.bits}, 1, place)
        self.note_narrow(codes, narrow)
        return codes

    def _read_anew(self, value: Value, name: str, to: DType, place: str) -> Value:
        """The bytes of ``value`` as elements of another type."""
        self.nodes.append(make_node(VIEW, [value], [name], {"to": to}, place))
        return self.nodes[-1].outputs[0]

    def _outputs(self) -> tuple[Value, ...]:
        """The outputs; those without a producing node are copied, so that they have their own memory."""
        names = [info.name for info in self.proto.output]
        if not names:
            raise InvalidModel("the model has no outputs")
        if len(set(names)) != len(names):
            raise InvalidModel(f"the outputs {', '.join(map(readable, names))} repeat one")
        bound = [(name, self.value(name, self.top, "the graph's outputs")) for name in names]
        values = self._apart(outputs_of(bound, self.top.values))
        missing = (value for value in dict.fromkeys(values.values()) if self.symbolic.is_missing(value))
        self.nodes.extend(self.symbolic.node(value, f"output {readable(value.name)}") for value in missing)
        made = {value for node in self.nodes for value in node.outputs}
        return tuple(self._output(name, value, value in made) for name, value in values.items())

    def _apart(self, outputs: Mapping[str, Value]) -> dict[str, Value]:
        """``outputs``, of which those that are codes have names of their own: what is read of them has the outputs'."""
        own = self._with_other_names([v for v in outputs.values() if v in self.narrow_types and v.name in outputs])
        return {name: own.get(value, value) for name, value in outputs.items()}

    def _with_other_names(self, values: Sequence[Value]) -> dict[Value, Value]:
        """Other values in the place of ``values``, with names of their own."""
        own = {value: self.fresh(value.dtype, value.shape) for value in values}
        self.constants.update({new: self.constants.pop(old) for old, new in own.items() if old in self.constants})
        if own:
            self.rename(own, 0)
        return own

    def _output(self, name: str, value: Value, is_made: bool) -> Value:
        narrow = self.narrow(value)
        if narrow is not None:
            own = fresh_name(f"{name}.copy", self.reserved) if self._is_input(name) else name
            return self._read_anew(value, own, narrow.dtype, f"output {readable(name)}")
        return value if is_made and value.name == name else self._copied(name, value)

    def _is_input(self, name: str) -> bool:
        return any(info.name == name for info in self.proto.input)

    def _copied(self, name: str, source: Value) -> Value:
        """A copy of ``source`` for the output ``name``; with that name unless an input has it."""
        if source in self.constants and source.name == name:
            source = self._with_other_names([source])[source]
        own = fresh_name(f"{name}.copy", self.reserved) if source.name == name else name
        copy = make_node(require("Identity"), [source], [own], {}, f"output {readable(name)}")
        self.nodes.append(copy)
        return copy.outputs[0]

    def value(self, name: str, scope: Scope, place: str) -> Bound:
        """See ``bodies.Visitor``."""
        known = scope.find(name, place)
        if known is None:
            raise InvalidModel(f"{place} needs `{readable(name)}`, an input of the function that its call leaves out")
        return known

    # Nodes, and the bodies in them

    def visit(self, scope: Scope) -> None:
        """See ``bodies.Visitor``."""
        for node, place in scope.placed():
            names = list(node.output)
            while names and not names[-1]:
                names.pop()
            if not names and node.output:
                continue  # its result is not accessible
            start = len(self.nodes)
            try:
                results = self._results(node, len(names), scope, place)
            except (InvalidModel, UnsupportedModel) as error:
                if scope is not self.top:
                    raise
                raise type(error)(with_line(str(error), node)) from error
            self._bind(names, results, scope, start, place)

    def tried(self, unroll: Callable[[], list[Bound]]) -> list[Bound] | None:
        """See ``bodies.Visitor``."""
        start, before = len(self.nodes), self.symbolic.snapshot()
        try:
            return unroll()
        except NotUnrolled:
            del self.nodes[start:]
            self.symbolic.restore(before)
            return None

    def _results(self, node: onnx.NodeProto, wanted: int, scope: Scope, place: str) -> Sequence[Bound | None]:
        """The results of ``node``: by the model's function, by a rule, or by ONNX's function body."""
        inputs = tuple(scope.find(name, place) if name else None for name in node.input)
        domain = protos.own_domain(node.domain)
        opset = scope.opsets.get(domain)
        given = None if scope.is_own or opset is None else chosen(self.operators, domain, node.op_type, opset)
        if given is not None and opset is not None:
            return self._by_rule(given, node, opset, tensors(inputs, place), wanted, place)
        function = None if scope.is_own else self.functions.find(node)
        if function is not None:
            return bodies.called(self, function, node, inputs, wanted, scope, place)
        if opset is None:
            raise not_imported(node, place, (*self.operators, *_OF_ONNXRUNTIME))
        known = chosen(_OF_ONNXRUNTIME, domain, node.op_type, opset)
        if known is not None and not protos.is_defined(node, opset):
            return self._by_rule(known, node, opset, tensors(inputs, place), wanted, place)
        schema = protos.schema_of(node, opset, place)
        if schema is None:
            raise unsupported(node, place)
        protos.check_node(node, schema, opset, place)
        protos.check_types(node, schema, only_tensors(inputs), self.narrow, place)
        if not domain and node.op_type == "Constant":
            return [self._constant(node, place)]
        if not domain and node.op_type == "If":
            return bodies.branch(self, node, inputs, wanted, scope, place)
        if not domain and node.op_type in UNROLLED:
            self._check_states(only_tensors(inputs), place)
            return bodies.repeated(self, node, opset, inputs, wanted, scope, place)
        of_lists = None if domain else sequence_rule(node.op_type, inputs)
        if of_lists is not None:
            return self._by_rule(lambda it: [of_lists(it, inputs)], node, opset, only_tensors(inputs), wanted, place)
        values = only_tensors(inputs)
        by_body = node.op_type in BY_BODY_OF_DATA and any(each and self.elements(each) is None for each in values)
        rule = OF_OTHER_DOMAINS.get((domain, node.op_type)) if domain else RULES.get(node.op_type)
        if rule is not None and not by_body:
            results = self._by_rule(rule, node, opset, tensors(inputs, place), wanted, place)
            self._note_moved(node, schema, values, results)
            return results
        function = schema_body(schema, node, opset, inputs)
        if function is None:
            raise unsupported(node, place)
        if not domain and node.op_type in CHECKED_INPUTS:
            inputs = tuple(self._by_rule(CHECKED_INPUTS[node.op_type], node, opset, values, wanted, place))
        opsets = {"": onnx.defs.onnx_opset_version(), **scope.opsets}
        return bodies.called(self, function, node, inputs, wanted, replace(scope, opsets=opsets, is_own=True), place)

    def _constant(self, node: onnx.NodeProto, place: str) -> Value:
        value = self.counted_constant(protos.constant_of(node, place, self.storage))
        narrow = narrow_attribute(node)
        if narrow is not None:
            self.note_narrow(value, narrow)
        return value

    def _check_states(self, inputs: Sequence[Value | None], place: str) -> None:
        narrow = next((self.narrow_types[v] for v in inputs if v in self.narrow_types), None)
        if narrow is not None:
            raise UnsupportedModel(
                f"{place}: an input of a loop has the type {narrow.name}; convert it by a Cast before"
            )

    def _note_moved(
        self,
        node: onnx.NodeProto,
        schema: onnx.defs.OpSchema,
        inputs: Sequence[Value | None],
        results: Sequence[Bound | None],
    ) -> None:
        """Note results that ONNX declares to have the type of an input, or of a tensor in the node, if it is narrow."""
        types: dict[str, Narrow] = {}
        for position, value in enumerate(inputs):
            narrow = None if value is None else self.narrow(value)
            if narrow is not None:
                types[schema.inputs[min(position, len(schema.inputs) - 1)].type_str] = narrow
        own = narrow_attribute(node)
        if own is not None:
            types[schema.outputs[0].type_str] = own
        for position, value in enumerate(results if types else ()):
            narrow = types.get(schema.outputs[min(position, len(schema.outputs) - 1)].type_str)
            if narrow is not None and isinstance(value, Value):
                self.note_narrow(value, narrow)

    def _by_rule(
        self,
        rule: Callable[[Request], Sequence[Bound | None]],
        node: onnx.NodeProto,
        opset: int,
        inputs: tuple[Value | None, ...],
        wanted: int,
        place: str,
    ) -> Sequence[Bound | None]:
        """The results of ``rule`` on a node."""
        plain = (a for a in node.attribute if a.type != onnx.AttributeProto.TYPE_PROTO)
        attributes = {a.name: protos.attribute_of(a, place, self.storage) for a in plain}
        request = Request(node.op_type, place, opset, inputs, attributes, wanted, self)
        try:
            return rule(request)
        except BadProgram as error:
            raise request.invalid(str(error)) from error

    def _bind(
        self, names: Sequence[str], results: Sequence[Bound | None], scope: Scope, start: int, place: str
    ) -> None:
        """Bind the model's names to ``results``.

        At the top, values that were made for this node get those names: a body's names may repeat those outside.
        """
        new: dict[Value, Value] = {}
        is_top = scope is self.top
        made = (value for node in self.nodes[start:] for value in node.outputs)
        fresh = {value for value in made if value not in self.symbolic} | self.fresh_values
        for name, value in zip(names, only_tensors(results), strict=True):
            if name and is_top and value in fresh and value not in new:
                new[value] = Value(name, value.dtype, value.shape)
        for name, bound in zip(names, results, strict=True):
            if name and bound is not None:
                scope.define(name, renamed(bound, new), place)
        if is_top:
            self.rename(new, start)
        for value in (value for node in self.nodes[start:] for value in node.outputs):
            protos.check_size(static(value.shape) or (), f"{place}: its result {readable(value.name)}")
