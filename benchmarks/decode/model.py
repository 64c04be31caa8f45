"""Writes a decoder as exporters of language models do, with standard operators and random weights.

Llama's layers (Touvron et al., 2023): RMSNorm, rotary embedding (Su et al., 2021), grouped queries (Ainslie et al.,
2023), SwiGLU (Shazeer, 2020). Keys and values of earlier tokens are the inputs `past_key_values.N.key/value`, those of
all tokens the outputs `present.N.key/value`, `[batch, kv heads, past, 64]`. Batch, past and sequence are open. Weights
of 4 and 8 bits are MatMulNBits in blocks of 32 rows; the table of words is float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEAD = 64
"""Elements of a head."""
BLOCK = 32
"""Rows with one scale."""
LOWEST = float(np.finfo(np.float32).min)
"""What a mask adds to scores."""
_PAGE = 4096
_END = np.iinfo(np.int64).max


class Weights(StrEnum):
    F32 = "f32"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def bits(self) -> int:
        return {"f32": 32, "int8": 8, "int4": 4}[self]


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model. `accuracy`: the `accuracy_level` of MatMulNBits, 4 as exporters write it."""

    width: int = 2048
    layers: int = 8
    kv_heads: int = 8
    words: int = 32000
    weights: Weights = Weights.F32
    accuracy: int = 4

    @property
    def heads(self) -> int:
        return self.width // HEAD

    @property
    def hidden(self) -> int:
        """Of SwiGLU: 8/3 of the width, in whole 256s."""
        return -(-self.width * 8 // (3 * 256)) * 256

    @property
    def weight_bytes(self) -> int:
        """That each token reads: the codes, and their scales in float32."""
        own = self.width * (2 * self.heads + 2 * self.kv_heads) * HEAD + 3 * self.width * self.hidden
        count = self.layers * own + self.width * self.words
        return count * self.weights.bits // 8 + (0 if self.weights is Weights.F32 else count // BLOCK * 4)

    def cache_bytes(self, past: int) -> int:
        """Of keys and values, in float32."""
        return 2 * 4 * self.layers * self.kv_heads * HEAD * past

    def caches(self) -> list[str]:
        return [f"{n}.{part}" for n in range(self.layers) for part in ("key", "value")]


def write(config: Config, path: Path, seed: int = 0) -> None:
    """The model as an ONNX file, with its weights in a file beside it."""
    with path.with_suffix(".data").open("wb") as file:
        writer = _Writer(config, file, path.with_suffix(".data").name, np.random.default_rng(seed))
        logits = _decoder(writer)
    open_sizes = {"input_ids": ["batch", "sequence"], "attention_mask": ["batch", "past + sequence"]}
    open_sizes["position_ids"] = ["batch", "sequence"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in open_sizes.items()]
    outputs = [helper.make_tensor_value_info(logits, TensorProto.FLOAT, ["batch", "sequence", config.words])]
    for cache in config.caches():
        for name, extent, infos in (("past_key_values", "past", inputs), ("present", "past + sequence", outputs)):
            shape = ["batch", config.kv_heads, extent, HEAD]
            infos.append(helper.make_tensor_value_info(f"{name}.{cache}", TensorProto.FLOAT, shape))
    graph = helper.make_graph(writer.nodes, "decoder", inputs, outputs, writer.constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


@dataclass(slots=True)
class _Writer:
    """Nodes and constants; large ones go to `file` at once."""

    config: Config
    file: BinaryIO
    location: str
    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def node(self, op: str, inputs: Sequence[str], output: str = "", domain: str = "", **attributes: object) -> str:
        name = output or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, domain=domain, **attributes))
        return name

    def number(self, *values: int | float) -> str:
        """A vector of int64, or one float32 number."""
        of_floats = isinstance(values[0], float)
        array = np.array(values[0], np.float32) if of_floats else np.array(values, np.int64)
        self.constants.append(numpy_helper.from_array(array, f"constant_{len(self.constants)}"))
        return self.constants[-1].name

    def weight(self, name: str, array: np.ndarray) -> str:
        """A constant in the file of weights."""
        self.file.write(bytes(-self.file.tell() % _PAGE))
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, dims=array.shape, data_type=kind, data_location=TensorProto.EXTERNAL)
        place = {"location": self.location, "offset": str(self.file.tell()), "length": str(array.nbytes)}
        tensor.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in place.items())
        self.file.write(array.data)
        self.constants.append(tensor)
        return name

    def linear(self, name: str, x: str, rows: int, columns: int) -> str:
        """A product with a random weight, whose results are about as large as `x`."""
        kind, bits = self.config.weights, self.config.weights.bits
        if kind is Weights.F32:
            array = self.random.standard_normal((rows, columns), np.float32) / np.float32(rows**0.5)
            return self.node("MatMul", [x, self.weight(f"{name}.weight", array)])
        shape = (columns, rows // BLOCK)
        codes = self.random.integers(0, 256, (*shape, BLOCK * bits // 8), np.uint8)
        step = 12**0.5 / (2**bits * rows**0.5)
        scales = (self.random.uniform(0.8, 1.2, shape) * step).astype(np.float32)
        operands = [x, self.weight(f"{name}.codes", codes), self.weight(f"{name}.scales", scales)]
        options = {"K": rows, "N": columns, "bits": bits, "block_size": BLOCK, "accuracy_level": self.config.accuracy}
        return self.node("MatMulNBits", operands, domain="com.microsoft", **options)

    def norm(self, name: str, x: str) -> str:
        weight = self.weight(f"{name}.weight", self.random.uniform(0.8, 1.2, self.config.width).astype(np.float32))
        mean = self.node("ReduceMean", [self.node("Pow", [x, self.number(2.0)]), self.number(-1)], keepdims=1)
        root = self.node("Sqrt", [self.node("Add", [mean, self.number(1e-5)])])
        normal = self.node("Mul", [x, self.node("Reciprocal", [root])])
        return self.node("Mul", [weight, normal])

    def extent(self, x: str, axis: int) -> str:
        return self.node("Shape", [x], start=axis, end=axis + 1)

    def joined(self, parts: Sequence[str], axis: int, output: str = "") -> str:
        return self.node("Concat", parts, output, axis=axis)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all layers use: the cosines and sines of positions, the mask, and extents as vectors of one number."""

    cos: str
    sin: str
    mask: str
    batch: str
    sequence: str
    total: str


def _decoder(w: _Writer) -> str:
    config = w.config
    table = w.random.standard_normal((config.words, config.width), np.float32)
    x = w.node("Gather", [w.weight("model.embed_tokens.weight", table), "input_ids"])
    shared = _shared(w)
    for n in range(config.layers):
        x = _layer(w, n, x, shared)
    return w.node("Identity", [w.linear("lm_head", w.norm("model.norm", x), config.width, config.words)], "logits")


def _shared(w: _Writer) -> _Shared:
    batch, sequence = w.extent("input_ids", 0), w.extent("input_ids", 1)
    past = w.extent("past_key_values.0.key", 2)
    total = w.node("Add", [past, sequence])
    cos, sin = _rotation(w)
    return _Shared(cos, sin, _mask(w, batch, past, total), batch, sequence, total)


def _rotation(w: _Writer) -> tuple[str, str]:
    """Cosines and sines `[batch, 1, sequence, 64]`, each angle twice."""
    frequencies = (10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)).astype(np.float32).reshape(1, -1, 1)
    positions = w.node("Cast", [w.node("Unsqueeze", ["position_ids", w.number(1)])], to=TensorProto.FLOAT)
    angles = w.node("MatMul", [w.weight("model.rotary_emb.inv_freq", frequencies), positions])
    angles = w.node("Transpose", [angles], perm=[0, 2, 1])
    twice = w.joined([angles, angles], -1)
    cos, sin = (w.node("Unsqueeze", [w.node(op, [twice]), w.number(1)]) for op in ("Cos", "Sin"))
    return cos, sin


def _mask(w: _Writer, batch: str, past: str, total: str) -> str:
    """What is added to scores: 0 where a query sees a key, `[batch, 1, sequence, past + sequence]`."""

    def numbers(start: str, end: str, shape: Sequence[int]) -> str:
        first, last = (w.node("Squeeze", [extent, w.number(0)]) for extent in (start, end))
        one = w.node("Squeeze", [w.number(1), w.number(0)])
        return w.node("Reshape", [w.node("Range", [first, last, one]), w.number(*shape)])

    causal = w.node("LessOrEqual", [numbers(w.number(0), total, (1, 1, 1, -1)), numbers(past, total, (1, 1, -1, 1))])
    shape = w.joined([batch, w.number(1), w.number(1), total], 0)
    given = w.node("Cast", [w.node("Reshape", ["attention_mask", shape])], to=TensorProto.BOOL)
    return w.node("Where", [w.node("And", [causal, given]), w.number(0.0), w.number(LOWEST)])


def _layer(w: _Writer, n: int, x: str, shared: _Shared) -> str:
    config, name = w.config, f"model.layers.{n}"
    normal = w.norm(f"{name}.input_layernorm", x)
    attended = _attention(w, n, normal, shared)
    x = w.node("Add", [x, attended])
    normal = w.norm(f"{name}.post_attention_layernorm", x)
    gate, up = (w.linear(f"{name}.mlp.{p}_proj", normal, config.width, config.hidden) for p in ("gate", "up"))
    active = w.node("Mul", [w.node("Mul", [gate, w.node("Sigmoid", [gate])]), up])
    return w.node("Add", [x, w.linear(f"{name}.mlp.down_proj", active, config.hidden, config.width)])


def _attention(w: _Writer, n: int, x: str, shared: _Shared) -> str:
    config, name = w.config, f"model.layers.{n}.self_attn"

    def heads(part: str, count: int) -> str:
        """`[batch, count, sequence, 64]`"""
        made = w.linear(f"{name}.{part}_proj", x, config.width, count * HEAD)
        shape = w.joined([shared.batch, shared.sequence, w.number(count), w.number(HEAD)], 0)
        return w.node("Transpose", [w.node("Reshape", [made, shape])], perm=[0, 2, 1, 3])

    def cached(part: str, new: str) -> str:
        return w.joined([f"past_key_values.{n}.{part}", new], 2, f"present.{n}.{part}")

    q = _rotated(w, heads("q", config.heads), shared)
    k = _repeated(w, cached("key", _rotated(w, heads("k", config.kv_heads), shared)), shared)
    v = _repeated(w, cached("value", heads("v", config.kv_heads)), shared)
    products = w.node("MatMul", [q, w.node("Transpose", [k], perm=[0, 1, 3, 2])])
    scores = w.node("Add", [w.node("Mul", [products, w.number(HEAD**-0.5)]), shared.mask])
    result = w.node("MatMul", [w.node("Softmax", [scores], axis=-1), v])
    shape = w.joined([shared.batch, shared.sequence, w.number(config.width)], 0)
    joined = w.node("Reshape", [w.node("Transpose", [result], perm=[0, 2, 1, 3]), shape])
    return w.linear(f"{name}.o_proj", joined, config.width, config.width)


def _rotated(w: _Writer, x: str, shared: _Shared) -> str:
    """Rotary embedding: the two halves of a head are the parts of complex numbers."""
    first, second = (
        w.node("Slice", [x, w.number(start), w.number(end), w.number(3)])
        for start, end in ((0, HEAD // 2), (HEAD // 2, int(_END)))
    )
    turned = w.joined([w.node("Neg", [second]), first], -1)
    return w.node("Add", [w.node("Mul", [x, shared.cos]), w.node("Mul", [turned, shared.sin])])


def _repeated(w: _Writer, x: str, shared: _Shared) -> str:
    """The heads of keys or values, each as often as there are heads of queries for it."""
    config = w.config
    times = w.number(config.heads // config.kv_heads)
    shape = w.joined([shared.batch, w.number(config.kv_heads), times, shared.total, w.number(HEAD)], 0)
    expanded = w.node("Expand", [w.node("Unsqueeze", [x, w.number(2)]), shape])
    final = w.joined([shared.batch, w.number(config.heads), shared.total, w.number(HEAD)], 0)
    return w.node("Reshape", [expanded, final])
