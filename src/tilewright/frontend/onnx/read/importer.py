"""Imports ONNX models as graphs.

Every node becomes operators of ``ops`` by the rule of its type (``rules``). A node without a rule raises
``UnsupportedModel``, which names the node, its operator and the most similar known one.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram, InvalidModel, OutOfBounds, Unsupported, UnsupportedModel
from tilewright.base.memory import Budget
from tilewright.base.names import fresh_name, readable
from tilewright.frontend.api import GivenShapes
from tilewright.frontend.onnx.read import bodies, protos
from tilewright.frontend.onnx.read.attempts import import_assuming_least
from tilewright.frontend.onnx.read.external_data import ExternalData, Outside
from tilewright.frontend.onnx.read.foreign import OnnxOperator, chosen, found, not_imported, unsupported
from tilewright.frontend.onnx.read.functions import Functions, schema_body
from tilewright.frontend.onnx.read.inputs import declared, inputs_of
from tilewright.frontend.onnx.read.kept import Kept, cut
from tilewright.frontend.onnx.read.late_sizes import LateSizes
from tilewright.frontend.onnx.read.listed import Bound, only_tensors, outputs_of, renamed, tensors
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
from tilewright.frontend.onnx.read.rules.aligning import broadcast
from tilewright.frontend.onnx.read.run_time_bodies import body_of, leaving
from tilewright.frontend.onnx.read.scopes import Scope
from tilewright.frontend.onnx.read.symbolic_values import SymbolicValues
from tilewright.frontend.onnx.read.text import check_text
from tilewright.frontend.onnx.read.unrolling import UNROLLED, NotUnrolled
from tilewright.frontend.onnx.read.user_lines import with_line
from tilewright.graph import Array, Graph, Node, Value, evaluate_node, make_node
from tilewright.graph.ir import extents_of
from tilewright.ops import Attribute, Operator, Trait
from tilewright.ops.hosted import HostOperator
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import Const, Expr, const
from tilewright.tensor.elements import Elements

SHAPE_ELEMENTS = 1 << 12
"""Integer results of constants up to this number of elements are computed here: axes, shapes, bounds."""
FLOAT_ELEMENTS = 1 << 5
"""The same for floats, through which exporters compute sizes and padding."""
_OF_ONNXRUNTIME = tuple(
    OnnxOperator(domain, name, rule)
    for domain, rules in ((microsoft.DOMAIN, microsoft.RULES), ("", microsoft.OF_ONNX))
    for name, rule in rules.items()
)
_NARROWING = frozenset({"QuantizeLinear", "CastLike"})
"""Operators whose results may have the type of an operand of four bits."""
_WIDENING = frozenset({"DequantizeLinear", "Cast", "Shape", "Size", *microsoft.OF_CODES})
"""Operators whose results do not have the type of such an operand."""


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
    return _loaded(_model_of(source), source, shapes or {}, bounds or {}, most_bytes, operators, outside)


def load_around(
    source: str | os.PathLike[str] | onnx.ModelProto,
    shapes: GivenShapes,
    bounds: Mapping[str, int],
    operators: Sequence[OnnxOperator] = (),
) -> tuple[Graph, Kept | None]:
    """As ``load``, but without nodes that are unknown or computed by Python, which are the second result (``kept``)."""
    native = (one for one in operators if not isinstance(one.rule, PythonFunction))
    rest, kept = cut(_model_of(source), (*native, *_OF_ONNXRUNTIME))
    return _loaded(rest, source, shapes, bounds, None, operators), kept


def _model_of(source: str | os.PathLike[str] | onnx.ModelProto) -> onnx.ModelProto:
    model = source if isinstance(source, onnx.ModelProto) else protos.read_model(Path(source))
    check_text(model)
    return model


def _loaded(
    model: onnx.ModelProto,
    source: str | os.PathLike[str] | onnx.ModelProto,
    shapes: GivenShapes,
    bounds: Mapping[str, int],
    most_bytes: int | None,
    operators: Sequence[OnnxOperator],
    outside: Outside | None = None,
) -> Graph:
    """The graph of ``model``, whose external data are those of ``outside``, or beside ``source``."""
    if outside is None and not isinstance(source, onnx.ModelProto):
        outside = ExternalData(Path(source).parent)
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
    return _Importer(model.graph, Functions(model), scope, symbolic, storage, operators).graph(shapes)


@dataclass(slots=True)
class _Importer:
    """Visits the nodes of a graph, and of the bodies in it (``bodies``), and translates them."""

    proto: onnx.GraphProto
    functions: Functions
    top: Scope
    symbolic: SymbolicValues
    storage: Storage
    operators: Sequence[OnnxOperator]
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    nodes: list[Node] = field(default_factory=list[Node])
    late: LateSizes = field(init=False)
    """Sizes that are read off data."""
    _fresh: set[Value] = field(default_factory=set[Value])
    """Constants and symbolic values created for the current node."""
    _four_bits: set[Value] = field(default_factory=set[Value])
    """Values of ONNX's types INT4 and UINT4."""
    _reserved: frozenset[str] = frozenset()
    _made: int = 0

    def __post_init__(self) -> None:
        self.late = LateSizes(self.symbolic, self.constants, self.nodes, self._fresh_name)

    def graph(self, shapes: GivenShapes) -> Graph:
        self._reserved = frozenset(name for node in self.proto.node for name in (*node.input, *node.output))
        for name, array, place in protos.initializers(self.proto, self.storage):
            self._initializer(name, array, place)
        self.note_constants(self.proto, self.top)
        inputs = self._inputs(shapes)
        self.symbolic.declare(inputs)
        self.visit(self.top)
        outputs = self._outputs()
        limits = tuple(self.symbolic.limits)
        return Graph(self.proto.name or "main", inputs, outputs, tuple(self.nodes), self.constants, limits=limits)

    # The model's own values

    def _initializer(self, name: str, array: Array, place: str) -> None:
        value = Value(name, dtypes.from_numpy(array.dtype), tuple(map(const, array.shape)))
        self.top.define(name, value, place)
        self.constants[value] = array

    def note_constants(self, proto: onnx.GraphProto, scope: Scope) -> None:
        """See ``bodies.Visitor``."""
        for tensor in proto.initializer:
            value = scope.values.get(tensor.name)
            if tensor.data_type in protos.FOUR_BITS and isinstance(value, Value):
                self._four_bits.add(value)

    def _inputs(self, given: GivenShapes) -> tuple[Value, ...]:
        """The inputs that are not constants (old models list those as well)."""
        infos = [info for info in self.proto.input if info.name not in self.top.values]
        inputs = declared(infos, given, self.symbolic.assumed.least)
        for name, bound in (*((value.name, value) for value in inputs.values), *inputs.lists.items()):
            self.top.define(name, bound, f"input {readable(name)}")
        return inputs.values

    def _outputs(self) -> tuple[Value, ...]:
        """The outputs; those without a producing node are copied, so that they have their own memory."""
        names = [info.name for info in self.proto.output]
        if not names:
            raise InvalidModel("the model has no outputs")
        if len(set(names)) != len(names):
            raise InvalidModel(f"the outputs {', '.join(map(readable, names))} repeat one")
        bound = [(name, self.value(name, self.top, "the graph's outputs")) for name in names]
        values = outputs_of(bound, self.top.values)
        missing = (value for value in dict.fromkeys(values.values()) if self.symbolic.is_missing(value))
        self.nodes.extend(self.symbolic.node(value, f"output {readable(value.name)}") for value in missing)
        made = {value for node in self.nodes for value in node.outputs}
        return tuple(v if v in made and v.name == name else self._copied(name, v) for name, v in values.items())

    def _copied(self, name: str, source: Value) -> Value:
        """A copy of ``source`` for the output ``name``; with that name unless an input has it."""
        if source in self.constants and source.name == name:
            renamed = Value(self._fresh_name(), source.dtype, source.shape)
            self.constants[renamed] = self.constants.pop(source)
            self.nodes[:] = [_renamed(node, {source: renamed}) for node in self.nodes]
            source = renamed
        own = fresh_name(f"{name}.copy", self._reserved) if source.name == name else name
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
            self._note_four_bits(node, results, scope, place)
            self._bind(names, results, scope, start, place)

    def _note_four_bits(self, node: onnx.NodeProto, results: Sequence[Bound | None], scope: Scope, place: str) -> None:
        """Note the ``results`` of four bits. Raises ``UnsupportedModel`` if values would be rounded to these."""
        is_constant = any(attribute.t.data_type in protos.FOUR_BITS for attribute in node.attribute)
        if not is_constant and not self._four_bits.intersection(scope.find(n, place) for n in node.input if n):
            return
        if node.op_type in _NARROWING:
            raise UnsupportedModel(f"{place}: numbers can't be converted to INT4 or UINT4; keep them in 8 bits")
        if node.op_type not in _WIDENING:
            self._four_bits.update(value for value in only_tensors(results) if value is not None)

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
        protos.check_types(node, schema, only_tensors(inputs), place)
        if not domain and node.op_type == "Constant":
            return [self.counted_constant(protos.constant_of(node, place, self.storage))]
        if not domain and node.op_type == "If":
            return bodies.branch(self, node, inputs, wanted, scope, place)
        if not domain and node.op_type in UNROLLED:
            return bodies.repeated(self, node, opset, inputs, wanted, scope, place)
        of_lists = None if domain else sequence_rule(node.op_type, inputs)
        if of_lists is not None:
            return self._by_rule(lambda it: [of_lists(it, inputs)], node, opset, only_tensors(inputs), wanted, place)
        values = only_tensors(inputs)
        by_body = node.op_type in BY_BODY_OF_DATA and any(each and self.elements(each) is None for each in values)
        rule = OF_OTHER_DOMAINS.get((domain, node.op_type)) if domain else RULES.get(node.op_type)
        if rule is not None and not by_body:
            return self._by_rule(rule, node, opset, tensors(inputs, place), wanted, place)
        function = schema_body(schema, node, opset, inputs)
        if function is None:
            raise unsupported(node, place)
        if not domain and node.op_type in CHECKED_INPUTS:
            inputs = tuple(self._by_rule(CHECKED_INPUTS[node.op_type], node, opset, values, wanted, place))
        opsets = {"": onnx.defs.onnx_opset_version(), **scope.opsets}
        return bodies.called(self, function, node, inputs, wanted, replace(scope, opsets=opsets, is_own=True), place)

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
        fresh = {value for value in made if value not in self.symbolic} | self._fresh
        for name, value in zip(names, only_tensors(results), strict=True):
            if name and is_top and value in fresh and value not in new:
                new[value] = Value(name, value.dtype, value.shape)
                if value in self._four_bits:
                    self._four_bits.add(new[value])
        for name, bound in zip(names, results, strict=True):
            if name and bound is not None:
                scope.define(name, renamed(bound, new), place)
        if is_top:
            self.nodes[start:] = [_renamed(node, new) for node in self.nodes[start:]]
            self.symbolic.follow(new)
            for value in self._fresh & new.keys():
                if value in self.symbolic:
                    self.symbolic.rename(value, new[value])
                else:
                    self.constants[new[value]] = self.constants.pop(value)
            self._fresh.clear()
        for value in (value for node in self.nodes[start:] for value in node.outputs):
            protos.check_size(static(value.shape) or (), f"{place}: its result {readable(value.name)}")

    # Services for rules

    def add(
        self,
        op: str | Operator,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
        outputs: int,
        place: str,
    ) -> tuple[Value, ...]:
        """See ``rules.rule.Importer``. Small integer results of constants are computed here."""
        try:
            node = self._node(found(op, place), inputs, attributes, outputs, place)
        except BadProgram as error:
            raise self.late.misfit(str(error), inputs) from error
        except Unsupported as error:
            is_open = any(value is not None and static(value.shape) is None for value in inputs)
            remedy = f"; give it by {self.symbolic.by_shapes}" if is_open else ""
            raise UnsupportedModel(f"{place}: {error}{remedy}") from error
        followed = self.symbolic.results(node, self.constants)
        if followed is not None:
            pairs = zip(followed.outputs, node.outputs, strict=True)
            return tuple(self.symbolic_value(e, static(v.shape) or (), v.dtype, place) for e, v in pairs)
        if not self._is_shape_computation(node):
            self.nodes += (*self.symbolic.missing(node, place), node)
            return tuple(self.late.shortened(value, place) for value in node.outputs)
        try:
            results = evaluate_node(node, self.constants)
        except OutOfBounds as error:
            raise InvalidModel(f"{place}: {error}") from error
        return tuple(self.constant(array, place) for array in results)

    def _node(
        self,
        op: Operator,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
        outputs: int,
        place: str,
    ) -> Node:
        """A node; its operands may first be declared to have equal extents."""
        names = [self._fresh_name() for _ in range(outputs)]
        try:
            return make_node(op, inputs, names, attributes, place)
        except BadProgram:
            given = broadcast(self, inputs, place) if op.has(Trait.ELEMENTWISE) else [*inputs]
            if given == [*inputs]:
                raise
            return make_node(op, given, names, attributes, place)

    def known(self, value: Value) -> Array | None:
        """See ``rules.rule.Importer``."""
        return self.constants.get(value)

    def constant(self, array: Array, place: str) -> Value:
        """See ``rules.rule.Importer``."""
        protos.check_size(array.shape, place)
        self.storage.budget.take(array.nbytes, place)
        return self.counted_constant(array)

    def counted_constant(self, array: Array) -> Value:
        """See ``bodies.Visitor``."""
        value = Value(self._fresh_name(), dtypes.from_numpy(array.dtype), tuple(map(const, array.shape)))
        self.constants[value] = array
        self._fresh.add(value)
        return value

    def has_four_bits(self, value: Value) -> bool:
        """See ``rules.rule.Importer``."""
        return value in self._four_bits

    def elements(self, value: Value) -> Elements | None:
        """See ``rules.rule.Importer``."""
        return self.late.elements(value)

    def sizes(self, value: Value, place: str) -> Elements:
        """See ``rules.rule.Importer``."""
        return self.late.sizes(value, place)

    def enclosed(self, run: Callable[[], Sequence[Value]], given: Sequence[Value], place: str) -> Graph:
        """See ``bodies.Visitor``."""
        start = len(self.nodes)
        try:
            with self.symbolic.inside() as limits:
                outputs = leaving(run(), self.late, start, place)
            return body_of(place, given, outputs, self.nodes[start:], self.constants, tuple(limits))
        finally:
            del self.nodes[start:]

    def tried(self, unroll: Callable[[], list[Bound]]) -> list[Bound] | None:
        """See ``bodies.Visitor``."""
        start, before = len(self.nodes), self.symbolic.snapshot()
        try:
            return unroll()
        except NotUnrolled:
            del self.nodes[start:]
            self.symbolic.restore(before)
            return None

    def between(self, op: HostOperator, inputs: Sequence[Value], outputs: int, place: str) -> tuple[Value, ...]:
        """See ``bodies.Visitor``."""
        node = make_node(op, inputs, [self._fresh_name() for _ in range(outputs)], {}, place)
        self.nodes += (*self.symbolic.missing(node, place), node)
        return node.outputs

    def fresh(self, dtype: DType, shape: Sequence[Expr]) -> Value:
        """See ``bodies.Visitor``."""
        return Value(self._fresh_name(), dtype, tuple(shape))

    def symbolic_value(self, elements: Elements, shape: Sequence[int], dtype: DType, place: str) -> Value:
        """See ``rules.rule.Importer``."""
        if all(isinstance(element, Const) for element in elements):
            numbers = [element.value for element in elements if isinstance(element, Const)]
            return self.constant(np.array(numbers, dtype.numpy).reshape(shape), place)
        value = Value(self._fresh_name(), dtype, tuple(map(const, shape)))
        self.symbolic.define(value, elements)
        self._fresh.add(value)
        return value

    def _fresh_name(self) -> str:
        """A name for values unnamed in the model. ONNX's names are arbitrary, so none can be reserved."""
        self._made += 1
        while (name := f"_{self._made}") in self._reserved:
            self._made += 1
        return name

    def _is_shape_computation(self, node: Node) -> bool:
        known = all(value is None or value in self.constants for value in node.inputs)
        stays = bool(node.dims) or node.op.has(Trait.WIDENS)
        return known and not stays and all(_is_small(value) for value in node.outputs)


def _is_small(value: Value) -> bool:
    extents = static(value.shape)
    most = FLOAT_ELEMENTS if value.dtype.is_float else SHAPE_ELEMENTS
    return extents is not None and np.prod(extents, dtype=object) <= most


def _renamed(node: Node, names: Mapping[Value, Value]) -> Node:
    """``node`` with the values in ``names`` replaced."""
    if not names:
        return node
    inputs = tuple(value if value is None else names.get(value, value) for value in node.inputs)
    return replace(node, inputs=inputs, outputs=tuple(names.get(value, value) for value in node.outputs))
