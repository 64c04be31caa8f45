"""Products with weights of 4 and 8 bits, against ONNX Runtime and NumPy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import tilewright
from tests.frontend.models import run_onnxruntime
from tilewright import te
from tilewright.base.dtypes import f32, i8, i32, u8
from tilewright.base.errors import TilewrightError
from tilewright.base.numerics import Math, Precision
from tilewright.compilation import Options, prepare
from tilewright.cost.analytic import schedule
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read.importer import load
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.passes.alternatives import expand, facts_of
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

Array = NDArray[np.generic]
BEST, OLD = Target.parse("x86_64,znver5"), Target.parse("x86_64")


def draw(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def model(
    node: onnx.NodeProto,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array | onnx.TensorProto],
    rows: str | None = None,
    more: tuple[onnx.NodeProto, ...] = (),
) -> onnx.ModelProto:
    """``node``, and others before it; ``rows`` names the first dimension of the inputs."""

    def shape(array: Array) -> list[int | str]:
        return [rows, *array.shape[1:]] if rows is not None else [*array.shape]

    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), shape(a)) for n, a in feeds.items()
    ]
    tensors = [a if isinstance(a, onnx.TensorProto) else numpy_helper.from_array(a, n) for n, a in constants.items()]
    result = onnx.ValueInfoProto(name="y")
    if node.domain:
        kind = (
            onnx.TensorProto.FLOAT16 if any(a.dtype == np.float16 for a in feeds.values()) else onnx.TensorProto.FLOAT
        )
        result = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph([*more, node], "g", inputs, [result], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@dataclass(frozen=True)
class Case:
    """MatMulNBits: ``a [rows, depth]`` by ``columns``; ``zeros``: "none", "packed" or "floats"."""

    rows: int
    depth: int
    columns: int
    bits: int = 4
    size: int = 32
    zeros: str = "none"
    has_bias: bool = False
    order: str = "none"
    dtype: type = np.float32
    is_open: bool = False
    seed: int = 0
    attributes: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def blocks(self) -> int:
        return -(-self.depth // self.size)

    @property
    def constants(self) -> dict[str, Array]:
        random = draw(self.seed)
        shape = (self.columns, self.blocks)
        packed = random.integers(0, 256, (*shape, self.size * self.bits // 8), np.uint8, endpoint=False)
        found: dict[str, Array] = {"b": packed, "scales": random.uniform(0.01, 0.1, shape).astype(self.dtype)}
        if self.zeros == "packed":
            found["zeros"] = random.integers(0, 256, (self.columns, -(-self.blocks * self.bits // 8)), np.uint8)
        elif self.zeros == "floats":
            found["zeros"] = random.uniform(0, 1 << self.bits, shape).astype(self.dtype)
        if self.order == "mixed":
            found["order"] = random.permutation(np.arange(self.depth, dtype=np.int32) // self.size)
        if self.has_bias:
            found["bias"] = random.standard_normal(self.columns).astype(self.dtype)
        return found

    @property
    def feeds(self) -> dict[str, Array]:
        return {"a": draw(self.seed + 1).standard_normal((self.rows, self.depth)).astype(self.dtype)}

    def proto(self, constants: Mapping[str, Array] | None = None) -> onnx.ModelProto:
        known = self.constants if constants is None else constants
        operands = ["a", *(name if name in known else "" for name in ("b", "scales", "zeros", "order", "bias"))]
        options = {"K": self.depth, "N": self.columns, "bits": self.bits, "block_size": self.size, **self.attributes}
        node = helper.make_node("MatMulNBits", operands, ["y"], name="n", domain="com.microsoft", **options)
        return model(node, self.feeds, known, "m" if self.is_open else None)

    @property
    def weight(self) -> NDArray[np.float64]:
        """``[depth, columns]``, as ONNX Runtime defines it."""
        known = self.constants
        codes = unpacked(known["b"].reshape(self.columns, -1), self.bits)[:, : self.depth].astype(np.float64)
        zeros = np.full((self.columns, self.blocks), float(1 << (self.bits - 1)))
        if self.zeros == "packed":
            zeros = unpacked(known["zeros"], self.bits)[:, : self.blocks].astype(np.float64)
        elif self.zeros == "floats":
            zeros = known["zeros"].astype(np.float64)
        groups = known["order"] if "order" in known else np.arange(self.depth) // self.size
        return ((codes - zeros[:, groups]) * known["scales"].astype(np.float64)[:, groups]).T

    def check(self, **options: Math) -> None:
        expected = self.feeds["a"].astype(np.float64) @ self.weight + self.constants.get("bias", np.zeros(1))
        (found,) = tilewright.compile(self.proto(), **options).run(None, self.feeds)
        assert found.dtype == self.dtype
        assert relative(found, expected) < self.tolerance

    @property
    def tolerance(self) -> float:
        if self.dtype is np.float16:
            return 2e-3
        level = self.attributes.get("accuracy_level", 0)
        return 1.2e-2 if level >= 4 else 3e-5 if level >= 2 else 3e-7


def unpacked(packed: Array, bits: int) -> Array:
    starts = range(0, 8, bits)
    return np.stack([packed >> s & ((1 << bits) - 1) for s in starts], axis=-1).reshape(len(packed), -1)


def relative(found: Array, expected: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def cases() -> Iterator[Case]:
    yield Case(1, 64, 128)
    yield Case(1, 40, 80, zeros="packed", seed=1)
    yield Case(3, 200, 33, size=64, zeros="floats", has_bias=True, seed=2)
    yield Case(5, 130, 65, bits=8, zeros="packed", seed=3)
    yield Case(2, 320, 96, bits=8, size=256, seed=4)
    yield Case(1, 16, 16, size=16, seed=5)
    yield Case(7, 96, 64, order="mixed", zeros="packed", seed=6)
    yield Case(2, 64, 64, bits=2, seed=7)
    yield Case(2, 64, 64, dtype=np.float16, has_bias=True, seed=8)
    yield Case(3, 64, 96, is_open=True, seed=9)
    yield Case(3, 64, 96, attributes={"accuracy_level": 1, "weight_prepacked": 0}, seed=10)
    for level in (2, 3, 4):
        yield Case(3, 64, 96, attributes={"accuracy_level": level}, zeros="packed", seed=11)
    yield Case(21, 160, 144, bits=8, size=64, attributes={"accuracy_level": 4}, zeros="floats", seed=12, is_open=True)


@pytest.mark.share(2)
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_matmul_n_bits(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", [Case(2, 70, 48, zeros="packed"), Case(3, 70, 50, zeros="floats")], ids=str)
def test_what_it_means_is_what_onnx_runtime_says(case: Case) -> None:
    (expected,) = run_onnxruntime(case.proto(), case.feeds)
    assert relative(expected, case.feeds["a"].astype(np.float64) @ case.weight) < 1e-5


@pytest.mark.parametrize("kind", ["nothing is packed", "packed", "INT4", "UINT4"])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_gather_block_quantized(kind: str, has_zeros: bool) -> None:
    random, rows, size = draw(3), 10, 16
    depth = 56 if kind.endswith("4") else 48
    indices = np.array([[1, 9], [0, -1]], np.int64)
    blocks = -(-depth // size)
    constants: dict[str, Array | onnx.TensorProto] = {}
    if kind.endswith("4"):
        code = getattr(onnx.TensorProto, kind)
        low = -8 if kind == "INT4" else 0
        for name, extent in (("d", depth), ("z", blocks)):
            values = random.integers(low, low + 16, (rows, extent))
            constants[name] = helper.make_tensor(name, code, values.shape, values.reshape(-1).tolist())
    else:
        shared = 2 if kind == "packed" else 1
        constants["d"] = random.integers(0, 256, (rows, depth // shared), np.uint8)
        constants["z"] = random.integers(0, 256, (rows, -(-blocks // shared)), np.uint8)
    if not has_zeros:
        del constants["z"]
    constants["s"] = random.uniform(0.1, 0.2, (rows, blocks)).astype(np.float32)
    bits = {} if kind != "nothing is packed" else {"bits": 8}
    operands = ["d", "i", "s", *(["z"] if has_zeros else [])]
    node = helper.make_node(
        "GatherBlockQuantized", operands, ["y"], name="n", domain="com.microsoft", block_size=size, **bits
    )
    proto = model(node, {"i": indices}, constants)
    (expected,) = run_onnxruntime(proto, {"i": indices})
    (found,) = tilewright.compile(proto).run(None, {"i": indices})
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "scales", "message"),
    [
        ({"bits": 2}, (4, 2), "tables of 2 bits"),
        ({"quantize_axis": 0}, (4, 2), "gather_axis 0, quantize_axis 0"),
        ({"block_size": 8}, (4, 4), "blocks of 8"),
        ({}, (1, 2), "are not those of each row"),
    ],
)
def test_tables_that_are_refused(options: Mapping[str, int], scales: tuple[int, ...], message: str) -> None:
    node = helper.make_node(
        "GatherBlockQuantized",
        ["d", "i", "s"],
        ["y"],
        name="n",
        domain="com.microsoft",
        **{"block_size": 16, **options},
    )
    constants = {"d": np.zeros((4, 16), np.uint8), "s": np.ones(scales, np.float32)}
    with pytest.raises(TilewrightError, match=rf"node n \(GatherBlockQuantized\).*{message}"):
        load(model(node, {"i": np.zeros((2, 1), np.int64)}, constants))


@dataclass(frozen=True)
class Dequantized:
    """``x`` times a weight ``[depth, columns]`` (or its transpose) that DequantizeLinear makes of ``codes``."""

    codes: Array
    scale: Array
    zero: Array | None = None
    block_size: int = 0
    how: str = "MatMul"
    is_int4: bool = False

    @property
    def is_transposed(self) -> bool:
        return self.how != "MatMul"

    def proto(self, x: Array) -> onnx.ModelProto:
        zeros = [] if self.zero is None else [("zero", self.zero)]
        constants: dict[str, Array | onnx.TensorProto] = {
            "scale": self.scale,
            "bias": np.ones(self.columns, np.float32),
        }
        for name, array in (("codes", self.codes), *zeros):
            code = onnx.TensorProto.INT4 if array.dtype == np.int8 else onnx.TensorProto.UINT4
            packed = helper.make_tensor(name, code, array.shape, array.reshape(-1).tolist()) if self.is_int4 else array
            constants[name] = packed
        axis = int(self.is_transposed) if self.block_size else int(not self.is_transposed)
        options = {"axis": axis, **({"block_size": self.block_size} if self.block_size else {})}
        more = [helper.make_node("DequantizeLinear", ["codes", "scale", *(n for n, _ in zeros)], ["w"], **options)]
        if self.how == "Transpose":
            more.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
        if self.how == "Gemm":
            node = helper.make_node("Gemm", ["x", "w", "bias"], ["y"], transB=1)
        else:
            node = helper.make_node("MatMul", ["x", "t" if self.how == "Transpose" else "w"], ["y"])
        return model(node, {"x": x}, constants, more=tuple(more))

    @property
    def columns(self) -> int:
        return self.codes.shape[0 if self.is_transposed else 1]

    @property
    def depth(self) -> int:
        return self.codes.size // self.columns

    def operators(self, target: Target, math: Math = Math.DEFAULT) -> list[str]:
        graph = prepare(load(self.proto(np.zeros((2, self.depth), np.float32))))
        return [node.op.name for node in expand(graph, facts_of(graph, target, math)).nodes]

    def check(self, rows: int = 2, target: Target | str = "host") -> None:
        x = draw(1).standard_normal((rows, self.depth)).astype(np.float32)
        scale, zero = (
            np.repeat(a, self.block_size, int(self.is_transposed))
            if self.block_size
            else (a[:, None] if self.is_transposed and a.ndim else a)
            for a in (self.scale, np.zeros_like(self.scale) if self.zero is None else self.zero)
        )
        weight = (self.codes.astype(np.float64) - zero) * scale
        expected = x.astype(np.float64) @ (weight.T if self.is_transposed else weight) + (self.how == "Gemm")
        compiled = tilewright.compile(self.proto(x), target=target)
        (found,) = compiled.run(None, {"x": x})
        assert relative(found, expected) < 5e-7


def dequantized() -> Iterator[Dequantized]:
    random = draw(9)

    def scales(*shape: int) -> Array:
        return random.uniform(0.01, 0.1, shape).astype(np.float32)

    def codes(dtype: type, low: int, high: int, *shape: int) -> Array:
        return random.integers(low, high, shape).astype(dtype)

    yield Dequantized(codes(np.int8, -8, 8, 64, 48), scales(2, 48), None, 32, is_int4=True)
    yield Dequantized(codes(np.uint8, 0, 16, 64, 48), scales(4, 48), codes(np.uint8, 0, 16, 4, 48), 16, is_int4=True)
    yield Dequantized(
        codes(np.int8, -8, 8, 48, 64), scales(48, 2), codes(np.int8, -8, 8, 48, 2), 32, "Gemm", is_int4=True
    )
    yield Dequantized(codes(np.int8, -128, 128, 300, 65), scales(65))
    yield Dequantized(codes(np.uint8, 0, 256, 30, 65), scales(65), codes(np.uint8, 0, 256, 65))
    yield Dequantized(codes(np.int8, -128, 128, 65, 30), scales(65), None, 0, "Transpose")
    yield Dequantized(codes(np.int8, -128, 128, 65, 30), scales(), np.array(3, np.int8), 0, "Gemm")
    yield Dequantized(codes(np.int8, -128, 128, 60, 16), scales(10, 16), None, 6)


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "case", list(dequantized()), ids=lambda case: f"{case.codes.dtype}{case.codes.shape}{case.how}"
)
@pytest.mark.parametrize("target", ["host", "x86_64,haswell", "x86_64"])
def test_weights_that_are_dequantized(case: Dequantized, target: str) -> None:
    case.check(target=target)


def test_what_is_computed() -> None:
    narrow, *_, odd = dequantized()
    assert narrow.operators(BEST) == ["BlockDigits", "BlockProducts"]
    assert narrow.operators(OLD) == ["CodeProducts"]
    assert narrow.operators(BEST, Math.STRICT) == ["CodeProducts"]
    assert odd.operators(BEST) == ["CodeProducts"]


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1)])
def test_almost_no_weight(shape: tuple[int, int]) -> None:
    case = Dequantized(np.ones(shape, np.int8), np.ones(shape[1], np.float32))
    x = np.ones((2, shape[0]), np.float32)
    (found,) = tilewright.compile(case.proto(x)).run(None, {"x": x})
    np.testing.assert_array_equal(found, np.full((2, shape[1]), float(shape[0])))


def test_codes_take_four_bits_in_the_artifact() -> None:
    random = draw(4)
    case = Dequantized(
        random.integers(-8, 8, (256, 512)).astype(np.int8),
        random.uniform(0.1, 0.2, (8, 512)).astype(np.float32),
        None,
        32,
    )
    compiled = compile_graph(load(case.proto(np.zeros((1, 256), np.float32))), Options(target=BEST))
    stored = sum(array.nbytes for array in compiled.executable.constants)
    assert stored < 256 * 512 // 2 + 8 * 512 * 4 + 64
    assert any("vpdpbusd_nibbles_add" in str(kernel.program) for kernel in compiled.kernels)


@pytest.mark.parametrize(
    ("processor", "instructions"),
    [
        ("x86_64,haswell", ["pmaddubsw_nibbles_ymm", "pmaddwd_bytes_ymm"]),
        ("aarch64,neoverse-n1", ["sdot_nibbles", "sdot_bytes"]),
        ("aarch64,neoverse-v1", ["sdot_nibbles", "usdot_bytes"]),
    ],
)
def test_instructions_of_other_processors(processor: str, instructions: list[str]) -> None:
    for case, instruction in zip((Case(1, 64, 128), Case(5, 128, 64, bits=8)), instructions, strict=True):
        compiled = compile_graph(load(case.proto()), Options(target=Target.parse(processor)))
        assert any(f"{instruction}_add(" in str(kernel.program) for kernel in compiled.kernels)


def test_numbers_of_any_size() -> None:
    """Blocks of tiny and of huge numbers, zeros, and numbers that are not finite."""
    case = Case(1, 128, 64, seed=20)
    a = np.concatenate([np.full(32, 1e-30), np.full(32, -3e30), np.zeros(32), np.linspace(-1, 1, 32)])[None].astype(
        np.float32
    )
    compiled = tilewright.compile(case.proto())
    (found,) = compiled.run(None, {"a": a})
    assert relative(found, a.astype(np.float64) @ case.weight) < 3e-7
    for begin in (0, 64, 96):
        part = np.where(np.arange(128) // 32 == begin // 32, a, np.float32(0))
        (found,) = compiled.run(None, {"a": part})
        expected = part.astype(np.float64) @ case.weight
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
    for wrong in (np.nan, np.inf, -np.inf):
        a[0, 70] = wrong
        assert np.isnan(compiled.run(None, {"a": a})[0]).all()


@pytest.mark.parametrize(
    ("case", "constants", "message"),
    [
        (Case(1, 64, 32, bits=3), {}, "weights of 3 bits"),
        (Case(1, 64, 32, size=24), {}, "blocks are powers of two"),
        (Case(1, 64, 32), {"scales": np.zeros(3, np.float32)}, "the scales have the shape"),
        (Case(1, 64, 32), {"b": np.zeros((32, 2, 16), np.int8)}, "weights in int8"),
        (Case(1, 64, 32), {"order": np.array([0] * 63 + [1], np.int32)}, "g_idx has blocks of other sizes"),
        (Case(1, 64, 32, attributes={"other": 1}), {}, "attribute other is not supported"),
        (Case(1, 64, 32, attributes={"weight_prepacked": 1}), {}, "weights in the layout of another processor"),
    ],
)
def test_what_breaks_the_rules_is_named(case: Case, constants: Mapping[str, Array], message: str) -> None:
    with pytest.raises(TilewrightError, match=rf"node n \(MatMulNBits\).*{message}"):
        load(case.proto({**replace(case, bits=4, size=32).constants, **constants}))


@pytest.mark.parametrize("scale", [(), (24,), (10, 3), "by row"])
def test_rows_of_a_table_are_dequantized_after_they_are_gathered(scale: tuple[int, ...] | str) -> None:
    random = draw(12)
    codes = random.integers(-128, 128, (10, 24)).astype(np.int8)
    shape = (10,) if isinstance(scale, str) else scale
    scales, zeros = random.uniform(0.1, 0.2, shape).astype(np.float32), random.integers(-9, 9, shape).astype(np.int8)
    options = {"axis": 0 if isinstance(scale, str) else 1, **({"block_size": 8} if len(shape) == 2 else {})}
    more = (helper.make_node("DequantizeLinear", ["c", "s", "z"], ["t"], **options),)
    indices = np.array([[1, 9], [0, -1]], np.int64)
    constants = {"c": codes, "s": scales, "z": zeros}
    proto = model(helper.make_node("Gather", ["t", "i"], ["y"]), {"i": indices}, constants, more=more)
    (expected,) = run_onnxruntime(proto, {"i": indices})
    (found,) = tilewright.compile(proto).run(None, {"i": indices})
    np.testing.assert_array_equal(found, expected)
    last = prepare(load(proto)).nodes[-1].op.name
    assert last == ("Gather" if isinstance(scale, str) else "DequantizeLinear")


@pytest.mark.parametrize("layout", ["columns last", "packed", "too narrow"])
def test_other_sums_of_sums_of_the_same_types(layout: str) -> None:
    """What looks like a product with digits, in other layouts, is scheduled as any reduction."""
    lanes = 8 if layout == "too narrow" else 16
    a = te.placeholder((4, 3, 8), i8, "a")
    b = te.placeholder((3, 2, 4, lanes) if layout == "columns last" else (3, 2, lanes, 4), u8, "b")
    block, step, inner = (te.reduce_axis((0, extent), name) for extent, name in ((3, "b"), (2, "s"), (4, "k")))

    def product(m: te.Expr, p: te.Expr, n: te.Expr) -> object:
        right = b[p, step.var, inner.var, n] if layout == "columns last" else b[p, step.var, n, inner.var]
        left = te.cast(a[m, p, step.var * 4 + inner.var], i32)
        return te.sum(left * te.cast(right, i32), axis=(step, inner))

    products = te.compute((4, 3, lanes), product, name="products")
    c = te.compute((4, lanes), lambda m, n: te.sum(te.cast(products[m, block.var, n], f32), axis=block), name="c")
    naive = lower([c], "sums")
    scheduled = schedule(Schedule(naive), BEST)
    assert ("vpdpbusd" in str(scheduled.program)) == (layout == "packed")
    feeds = {"a": draw(1).integers(-9, 9, (4, 3, 8)).astype(np.int8)}
    feeds["b"] = draw(2).integers(0, 9, [int(str(extent)) for extent in b.shape]).astype(np.uint8)
    wide = {name: array.astype(np.int64) for name, array in feeds.items()}
    expected = np.einsum(
        f"mpsk,ps{'kn' if layout == 'columns last' else 'nk'}->mn", wide["a"].reshape(4, 3, 2, 4), wide["b"]
    )
    results = (interpret(program, feeds)["c"] for program in (naive, scheduled.program))
    for found in results:
        np.testing.assert_array_equal(found, expected)


def test_eight_bits_are_as_exact_as_those_of_onnx_runtime() -> None:
    """Where the model permits numbers of 8 bits, relative to the largest of their block."""
    case = Case(16, 512, 128, attributes={"accuracy_level": 4}, seed=21)
    expected = case.feeds["a"].astype(np.float64) @ case.weight
    (found,) = tilewright.compile(case.proto()).run(None, case.feeds)
    (other,) = run_onnxruntime(case.proto(), case.feeds)
    assert relative(found, expected) < 1.1 * max(relative(other, expected), 5e-3)


@pytest.mark.parametrize(("precision", "digits"), [(Precision.FP32, 3), (Precision.BF16, 2), (Precision.F16, 2)])
def test_digits_suffice_for_the_precision(precision: Precision, digits: int) -> None:
    graph = prepare(load(Case(4, 64, 32).proto()))
    made = expand(graph, facts_of(graph, BEST, precision=precision))
    assert [dict(node.attributes)["digits"] for node in made.nodes if node.op.name == "BlockDigits"] == [digits]
