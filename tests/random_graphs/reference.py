"""A graph in float64 by ONNX's reference evaluator, and the error that a right implementation may make.

Every value is evaluated several times: once exactly, and with noise. The noise stands for rounding: what rounds gets
operands and give results that are off by some units in the last place of the dtype that the model says. What comes
out differently by this noise is ill-conditioned, by as much as it differs (Monte Carlo arithmetic; D. S. Parker 1997).

What ONNX does not define (NaN as an integer) is evaluated several times too: as 0, and as other numbers. What comes out
differently depends on it, and only that is not compared.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from tests.random_graphs.case import Array, Attribute, Case, Node, single_node
from tests.random_graphs.form import Form
from tests.random_graphs.overrides import OVERRIDES

SAMPLES = 4
ULPS = 16
"""The noise, in units of rounding: more than what a sum of a few hundred terms or a polynomial is off."""

PARTS = (0.0, 1.0, 0.3)
"""Which numbers of an integer's range stand for what is not defined: the least, the largest, and one more."""

EXACT = frozenset(
    [
        "Abs",
        "And",
        "ArgMax",
        "ArgMin",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "CastLike",
        "Ceil",
        "CenterCropPad",
        "Clip",
        "Compress",
        "Concat",
        "ConstantOfShape",
        "DepthToSpace",
        "Dropout",
        "Equal",
        "Expand",
        "EyeLike",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "GlobalMaxPool",
        "Greater",
        "GreaterOrEqual",
        "Hardmax",
        "Identity",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "Max",
        "MaxPool",
        "MaxUnpool",
        "Min",
        "Neg",
        "NonZero",
        "Not",
        "OneHot",
        "Or",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Reshape",
        "ReverseSequence",
        "Round",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Sign",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
        "Xor",
    ]
)
"""Operators that give elements of their operands, integers or bools without rounding anything."""


SINGLE = frozenset(
    ["Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Selu", "Shrink", "Swish", "ThresholdedRelu"]
)
"""Operators with constants that ONNX writes in decimals and stores in 32 bits: either is right, also for float64."""


WINDOWS = frozenset(["BlackmanWindow", "HammingWindow", "HannWindow"])
"""Sums of terms up to 1 that cancel each other: what is 0 may as well come out a rounding below."""


class NotEvaluated(Exception):
    """The reference evaluator can't do this node."""


@dataclass(frozen=True)
class Estimate:
    """A value of the graph: elements in float64 (other kinds: as they are), without and with noise."""

    dtype: np.dtype[np.generic]
    exact: Array
    noisy: tuple[Array, ...]
    variants: tuple[Array, ...] = ()
    """With other numbers for what ONNX does not define; none if nothing of the kind comes before."""

    def undefined(self) -> Array:
        """Which elements depend on what ONNX does not define."""
        changed = np.zeros(self.exact.shape, bool)
        for variant in self.variants:
            changed |= ~same(variant, self.exact)
        return changed

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f"

    def unstable(self) -> Array:
        """Which elements are another number, or another kind of number, in some sample. Of discrete kinds."""
        changed = np.zeros(self.exact.shape, bool)
        for sample in self.noisy:
            changed |= sample != self.exact
        return changed

    def budget(self) -> Array:
        """How far a right implementation may be off, element by element; NaN where nothing is known."""
        unit = np.finfo(self.dtype).eps / 2
        with np.errstate(invalid="ignore"):
            spread = np.max([np.abs(sample - self.exact) for sample in self.noisy], axis=0)
        finite = spread[np.isfinite(spread)]
        usual = np.median(finite) if finite.size else 0.0
        smallest = float(np.finfo(self.dtype).smallest_subnormal)
        return 4 * np.maximum(spread, usual) + 8 * unit * np.abs(self.exact) + 4 * smallest


def same(a: Array, b: Array) -> Array:
    """Where the elements are equal, or both NaN."""
    return (a == b) | ((a != a) & (b != b))


def given(array: Array) -> Estimate:
    """What the model is fed, or a constant."""
    wide = array.astype(np.float64) if array.dtype.kind == "f" else array
    return Estimate(array.dtype, wide, (wide,) * SAMPLES)


def evaluate(case: Case) -> dict[str, Estimate]:
    """All values of the case."""
    values = {name: given(array) for name, array in {**case.inputs, **case.constants, **case.parameters}.items()}
    for position, node in enumerate(case.nodes):
        values.update(evaluate_node(node, values, case.parameters, case.opset, position))
    return values


def evaluate_node(
    node: Node, values: Mapping[str, Estimate], parameters: Mapping[str, Array], opset: int, seed: int
) -> dict[str, Estimate]:
    """The results of one node. Raises ``NotEvaluated``."""
    operands = {name: values[name] for name in node.inputs if name}
    dtypes = result_dtypes(node, operands, opset)
    run = _Runner(node, opset)
    masked = run({name: value.exact for name, value in operands.items()}, dtypes)
    exact = [np.ma.getdata(array) for array in masked]
    variants = _variants(run, operands, dtypes) if _has_variants(masked, operands) else []
    rounds = node.op_type not in EXACT
    coarse = np.dtype(np.float32) if node.op_type in SINGLE else None
    noise = np.random.default_rng([seed, len(node.op_type), opset])
    samples: list[list[Array]] = []
    for sample in range(SAMPLES):
        arrays = {name: value.noisy[sample] for name, value in operands.items()}
        if rounds:
            blurred = {
                name: _blurred(array, _coarser(operands[name].dtype, coarse), noise) for name, array in arrays.items()
            }
            arrays = {name: array if name in parameters else blurred[name] for name, array in arrays.items()}
        results = [np.ma.getdata(array) for array in run(arrays, dtypes)]
        pairs = zip(results, dtypes, strict=True)
        least = 1.0 if node.op_type in WINDOWS else 0.0
        samples.append([_blurred(a, _coarser(dtype, coarse), noise, least) if rounds else a for a, dtype in pairs])
    if any(a.shape != b.shape for results in (*samples, *variants) for a, b in zip(results, exact, strict=True)):
        raise NotEvaluated(f"{node}: the shape depends on rounding, or on what is not defined")
    names = [name for name in node.outputs if name]
    return {
        name: Estimate(dtype, array, *(tuple(results[position] for results in each) for each in (samples, variants)))
        for position, (name, dtype, array) in enumerate(zip(names, dtypes, exact, strict=True))
    }


def _has_variants(results: Sequence[Array], operands: Mapping[str, Estimate]) -> bool:
    return any(np.ma.is_masked(array) for array in results) or any(value.variants for value in operands.values())


def _variants(
    run: "_Runner", operands: Mapping[str, Estimate], dtypes: Sequence[np.dtype[np.generic]]
) -> list[list[Array]]:
    """The results with other numbers for each element that is not defined."""
    found: list[list[Array]] = []
    for position, part in enumerate(PARTS):
        arrays = {name: value.variants[position] if value.variants else value.exact for name, value in operands.items()}
        found.append([_with_numbers(array, part) for array in run(arrays, dtypes)])
    return found


def _with_numbers(array: Array, part: float) -> Array:
    """``array`` (of integers, if it is masked) with the number at ``part`` of the range where it is masked."""
    if not np.ma.is_masked(array):
        return np.ma.getdata(array)
    info = np.iinfo(array.dtype)
    number = array.dtype.type(info.min + int((info.max - info.min) * part))
    return np.where(np.ma.getmaskarray(array), number, np.ma.getdata(array))


def result_dtypes(node: Node, operands: Mapping[str, Estimate], opset: int) -> list[np.dtype[np.generic]]:
    """The dtypes of the results that are not left out, by ONNX's inference. Raises ``NotEvaluated``."""
    plain = {name: np.empty(value.exact.shape, value.dtype) for name, value in operands.items()}
    try:
        inferred = onnx.shape_inference.infer_shapes(single_node(node, plain, opset), strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        raise NotEvaluated(f"{node}: {error}") from error
    codes = [info.type.tensor_type.elem_type for info in inferred.graph.output]
    if 0 in codes:  # functions are not inferred; those that have rules keep the dtype
        return [next(iter(operands.values())).dtype] * len(codes)
    return [onnx.helper.tensor_dtype_to_np_dtype(code) for code in codes]


class _Runner:
    """One node, with float64 in the place of all floats."""

    def __init__(self, node: Node, opset: int) -> None:
        attributes = {name: _widened(name, value) for name, value in node.attributes.items()}
        self._node = Node(node.op_type, node.inputs, node.outputs, attributes)
        self._override = OVERRIDES.get(node.op_type)
        self._opset = opset
        if self._override is None:
            model = single_node(self._node, {name: np.empty(()) for name in node.inputs if name}, opset)
            try:
                self._evaluator = ReferenceEvaluator(model)
            except Exception as error:
                raise NotEvaluated(f"{node}: {error}") from error

    def __call__(self, operands: Mapping[str, Array], dtypes: Sequence[np.dtype[np.generic]]) -> list[Array]:
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                if self._override is not None:
                    inputs = [operands[name] if name else None for name in self._node.inputs]
                    node = self._node
                    form = Form(node.op_type, self._opset, node.attributes, len(node.outputs))
                    made = self._override(form, inputs)
                    found = [a for a, name in zip(made, node.outputs, strict=False) if name]
                else:
                    found = self._evaluator.run(None, dict(operands))
        except Exception as error:  # the evaluator raises anything
            raise NotEvaluated(f"{self._node}: {type(error).__name__}: {error}") from error
        return [_as(np.asanyarray(array), dtype, self._node) for array, dtype in zip(found, dtypes, strict=True)]


def _as(array: Array, dtype: np.dtype[np.generic], node: Node) -> Array:
    if dtype.kind == "f":
        return array.astype(np.float64)
    if array.dtype.kind == "f" or (array.dtype != dtype and not np.array_equal(array, array.astype(dtype))):
        raise NotEvaluated(f"{node}: the reference gives {array.dtype} where {dtype} is wanted")
    return array.astype(dtype)


_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_DTYPES = ("to", "dtype", "stash_type", "output_dtype")


def _widened(name: str, value: Attribute) -> Attribute:
    if name in _DTYPES and value in _FLOATS:
        return TensorProto.DOUBLE
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return value.astype(np.float64)
    return value


def _coarser(dtype: np.dtype[np.generic], least: np.dtype[np.generic] | None) -> np.dtype[np.generic]:
    return least if least is not None and dtype == np.float64 else dtype


def _blurred(array: Array, dtype: np.dtype[np.generic], noise: np.random.Generator, least: float = 0.0) -> Array:
    """``array`` with noise, in proportion to its elements, and to ``least`` besides."""
    if dtype.kind != "f":
        return array
    unit = ULPS * np.finfo(dtype).eps / 2
    with np.errstate(all="ignore"):
        errors = unit * noise.uniform(-1, 1, array.shape)
        return np.asarray(array * (1 + errors) + least * errors)
