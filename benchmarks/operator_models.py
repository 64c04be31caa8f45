"""The table of operators: ten in four shapes and two subgraphs in four shapes, as ONNX models with constant weights.

The shapes are those of Ansor's evaluation (Zheng et al., OSDI 2020). A case is called OPERATOR-SHAPE-bBATCH: C2D-3-b16
is the third convolution, at batch 16. Inputs are normal numbers, weights are divided by the root of how many are added
up, so outputs have a standard deviation of about 1.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8
CAPSULE = 4
GROUPS = 4
DILATION = 2
BATCHES = (1, 16)


@dataclass(slots=True)
class Parts:
    """What a model is put together from."""

    random: np.random.Generator
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    constants: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    nodes: list[NodeProto] = field(default_factory=list[NodeProto])

    def input(self, *shape: int) -> str:
        """A new input of float32."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = shape
        return name

    def weight(self, shape: Sequence[int], added_up: int) -> str:
        """Random weights; each output element is a sum over `added_up` of them."""
        return self.constant(self.random.standard_normal(shape, np.float32) / np.float32(added_up**0.5))

    def constant(self, array: np.ndarray) -> str:
        """A new constant."""
        name = f"w{len(self.constants)}"
        self.constants[name] = array
        return name

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        """A new node; the name of its output."""
        output = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output


def convolution(dims: int, groups: int = 1, dilation: int = 1) -> Callable[..., str]:
    """Arguments: spatial sizes, CI, CO, kernel, stride, pad."""

    def make(parts: Parts, batch: int, *arguments: int) -> str:
        size, (inner, outer, kernel, stride, pad) = arguments[:dims], arguments[dims:]
        x = parts.input(batch, inner, *size)
        w = parts.weight((outer, inner // groups, *[kernel] * dims), inner // groups * kernel**dims)
        window = {"strides": [stride] * dims, "pads": [pad] * 2 * dims, "dilations": [dilation] * dims}
        return parts.node("Conv", x, w, group=groups, **window)

    return make


def depthwise(
    parts: Parts, batch: int, height: int, width: int, channels: int, kernel: int, stride: int, pad: int
) -> str:
    """Each channel by its own kernel."""
    shape = (height, width, channels, channels, kernel, stride, pad)
    return convolution(2, groups=channels)(parts, batch, *shape)


def transposed(
    parts: Parts, batch: int, height: int, width: int, inner: int, outer: int, kernel: int, stride: int, pad: int
) -> str:
    """Transposed convolution in two dimensions."""
    x = parts.input(batch, inner, height, width)
    w = parts.weight((inner, outer, kernel, kernel), inner * (kernel // stride) ** 2)
    return parts.node("ConvTranspose", x, w, strides=[stride] * 2, pads=[pad] * 4)


def capsule(
    parts: Parts, batch: int, height: int, width: int, inner: int, outer: int, kernel: int, stride: int, pad: int
) -> str:
    """y[n, h, w, i, j, co] = sum over r, s, k, ci of x[n, .., .., i, k, ci] * weight[r, s, k, j, ci, co].

    Written as a convolution with i in the batch and (k, ci), (j, co) as channels: no operator does it as it stands.
    """
    x = parts.input(batch, height, width, CAPSULE, CAPSULE, inner)
    channels = CAPSULE * inner
    first = parts.node("Transpose", x, perm=[0, 3, 4, 5, 1, 2])
    flat = parts.node("Reshape", first, parts.constant(np.array([batch * CAPSULE, channels, height, width])))
    w = parts.weight((CAPSULE * outer, channels, kernel, kernel), channels * kernel**2)
    product = parts.node("Conv", flat, w, strides=[stride] * 2, pads=[pad] * 4)
    shape = (batch, CAPSULE, CAPSULE, outer, *((size + 2 * pad - kernel) // stride + 1 for size in (height, width)))
    return parts.node(
        "Transpose", parts.node("Reshape", product, parts.constant(np.array(shape))), perm=[0, 4, 5, 1, 2, 3]
    )


def matmul(parts: Parts, batch: int, rows: int, inner: int, columns: int) -> str:
    """A product of matrices for each element of the batch."""
    return parts.node("MatMul", parts.input(batch, rows, inner), parts.weight((batch, inner, columns), inner))


def matrix_norm(parts: Parts, batch: int, rows: int, columns: int) -> str:
    """The 2-norm of all elements of each matrix."""
    return parts.node("ReduceL2", parts.input(batch, rows, columns), axes=[1, 2], keepdims=0)


def conv_layer(parts: Parts, batch: int, *arguments: int) -> str:
    """Convolution, batch norm, ReLU."""
    product = convolution(2)(parts, batch, *arguments)
    channels = arguments[3]
    low_high = ((0.7, 1.3), (-0.2, 0.2), (-0.2, 0.2), (0.7, 1.3))  # scale, shift, mean, variance
    statistics = [parts.constant(parts.random.uniform(*range_, channels).astype(np.float32)) for range_ in low_high]
    return parts.node("Relu", parts.node("BatchNormalization", product, *statistics))


def attention_scores(parts: Parts, batch: int, sequence: int, heads: int, width: int) -> str:
    """Transpose, batched matrix product, softmax: the weights of attention."""
    query = parts.node("Transpose", parts.input(batch, sequence, heads, width), perm=[0, 2, 1, 3])
    key = parts.node("Transpose", parts.input(batch, sequence, heads, width), perm=[0, 2, 3, 1])
    scaled = parts.node("Mul", query, parts.constant(np.array(width**-0.5, np.float32)))
    return parts.node("Softmax", parts.node("MatMul", scaled, key), axis=-1)


Shapes = tuple[tuple[int, ...], ...]
OPERATORS: dict[str, tuple[Callable[..., str], Shapes]] = {
    "C1D": (
        convolution(1),
        ((256, 64, 128, 3, 2, 1), (128, 128, 256, 1, 2, 0), (64, 256, 256, 5, 1, 2), (32, 512, 512, 3, 1, 1)),
    ),
    "C2D": (
        convolution(2),
        ((224, 224, 3, 64, 7, 2, 3), (56, 56, 64, 64, 1, 1, 0), (14, 14, 256, 256, 3, 1, 1), (7, 7, 512, 512, 3, 1, 1)),
    ),
    "C3D": (
        convolution(3),
        (
            (16, 224, 224, 3, 64, 7, 2, 3),
            (16, 56, 56, 64, 64, 1, 1, 0),
            (16, 14, 14, 256, 256, 3, 1, 1),
            (16, 7, 7, 512, 512, 3, 1, 1),
        ),
    ),
    "GMM": (matmul, ((128, 128, 128), (512, 32, 512), (512, 512, 512), (1024, 1024, 1024))),
    "GRP": (
        convolution(2, groups=GROUPS),
        ((56, 56, 64, 64, 1, 1, 0), (56, 56, 64, 128, 3, 2, 1), (14, 14, 256, 256, 3, 1, 1), (7, 7, 512, 512, 3, 1, 1)),
    ),
    "DIL": (
        convolution(2, dilation=DILATION),
        ((224, 224, 3, 64, 7, 2, 3), (56, 56, 64, 64, 1, 1, 0), (14, 14, 256, 256, 3, 1, 1), (7, 7, 512, 512, 3, 1, 1)),
    ),
    "DEP": (
        depthwise,
        ((112, 112, 32, 3, 1, 1), (112, 112, 64, 3, 2, 1), (14, 14, 512, 3, 2, 1), (7, 7, 1024, 3, 1, 1)),
    ),
    "T2D": (
        transposed,
        ((4, 4, 512, 256, 4, 2, 1), (8, 8, 256, 128, 4, 2, 1), (16, 16, 128, 64, 4, 2, 1), (32, 32, 64, 3, 4, 2, 1)),
    ),
    "CAP": (
        capsule,
        ((16, 16, 32, 32, 3, 2, 1), (8, 8, 32, 32, 3, 1, 1), (16, 16, 8, 16, 3, 2, 1), (8, 8, 16, 16, 3, 1, 1)),
    ),
    "NRM": (matrix_norm, ((256, 256), (512, 512), (1024, 1024), (4096, 1024))),
    "ConvLayer": (
        conv_layer,
        (
            (224, 224, 3, 64, 7, 2, 3),
            (56, 56, 64, 128, 3, 2, 1),
            (28, 28, 128, 256, 1, 2, 0),
            (7, 7, 512, 512, 3, 1, 1),
        ),
    ),
    "TBS": (attention_scores, ((128, 12, 64), (128, 16, 64), (64, 12, 128), (128, 12, 128))),
}


@dataclass(frozen=True, slots=True)
class OperatorCase:
    """One operator in one shape; `shape` counts from 1."""

    operator: str
    shape: int
    batch: int

    @property
    def name(self) -> str:
        """Also the file's."""
        return f"{self.operator}-{self.shape}-b{self.batch}"

    @property
    def arguments(self) -> tuple[int, ...]:
        """As the table has them."""
        return OPERATORS[self.operator][1][self.shape - 1]


def cases(operators: Sequence[str], batches: Sequence[int]) -> Iterator[OperatorCase]:
    """All shapes of these operators. Raises KeyError for an unknown one."""
    for operator in operators:
        for shape, _ in enumerate(OPERATORS[operator][1], 1):
            yield from (OperatorCase(operator, shape, batch) for batch in batches)


def build_model(case: OperatorCase) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model, and feeds for it; the same ones every time."""
    parts = Parts(np.random.default_rng(prod((case.batch, *case.arguments))))
    output = OPERATORS[case.operator][0](parts, case.batch, *case.arguments)
    return assemble(parts, output, case.name)


def assemble(parts: Parts, output: str, name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of these parts with one output, and random feeds for it."""
    inputs = [helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each, shape in parts.inputs.items()]
    constants = [numpy_helper.from_array(array, each) for each, array in parts.constants.items()]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    graph = helper.make_graph(parts.nodes, name, inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    feeds = {each: parts.random.standard_normal(shape, np.float32) for each, shape in parts.inputs.items()}
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True), feeds
