"""Products of two values in bfloat16: which ones are taken in pairs, and results against sums of rounded operands."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import numpy_helper

from tilewright.base.dtypes import bf16, f32
from tilewright.base.numerics import Precision
from tilewright.compilation import Compiled, Options, compile_prepared
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read.importer import load
from tilewright.graph import Graph, Value, make_node
from tilewright.loops.interpreter import interpret
from tilewright.ops.operator import Attribute, require
from tilewright.passes.alternatives import Alternative
from tilewright.passes.alternatives.attention import IN_BLOCKS, WITH_SCORES
from tilewright.passes.alternatives.direct import DIRECT
from tilewright.passes.precision import narrow
from tilewright.symbolic.expr import const
from tilewright.target.target import Target

BEST, OLD = Target.parse("x86_64,znver4"), Target.parse("x86_64,znver3")
UNIT, INTEL = Target.parse("x86_64,sapphirerapids,+amx-bf16,+amx-int8"), Target.parse("x86_64,emeraldrapids")
HOST = replace(Target.host(), machine=replace(Target.host().machine, pair_gain=2.0))
"""By dot products, if there are some."""
HAS_PRODUCTS = pytest.mark.skipif(
    not HOST.has("avx512bf16") or HOST.has("amx-bf16"), reason="other products of bfloat16, or none"
)
INSTRUCTION = "vdpbf16ps_add("


def made(text: str, **constants: NDArray[np.float32]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def drawn(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rounded(x: NDArray[np.generic]) -> NDArray[np.float64]:
    return x.astype(np.float32).astype(bf16.numpy).astype(np.float64)


def compiled(model: onnx.ModelProto, target: Target = BEST) -> Compiled:
    return compile_graph(load(model), Options(target, threads=1, precision=Precision.BF16))


def product(rows: int | str = 20, depth: int = 8, columns: int = 24) -> str:
    sizes = f"float[{rows}, {depth}] x, float[{depth}, {columns}] z"
    return f"net ({sizes}) => (float[{rows}, {columns}] y) {{ y = MatMul(x, z) }}"


def test_what_is_multiplied_in_pairs() -> None:
    """An even number of terms, and rows and columns enough to copy the right operand."""
    square = "net (float[32, 32] x) => (float[32, 32] y) { y = MatMul(x, x) }"
    for target, text, right in (
        (BEST, product(), {"z"}),
        (BEST, product(rows=16), None),
        (BEST, product(depth=7), None),
        (BEST, product(columns=15), None),
        (BEST, product(rows="n"), None),
        (BEST, square, None),
        (OLD, product(), None),
        (UNIT, product(), None),
        (INTEL, product(), None),
    ):
        assert narrow(load(made(text)), Precision.BF16, target).weights.get("y") == right
    assert not narrow(load(made(product())), Precision.F16, BEST).weights


@settings(max_examples=15)
@given(
    heads=st.sampled_from([(), (2,), (1, 3)]),
    sizes=st.tuples(st.integers(17, 24), st.sampled_from([2, 6, 16]), st.integers(16, 40)),
    turned=st.tuples(st.booleans(), st.booleans()),
    is_shared=st.booleans(),
)
def test_operands_are_rounded_and_sums_are_not(
    heads: tuple[int, ...], sizes: tuple[int, int, int], turned: tuple[bool, bool], is_shared: bool
) -> None:
    """Both operands plain or transposed, with one right operand for all heads, or one for each."""
    rows, depth, columns = sizes
    shapes = [[*heads, rows, depth], [*([] if is_shared else heads), depth, columns]]
    nodes, names, arrays = [], [], []
    for name, shape, is_turned in zip("xz", shapes, turned, strict=True):
        stored = [*shape[:-2], shape[-1], shape[-2]] if is_turned else shape
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        nodes.append(f"{name}t = Transpose <perm = {order}> ({name})" if is_turned else f"{name}t = Identity({name})")
        names.append(f"float{stored} {name}")
        arrays.append(drawn(*stored, seed=len(arrays)))
    text = f"net ({', '.join(names)}) => (float{[*heads, rows, columns]} y) {{ {' '.join(nodes)} y = MatMul(xt, zt) }}"
    (kernel,) = compiled(made(text)).kernels
    assert INSTRUCTION in str(kernel.program)
    known = dict(zip("xz", arrays, strict=True))
    entering = zip(kernel.program.params, kernel.groups[0].inputs, strict=False)
    feeds = {p.name: known[value.name].reshape([int(str(extent)) for extent in p.shape]) for p, value in entering}
    (found,) = interpret(kernel.program, feeds).values()
    a, b = (rounded(x.swapaxes(-1, -2) if is_turned else x) for x, is_turned in zip(arrays, turned, strict=True))
    np.testing.assert_allclose(found.reshape(*heads, rows, columns), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "t = Transpose(u)  y = MatMul(u, t)",
        "t = Transpose(u)  y = MatMul(t, v)",
        "y = MatMul(u, v)",
        "p = Softmax(u)  y = MatMul(v, p)",
        "p = MatMul(u, v)  q = MatMul(v, u)  y = Add(p, q)",
    ],
)
def test_products_of_results_use_the_instruction(text: str) -> None:
    """Whatever is between their operands and the kernels that store them."""
    sizes = "float[32, 32] x, float[32, 32] z"
    model = made(
        f"net ({sizes}) => (float[32, 32] y) {{ u = MatMul(x, a)  v = MatMul(z, a)  {text} }}", a=drawn(32, 32)
    )
    programs = [str(kernel.program) for kernel in compiled(model).kernels]
    assert all(INSTRUCTION in text for text in programs if "matmul" in text)


def attention(rows: int, keys: int) -> onnx.ModelProto:
    """Of two heads of 64, whose operands are products."""
    size = f"float[1, {rows}, 128]"
    text = f"""net ({size} x, float[1, {keys}, 128] z) => ({size} y) {{
      s = Constant <value_ints = [1, -1, 2, 64]> ()  all = Constant <value_ints = [1, {rows}, 128]> ()
      a = MatMul(x, w)  b = MatMul(z, w)  c = MatMul(z, w2)
      a4 = Reshape(a, s)  b4 = Reshape(b, s)  c4 = Reshape(c, s)
      q = Transpose <perm = [0, 2, 1, 3]> (a4)  k = Transpose <perm = [0, 2, 3, 1]> (b4)
      v = Transpose <perm = [0, 2, 1, 3]> (c4)
      scores = MatMul(q, k)  p = Softmax(scores)  o = MatMul(p, v)
      o4 = Transpose <perm = [0, 2, 1, 3]> (o)  oo = Reshape(o4, all)  y = MatMul(oo, w) }}"""
    return made(text, w=drawn(128, 128) / 11, w2=drawn(128, 128, seed=1) / 11)


@pytest.mark.parametrize(("rows", "keys"), [(32, 32), (600, 600)])
def test_attention_has_six_products_in_pairs(rows: int, keys: int) -> None:
    """Its scores, of which there are many, stay in memory: products in pairs take half of the time."""
    found = compiled(attention(rows, keys))
    assert sum(kernel.calls for kernel in found.kernels if INSTRUCTION in str(kernel.program)) == 6
    (weights,) = (kernel.program for kernel in found.kernels if "softmax" in kernel.program.name)
    assert [parameter.dtype for parameter in weights.params] == [f32, bf16]


def test_attention_by_the_instruction_of_arm() -> None:
    found = compiled(attention(32, 32), Target.parse("aarch64,neoverse-v1"))
    assert sum(kernel.calls for kernel in found.kernels if "bfdot" in str(kernel.program)) == 6


def test_without_the_instruction_attention_is_wide() -> None:
    """Also where there is one that is no faster than products of float32."""
    for target in (INTEL, OLD):
        found = compiled(attention(32, 32), target)
        (scores,) = (kernel.program for kernel in found.kernels if "softmax" in kernel.program.name)
        assert [parameter.dtype for parameter in scores.params] == [f32, f32]
        assert not any(INSTRUCTION in str(kernel.program) for kernel in found.kernels)


def test_what_is_normalized_stays_wide() -> None:
    """A residual connection is rounded where products read it, and not before its statistics are taken."""
    text = """net (float[64, 64] x) => (float[64, 64] y) {
      p = MatMul(x, a)  q = MatMul(p, a)  r = Add(p, q)  n = LayerNormalization(r, g)  y = MatMul(n, a) }"""
    model = made(text, a=drawn(64, 64), g=drawn(64))
    for precision in (Precision.BF16, Precision.F16):
        assert narrow(load(model), precision, BEST).values >= {"p", "n"}
        assert "r" not in narrow(load(model), precision, BEST).values


def test_a_mask_is_added_and_stays_wide() -> None:
    shapes = {"q": (2, 32, 64), "keys": (2, 64, 48), "v": (2, 48, 32), "bias": (32, 48)}
    values = [Value(name, f32, tuple(map(const, shape))) for name, shape in shapes.items()]
    made = [make_node(require("Relu"), [value], [f"{value.name}.r"], {}) for value in values]
    node = make_node(require("Attention"), [each.outputs[0] for each in made], ["y"], {})
    found = narrow(Graph("g", tuple(values), node.outputs, (*made, node), {}), Precision.BF16, BEST)
    assert found.values == {"q.r", "keys.r", "v.r"}
    assert found.weights == {"y": {"keys.r", "v.r"}}


@pytest.mark.parametrize("way", [WITH_SCORES, IN_BLOCKS])
@pytest.mark.parametrize("group", [1, 2])
def test_every_way_computes_attention(way: Alternative, group: int) -> None:
    heads = 4 // group
    shapes = {"q": (2, 4, 20, 4), "keys": (2, heads, 70, 4), "v": (2, heads, 70, 10), "mask": (2, 1, 20, 70)}
    values = [Value(name, f32, tuple(map(const, shape))) for name, shape in shapes.items()]
    attributes: dict[str, Attribute] = {"scale": 0.5, "are_rows": True, "group": group}
    node = make_node(require("Attention"), values, ["y"], attributes)
    graph = Graph("g", tuple(values), node.outputs, (node,), {})
    feeds = {name: drawn(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    options = Options(HOST, threads=1, alternatives=(DIRECT, way), precision=Precision.BF16)
    (found,) = compile_prepared(graph, options).executable.run(feeds)
    keys, v = (np.repeat(feeds[name], group, axis=1) for name in ("keys", "v"))
    weights = np.exp(feeds["q"] @ keys.swapaxes(-1, -2) * 0.5 + feeds["mask"])
    np.testing.assert_allclose(found, weights / weights.sum(-1, keepdims=True) @ v, rtol=2e-2, atol=2e-2)


@HAS_PRODUCTS
def test_results_of_the_instruction() -> None:
    (found,) = compiled(attention(40, 60), HOST).executable.run({"x": drawn(1, 40, 128), "z": drawn(1, 60, 128)})
    (wide,) = compile_graph(load(attention(40, 60)), Options(HOST, threads=1)).executable.run(
        {"x": drawn(1, 40, 128), "z": drawn(1, 60, 128)}
    )
    assert 1e-5 < np.linalg.norm(found - wide) / np.linalg.norm(wide) < 2e-2
