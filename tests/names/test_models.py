"""What a model's dimensions, inputs, outputs, values and nodes are called changes no bit of what it computes.

Nearly all of it follows from one stronger fact: compiled code is the same text whatever they are called.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import tilewright
from tests.frontend.models import run_onnxruntime
from tests.names.compiled import Text, text_of
from tests.names.hostile import HOSTILE
from tests.names.renaming import Renaming, hostile, opened
from tests.onnx_nodes.cases import all_cases
from tests.random_graphs.generator import generate
from tilewright.base.errors import BadFeed, TilewrightError, Unsupported

Array = NDArray[np.generic]

SHARDS = 16
FEWEST = 8
"""Operators in each shard that are compiled, for some sizes of inputs at least at run time."""


@cache
def _models() -> Mapping[str, Sequence[onnx.ModelProto]]:
    """The models of ONNX's node tests by operator."""
    found: dict[str, list[onnx.ModelProto]] = {}
    for case in all_cases().values():
        if "_expanded" not in case.name:
            model = case.with_constants()
            found.setdefault(model.graph.node[0].op_type, []).append(model)
    return dict(sorted(found.items()))


def _dynamic(model: onnx.ModelProto) -> tuple[onnx.ModelProto, Text] | None:
    """``model`` with as many sizes known at run time only as it can have, and its code; None if it has none."""
    for form in (opened(model), opened(model, leading=1), model):
        try:
            return form, text_of(form)
        except TilewrightError:
            continue
    return None


def _check(model: onnx.ModelProto, first: int) -> bool:
    """Whether ``model`` is compiled, and then to what it is compiled to under other names."""
    found = _dynamic(model)
    if found is not None:
        form, expected = found
        assert text_of(Renaming.of(form, first).applied(form)) == expected, str(form.graph.node[0])
    return found is not None


@pytest.mark.share(4)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_code_does_not_depend_on_names(shard: int) -> None:
    """Each operator under other names: together they have all that are hostile."""
    operators = list(islice(enumerate(_models().values()), shard, None, SHARDS))
    compiled = [_check(models[min(1, len(models) - 1)], 5 * number) for number, models in operators]
    assert sum(compiled) >= FEWEST


@pytest.mark.share(4)
@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_code_of_any_model_does_not_depend_on_any_name(shard: int) -> None:
    for models in islice(_models().values(), shard, None, SHARDS):
        for number, model in enumerate(models):
            _check(model, 11 * number)
        for first in range(0, len(HOSTILE), 3):
            _check(models[0], first)


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(12))
def test_code_of_random_graphs_does_not_depend_on_names(seed: int) -> None:
    model = generate(seed).model()
    try:
        expected = text_of(model)
    except Unsupported:
        return
    assert text_of(Renaming.of(model, 9 * seed).applied(model)) == expected


# As it was seen: names of loops and axes inside


def _model(
    op: str, shape: Sequence[int | str], constants: Mapping[str, Array], **attributes: object
) -> onnx.ModelProto:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
    known = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name="y")], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


CASES = {
    "MaxPool": (5, 1, 4, 4),
    "AveragePool": (5, 1, 4, 4),
    "ConvTranspose": (5, 1, 4, 4),
    "LRN": (5, 3, 4, 4),
    "MatMul": (5, 8),
    "Gemm": (5, 8),
    "ArgMax": (5, 8),
    "ReduceMean": (5, 8),
    "Softmax": (5, 8),
    "CumSum": (5, 8),
    "ScatterElements": (5, 8),
    "MeanVarianceNormalization": (5, 3, 4, 4),
}
_CONSTANTS: Mapping[str, Mapping[str, Array]] = {
    "ConvTranspose": {"w": _floats(1, 2, 3, 3)},
    "MatMul": {"w": _floats(8, 3)},
    "Gemm": {"w": _floats(8, 3)},
    "CumSum": {"axis": np.array(1)},
    "ScatterElements": {"indices": np.array([[1, 0, 1]]), "updates": _floats(1, 3)},
}
_ATTRIBUTES: Mapping[str, Mapping[str, object]] = {
    "MaxPool": {"kernel_shape": [2, 2]},
    "AveragePool": {"kernel_shape": [2, 2]},
    "LRN": {"size": 3},
    "ArgMax": {"axis": 1},
    "ReduceMean": {"axes": [1]},
}
_LOOPS = ("k", "k0", "k1", "i0", "i1", "r0", "r1")


@pytest.mark.share(2)
@pytest.mark.parametrize("op", CASES)
def test_dimensions_called_like_loops(op: str) -> None:
    sizes, constants, attributes = CASES[op], _CONSTANTS.get(op, {}), _ATTRIBUTES.get(op, {})
    plain, *others = [_model(op, [name, *sizes[1:]], constants, **attributes) for name in ("batch", *_LOOPS)]
    code = text_of(plain)
    assert all(text_of(other) == code for other in others)
    feeds = {"x": _floats(*sizes)}
    found = tilewright.compile(others[0], threads=1, dynamic="symbolic").run(None, feeds)
    (expected,) = run_onnxruntime(plain, feeds)
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5)


# What users call a dimension is what they see


@pytest.mark.parametrize("name", ["k", "n1", "2*n", "workspace", "é", "a\nb"])
def test_a_symbol_is_called_as_the_dimension_is(name: str) -> None:
    """It is bounded and given by that name."""
    model = _model("MatMul", [name, "other", 8], {"w": _floats(8, 3)})
    compiled = tilewright.compile(model, threads=1, bounds={name: 6})
    symbols = [(symbol.name, symbol.maximum) for symbol in compiled.executable.manifest.symbols]
    assert symbols[:2] == [(name, 6), ("other", None)]
    with pytest.raises(BadFeed, match="is 7, but the model was compiled for 0 to 6"):
        compiled.run(None, {"x": _floats(7, 1, 8)})
    renamed = tilewright.compile(model, threads=1, shapes={"x": ("rows", name, 8)})
    assert [symbol.name for symbol in renamed.executable.manifest.symbols][:2] == ["rows", name]


def _joined(dims: Sequence[str]) -> onnx.ModelProto:
    """Twice the rows of ``x``, and those of ``z`` besides."""
    pairs = zip("xz", dims, strict=True)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [dim, 2]) for name, dim in pairs]
    nodes = [helper.make_node("Concat", inputs, [made], axis=0) for inputs, made in (("xx", "y"), ("yz", "w"))]
    results = [onnx.ValueInfoProto(name=name) for name in "yw"]
    graph = helper.make_graph(nodes, "g", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


_DIMS = [("n", "n * 2"), ("n * 2", "n"), ("n", "workspace"), ("m", "n * 2 + m"), ("", "x_0"), ("x_0", "")]


@pytest.mark.parametrize("dims", _DIMS)
def test_dimensions_called_like_computed_symbols(dims: Sequence[str]) -> None:
    """Also one without a name, which must not become the same as that which is called as it would be."""
    model = tilewright.compile(_joined(dims), threads=1)
    x, z = _floats(3, 2), _floats(5, 2)
    y, w = model.run(None, {"x": x, "z": z})
    np.testing.assert_array_equal(y, np.concatenate([x, x]))
    np.testing.assert_array_equal(w, np.concatenate([x, x, z]))


def test_errors_tell_the_name_that_the_user_gave() -> None:
    with pytest.raises(Unsupported, match="extent batch size of"):
        tilewright.compile(_model("Det", [3, "batch size", "batch size"], {}), dynamic="symbolic")


def test_names_are_hostile() -> None:
    assert len(HOSTILE) == len(set(HOSTILE)) >= 50
    drawn: Iterator[str] = hostile(3)
    assert len(set(islice(drawn, 500))) == 500


def test_bodies_that_onnx_writes_as_text() -> None:
    """It can't read back all that it writes: an accent, a name that begins with a sign."""
    with_bodies = [m for m in _models()["FlexAttention"] if any(a.HasField("g") for a in m.graph.node[0].attribute)]
    assert [_check(model, first) for model in with_bodies[:2] for first in range(0, len(HOSTILE), 24)]
