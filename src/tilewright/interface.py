"""The manifest of compiled code, with run-time extents as symbols.

A dimension of an input is a symbol. Extents that depend on symbols (``2*n``, ``(n - 3) // 2``) are symbols that the
runtime computes by a formula; so are conditions on inputs, such as that no intermediate has a negative extent.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tilewright.backend.api import Needs
from tilewright.base.checks import Checks
from tilewright.base.errors import UnsupportedModel
from tilewright.base.names import fresh_name
from tilewright.base.numerics import Math, Precision
from tilewright.graph import Graph, Value
from tilewright.graph.ir import extents_of
from tilewright.loops.program import Dim
from tilewright.runtime.manifest import Extent as Listed
from tilewright.runtime.manifest import Formula, Manifest, Symbol, TensorSpec
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.expr import ZERO, Binary, Const, Expr, Extent, Var, format_expr
from tilewright.symbolic.operations import BinaryOp
from tilewright.tensor.elements import Limit

_SIGNS: Mapping[BinaryOp, str] = {
    BinaryOp.ADD: "+",
    BinaryOp.SUB: "-",
    BinaryOp.MUL: "*",
    BinaryOp.FLOORDIV: "//",
    BinaryOp.MOD: "%",
    BinaryOp.MIN: "min",
    BinaryOp.MAX: "max",
}


def bounds_of(graph: Graph, given: Mapping[str, int]) -> dict[str, int]:
    """Upper bounds of run-time extents, from the user and from the model."""
    own = {extent.given: most for extent, most in graph.bounds.items()}
    return {name: min(most, own.get(name, most)) for name, most in {**own, **given}.items()}


def dims_of(inputs: Iterable[Value], bounds: Mapping[str, int]) -> tuple[Dim, ...]:
    """The run-time extents, in the order of the ABI."""
    return tuple(Dim(extent, bounds.get(extent.given)) for extent in extents_of(inputs))


def manifest(
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Sequence[Value],
    dims: Sequence[Dim],
    needs: Needs,
    limits: Sequence[Limit] = (),
    math: Math = Math.DEFAULT,
    checks: Checks = Checks.ON,
    precision: Precision = Precision.FP32,
) -> Manifest:
    """The manifest of compiled code. Raises ``UnsupportedModel`` for an extent that can't be computed."""
    symbols = _Symbols(dims)
    entering, leaving, known = (tuple(map(symbols.spec, values)) for values in (inputs, outputs, constants))
    for limit in dict.fromkeys(limits):
        symbols.check(limit)
    workspace = symbols.workspace(needs)
    listed = tuple(symbols.listed.values())
    memory = (workspace, needs.scratch_bytes)
    return Manifest(entering, leaving, known, listed, *memory, needs.sites, needs.calls, math, checks, precision)


def staged_manifest(
    graph: Graph,
    constants: Sequence[Value],
    bounds: Mapping[str, int],
    math: Math = Math.DEFAULT,
    checks: Checks = Checks.ON,
    precision: Precision = Precision.FP32,
) -> Manifest:
    """The manifest of a model in stages. Extents of outputs that do not follow from those of inputs are ``late``."""
    symbols = _Symbols(dims_of(graph.inputs, bounds))
    entering, known = (tuple(map(symbols.spec, values)) for values in (graph.inputs, constants))
    late = dict.fromkeys(_late_names(graph))
    leaving = tuple(symbols.spec_with(value, graph.extents) for value in graph.outputs)
    listed = tuple(symbols.listed.values())
    return Manifest(entering, leaving, known, listed, math=math, checks=checks, precision=precision, late=tuple(late))


def _late_names(graph: Graph) -> Iterator[str]:
    known = frozenset(graph.extents)
    extents = (extent for value in graph.outputs for extent in value.shape)
    return (_text(extent) for extent in extents if not extent.variables <= known)


def _text(extent: Expr) -> str:
    return format_expr(extent, name=lambda variable: variable.given)


def input_spec(value: Value) -> TensorSpec:
    """An input of a model, before it is compiled."""
    return _Symbols(dims_of([value], {})).spec(value)


def limits_of(graph: Graph, dims: Sequence[Dim]) -> list[Limit]:
    """Conditions on inputs: those found at import, and that no extent is negative.

    An extent may be negative where a window is larger than its operand.
    """
    bounds = Bounds(dims={dim.var: dim.bound for dim in dims})
    extents = dict.fromkeys(e for node in graph.nodes for value in node.outputs for e in value.shape)
    lows = ((extent, interval(extent, bounds).lo) for extent in extents if not isinstance(extent, Const | Extent))
    return [*graph.limits, *(Limit(extent) for extent, low in lows if low is None or low < 0)]


class _Symbols:
    """The symbols of a manifest; those of dimensions come first, as the ABI requires."""

    def __init__(self, dims: Sequence[Dim]) -> None:
        self.listed = {dim.var.given: Symbol(dim.var.given, dim.var.least, dim.bound) for dim in dims}
        self._computed: dict[Expr, str] = {}

    def spec(self, value: Value) -> TensorSpec:
        """``value`` as an input, output or constant."""
        return TensorSpec(value.name, value.dtype, tuple(self._extent(extent, value) for extent in value.shape))

    def spec_with(self, value: Value, known: Collection[Var]) -> TensorSpec:
        """``value`` as an output; extents that do not depend on ``known`` ones only are called by their names."""
        extents = (
            self._extent(extent, value) if extent.variables.issubset(known) else _text(extent) for extent in value.shape
        )
        return TensorSpec(value.name, value.dtype, tuple(extents))

    def _extent(self, extent: Expr, value: Value) -> Listed:
        match extent:
            case Const(number):
                return int(number)
            case Extent():
                return extent.given
            case _ if extent in self._computed:
                return self._computed[extent]
            case _:
                formula = _formula(extent)
                if formula is None:
                    raise UnsupportedModel(
                        f"{value!r}: the extent {extent} can't be computed at run time; give shapes="
                    )
                return self._add(extent, formula, None)

    def check(self, limit: Limit) -> None:
        """Add ``limit``, for which the runtime refuses inputs that violate it."""
        if limit.most is None and limit.value in self._computed:
            return
        formula = _formula(limit.value)
        if formula is None:
            raise UnsupportedModel(f"the extent {limit.value} can't be computed at run time; give shapes=")
        self._add(limit.value, formula, limit.most)

    def workspace(self, needs: Needs) -> Listed:
        """The bytes of workspace of a call."""
        if needs.more_workspace == ZERO:
            return needs.workspace_bytes
        size = needs.workspace_bytes + needs.more_workspace
        formula = _formula(size)
        if formula is None:
            raise UnsupportedModel(f"the workspace of {size} bytes can't be computed at run time; give shapes=")
        return self._add(size, formula, None, "workspace")

    def _add(self, value: Expr, formula: Formula, most: int | None, wanted: str = "") -> str:
        name = fresh_name(wanted or str(value), self.listed)
        self.listed[name] = Symbol(name, 0, most, formula)
        self._computed.setdefault(value, name)
        return name


def _formula(extent: Expr) -> Formula | None:
    """The formula of ``extent`` for the runtime; None if there is none."""
    match extent:
        case Const(number):
            return int(number)
        case Extent():
            return extent.given
        case Binary(op, a, b) if op in _SIGNS:
            left, right = _formula(a), _formula(b)
            return None if left is None or right is None else (_SIGNS[op], left, right)
        case _:
            return None
