"""MiniLM-L6 (a BERT encoder with mean pooling) as an ONNX graph, the way a plain exporter writes it.

Nothing is fused by hand: query, key and value are three MatMul + Add pairs, GELU is spelled out with Erf, and the
attention mask, mean pooling and L2 normalization are part of the graph. Inputs (int64, [batch, sequence]): `input_ids`,
`attention_mask` (1 for a token, 0 for padding) and `token_type_ids`; output: `embeddings` (float32, [batch, hidden]),
rows of length one.

Architecture: Devlin et al., "BERT" (2019); Wang et al., "MiniLM" (2020); pooling: Reimers and Gurevych,
"Sentence-BERT" (2019).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Weights = Mapping[str, NDArray[np.float32]]
Dimension = int | str

OPSET = 17  # the first with LayerNormalization
IR_VERSION = 8
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "embeddings"


@dataclass(frozen=True, slots=True)
class Config:
    """What the shapes of the weights don't tell; the defaults are MiniLM-L6's."""

    heads: int = 12
    epsilon: float = 1e-12


@dataclass(frozen=True, slots=True)
class GraphWriter:
    """Collects nodes and initializers; every value is named after what it is in the network."""

    weights: Weights
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict[str, onnx.TensorProto])

    def node(self, op_type: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        """Append a node and return its only output, which bears the node's name."""
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        """Add an initializer (once) and return its name."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def scalar(self, name: str, value: float) -> str:
        """Add a float32 scalar."""
        return self.constant(name, np.array(value, np.float32))

    def integers(self, name: str, *values: int) -> str:
        """Add a one-dimensional int64 tensor: axes, a shape, slice bounds."""
        return self.constant(name, np.array(values, np.int64))

    def weight(self, name: str) -> str:
        """Add a weight as it is stored."""
        return self.constant(name, self.weights[name])

    def linear(self, x: str, name: str) -> str:
        """x @ W^T + b; the weight is stored [out, in], and transposed here as an exporter's constant folding does."""
        matrix = self.constant(f"{name}.weight_t", self.weights[f"{name}.weight"].T)
        product = self.node("MatMul", [x, matrix], f"{name}.matmul")
        return self.node("Add", [product, self.weight(f"{name}.bias")], f"{name}.add")

    def layer_norm(self, x: str, name: str, epsilon: float) -> str:
        """Normalize over the last axis, then scale and shift."""
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", [x, scale, bias], f"{name}.normalized", axis=-1, epsilon=epsilon)


def build_model(
    weights: Weights, batch: Dimension, sequence: Dimension, config: Config | None = None
) -> onnx.ModelProto:
    """Write the model; an int gives a static dimension, a str a symbolic one.

    Raises ValueError when the hidden size isn't a multiple of the heads or the positions end before `sequence`.
    """
    config = config or Config()
    _check(weights, sequence, config)
    graph = GraphWriter(weights)
    x = _embed(graph, sequence, config)
    mask = _additive_mask(graph)
    for layer in range(layer_count(weights)):
        x = _encoder_layer(graph, x, mask, f"encoder.layer.{layer}", (batch, sequence), config)
    _pool(graph, x)
    return _finish(graph, batch, sequence)


def layer_count(weights: Weights) -> int:
    """Number of encoder layers in the weights."""
    return len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})


def hidden_size(weights: Weights) -> int:
    """Length of a token's vector."""
    return weights["embeddings.word_embeddings.weight"].shape[1]


def _check(weights: Weights, sequence: Dimension, config: Config) -> None:
    hidden, positions = hidden_size(weights), len(weights["embeddings.position_embeddings.weight"])
    if hidden % config.heads:
        raise ValueError(f"hidden size {hidden} is not a multiple of {config.heads} heads")
    if isinstance(sequence, int) and sequence > positions:
        raise ValueError(f"sequence {sequence} exceeds the {positions} positions that the model knows")


def _embed(graph: GraphWriter, sequence: Dimension, config: Config) -> str:
    """Word + token type + position, normalized: [batch, sequence, hidden]."""
    word = _lookup(graph, "word", "input_ids")
    token_type = _lookup(graph, "token_type", "token_type_ids")
    position = _lookup(graph, "position", _position_ids(graph, sequence))
    x = graph.node("Add", [word, token_type], "embeddings.word_and_type")
    x = graph.node("Add", [x, position], "embeddings.sum")
    return graph.layer_norm(x, "embeddings.LayerNorm", config.epsilon)


def _lookup(graph: GraphWriter, kind: str, ids: str) -> str:
    table = graph.weight(f"embeddings.{kind}_embeddings.weight")
    return graph.node("Gather", [table, ids], f"embeddings.{kind}", axis=0)


def _position_ids(graph: GraphWriter, sequence: Dimension) -> str:
    """0, 1, ... as [1, sequence]: a constant, or cut from all positions at run time."""
    if isinstance(sequence, int):
        return graph.constant("position_ids", np.arange(sequence, dtype=np.int64)[None])
    count = len(graph.weights["embeddings.position_embeddings.weight"])
    positions = graph.constant("all_position_ids", np.arange(count, dtype=np.int64)[None])
    shape = graph.node("Shape", ["input_ids"], "input_shape")
    length = graph.node("Gather", [shape, graph.constant("one_index", np.array(1, np.int64))], "length", axis=0)
    end = graph.node("Unsqueeze", [length, graph.integers("axis_0", 0)], "position_end")
    begin, axis = graph.integers("position_begin", 0), graph.integers("axis_1", 1)
    return graph.node("Slice", [positions, begin, end, axis], "position_ids")


def _additive_mask(graph: GraphWriter) -> str:
    """0 for a token and the lowest float32 for padding: [batch, 1, 1, sequence]."""
    rows = graph.node("Unsqueeze", ["attention_mask", graph.integers("axis_1", 1)], "mask.rows")
    mask = graph.node("Unsqueeze", [rows, graph.integers("axis_2", 2)], "mask.heads")
    mask = graph.node("Cast", [mask], "mask.float", to=TensorProto.FLOAT)
    padding = graph.node("Sub", [graph.scalar("one", 1.0), mask], "mask.padding")
    return graph.node("Mul", [padding, graph.scalar("lowest", float(np.finfo(np.float32).min))], "mask.additive")


def _encoder_layer(
    graph: GraphWriter, x: str, mask: str, name: str, shape: tuple[Dimension, Dimension], config: Config
) -> str:
    attended = _attention(graph, x, mask, f"{name}.attention", shape, config)
    dense = graph.linear(attended, f"{name}.attention.output.dense")
    x = _residual_norm(graph, dense, x, f"{name}.attention.output", config)
    inner = _gelu(graph, graph.linear(x, f"{name}.intermediate.dense"), f"{name}.intermediate")
    return _residual_norm(graph, graph.linear(inner, f"{name}.output.dense"), x, f"{name}.output", config)


def _residual_norm(graph: GraphWriter, x: str, residual: str, name: str, config: Config) -> str:
    total = graph.node("Add", [x, residual], f"{name}.residual")
    return graph.layer_norm(total, f"{name}.LayerNorm", config.epsilon)


def _attention(
    graph: GraphWriter, x: str, mask: str, name: str, shape: tuple[Dimension, Dimension], config: Config
) -> str:
    """softmax(Q K^T / sqrt(size) + mask) V over the heads, joined again to [batch, sequence, hidden]."""
    query = _heads(graph, x, f"{name}.self.query", [0, 2, 1, 3], shape, config)
    key = _heads(graph, x, f"{name}.self.key", [0, 2, 3, 1], shape, config)
    value = _heads(graph, x, f"{name}.self.value", [0, 2, 1, 3], shape, config)
    hidden = hidden_size(graph.weights)
    scores = graph.node("MatMul", [query, key], f"{name}.scores")
    scale = graph.scalar("sqrt_head_size", (hidden // config.heads) ** 0.5)
    scaled = graph.node("Div", [scores, scale], f"{name}.scaled")
    masked = graph.node("Add", [scaled, mask], f"{name}.masked")
    probabilities = graph.node("Softmax", [masked], f"{name}.probabilities", axis=-1)
    context = graph.node("MatMul", [probabilities, value], f"{name}.context")
    context = graph.node("Transpose", [context], f"{name}.context_by_token", perm=[0, 2, 1, 3])
    return graph.node("Reshape", [context, _shape(graph, "joined_shape", shape, [hidden])], f"{name}.joined")


def _heads(
    graph: GraphWriter, x: str, name: str, order: list[int], shape: tuple[Dimension, Dimension], config: Config
) -> str:
    """Project, split the last axis into heads, and bring the axes into `order`."""
    split = _shape(graph, "heads_shape", shape, [config.heads, hidden_size(graph.weights) // config.heads])
    by_token = graph.node("Reshape", [graph.linear(x, name), split], f"{name}.split")
    return graph.node("Transpose", [by_token], f"{name}.heads", perm=order)


def _shape(graph: GraphWriter, name: str, leading: tuple[Dimension, Dimension], rest: list[int]) -> str:
    """A Reshape target; a symbolic dimension is 0, which copies the input's."""
    return graph.integers(name, *(size if isinstance(size, int) else 0 for size in leading), *rest)


def _gelu(graph: GraphWriter, x: str, name: str) -> str:
    """x * (1 + erf(x / sqrt(2))) * 0.5."""
    scaled = graph.node("Div", [x, graph.scalar("sqrt_2", 2**0.5)], f"{name}.gelu.scaled")
    erf = graph.node("Erf", [scaled], f"{name}.gelu.erf")
    raised = graph.node("Add", [erf, graph.scalar("one", 1.0)], f"{name}.gelu.raised")
    product = graph.node("Mul", [x, raised], f"{name}.gelu.product")
    return graph.node("Mul", [product, graph.scalar("half", 0.5)], f"{name}.gelu")


def _pool(graph: GraphWriter, x: str) -> str:
    """Mean over the tokens that are no padding, then rows of length one."""
    mask = graph.node("Unsqueeze", ["attention_mask", graph.integers("last_axis", -1)], "pooling.mask")
    mask = graph.node("Cast", [mask], "pooling.mask_float", to=TensorProto.FLOAT)
    axis = graph.integers("axis_1", 1)
    kept = graph.node("Mul", [x, mask], "pooling.kept")
    total = graph.node("ReduceSum", [kept, axis], "pooling.sum", keepdims=0)
    tokens = graph.node("ReduceSum", [mask, axis], "pooling.tokens", keepdims=0)
    tokens = graph.node("Clip", [tokens, graph.scalar("smallest_count", 1e-9)], "pooling.tokens_clipped")
    mean = graph.node("Div", [total, tokens], "pooling.mean")
    length = graph.node("ReduceL2", [mean], "pooling.length", axes=[1], keepdims=1)
    length = graph.node("Clip", [length, graph.scalar("smallest_length", 1e-12)], "pooling.length_clipped")
    return graph.node("Div", [mean, length], OUTPUT)


def _finish(graph: GraphWriter, batch: Dimension, sequence: Dimension) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [batch, sequence]) for name in INPUTS]
    output = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [batch, hidden_size(graph.weights)])
    proto = helper.make_graph(graph.nodes, "minilm", inputs, [output], list(graph.initializers.values()))
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(proto, opset_imports=[opset], ir_version=IR_VERSION, producer_name="tilewright-example")
    onnx.checker.check_model(model)
    return model
