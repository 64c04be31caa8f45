"""Models that use the matrix unit of x86: their results against others, threads, children, and refusals.

They run where the processor has the unit and the system grants it; elsewhere they are compiled.
"""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Literal

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

import tilewright
from tilewright.base.numerics import Precision
from tilewright.passes.choose import choose
from tilewright.target.target import Target

Array = NDArray[np.generic]

HOST = Target.host()
UNIT = Target.parse("x86_64,sapphirerapids,+amx-bf16,+amx-int8")
has_unit = pytest.mark.skipif(
    not {"amx-bf16", "amx-int8"} <= set(HOST.features), reason="needs AMX, and a kernel that grants it"
)


def network(layer: str, shape: tuple[int, ...], weights: dict[str, Array]) -> onnx.ModelProto:
    """``layer`` of ``h`` and ``weights`` between two elementwise operators."""
    extents = ", ".join(map(str, shape))
    made = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        net (float[{extents}] x) => (float[{", ".join("?" for _ in shape)}] y)
        {{ h = Relu(x)  p = {layer}  q = Add(p, b)  y = Tanh(q) }}"""
    )
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return made


def difference(found: Array, expected: Array) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected))


def of_matrices(m: int, k: int, n: int, random: np.random.Generator) -> onnx.ModelProto:
    weights = {"w": random.normal(0, k**-0.5, (k, n)), "b": random.normal(size=n)}
    return network("MatMul(h, w)", (m, k), {name: array.astype(np.float32) for name, array in weights.items()})


def of_groups(channels: int, filters: int, groups: int, stride: int, random: np.random.Generator) -> onnx.ModelProto:
    """A convolution of an image of 14 x 32 in groups."""
    weights = {
        "w": random.normal(0, (channels // groups * 9) ** -0.5, (filters, channels // groups, 3, 3)),
        "b": random.normal(size=(filters, 1, 1)),
    }
    layer = f"Conv<kernel_shape=[3, 3], group={groups}, strides=[{stride}, {stride}], pads=[1, 1, 1, 1]>(h, w)"
    return network(layer, (1, channels, 14, 32), {name: array.astype(np.float32) for name, array in weights.items()})


def of_images(
    channels: int, filters: int, size: tuple[int, ...], kernel: int, stride: int, random: np.random.Generator
) -> onnx.ModelProto:
    rank = len(size)
    weights = {
        "w": random.normal(0, (channels * kernel**rank) ** -0.5, (filters, channels, *[kernel] * rank)),
        "b": random.normal(size=(filters, *[1] * rank)),
    }
    pads = [kernel // 2] * 2 * rank
    layer = f"Conv<kernel_shape={[kernel] * rank}, strides={[stride] * rank}, pads={pads}>(h, w)"
    return network(layer, (1, channels, *size), {name: array.astype(np.float32) for name, array in weights.items()})


def uses_unit(model: tilewright.CompiledModel) -> bool:
    return any("tdp" in str(kernel.schedule.program) for kernel in model.compiled.kernels)


MATRICES = [
    (49, 200, 33),
    *(
        pytest.param(shape, marks=pytest.mark.slow)
        for shape in ((32, 64, 96), (128, 320, 64), (60, 340, 48), (197, 192, 64))
    ),
]
IMAGES = [
    (48, 80, (8, 14), 3, 1),
    (3, 64, (32, 64), 7, 2),  # taps in rows
    (64, 32, (9, 7), 3, 1),  # places in rows
    (32, 64, (9, 7), 3, 2),  # and gathered
    (32, 32, (3, 6, 5), 3, 1),  # images of places in rows
    (24, 32, (9, 32), 1, 1),  # whole channels
    (32, 32, (17, 17), 1, 1),  # one axis of places
    *(
        pytest.param(shape, marks=pytest.mark.slow)
        for shape in (
            (32, 64, (14, 14), 3, 1),
            (64, 48, (9, 28), 1, 1),
            (32, 32, (28, 32), 3, 2),
            (64, 64, (7, 7), 1, 1),
            (1, 64, (30, 40), 7, 1),
            (7, 32, (64, 96), 5, 3),
            (80, 96, (14, 14), 3, 1),
            (64, 128, (14, 15), 1, 2),
            (32, 48, (17, 17), 5, 1),
            (44, 44, (28, 28), 1, 1),
            (80, 32, (30, 31), 3, 1),
            (40, 48, (31, 32), 3, 2),
            (22, 80, (30, 42), 5, 1),
        )
    ),
]


GROUPS = [
    (64, 64, 16, 1),  # eight share a block
    (64, 128, 2, 2),  # each fills blocks
    *(
        pytest.param(shape, marks=pytest.mark.slow)
        for shape in ((128, 64, 8, 1), (96, 96, 6, 2), (64, 64, 32, 1), (48, 48, 12, 1), (64, 128, 16, 1))
    ),
]
"""Channels, filters, groups and stride."""


@pytest.mark.parametrize("shape", MATRICES)
def test_models_of_matrices_in_bf16(shape: tuple[int, int, int]) -> None:
    _check_bf16(of_matrices(*shape, np.random.default_rng(0)), shape[:2])


@pytest.mark.parametrize("shape", IMAGES)
def test_models_of_images_in_bf16(shape: tuple[int, int, tuple[int, ...], int, int]) -> None:
    _check_bf16(of_images(*shape, np.random.default_rng(0)), (1, shape[0], *shape[2]))


@pytest.mark.parametrize("shape", GROUPS)
def test_models_of_groups_in_bf16(shape: tuple[int, int, int, int]) -> None:
    _check_bf16(of_groups(*shape, np.random.default_rng(0)), (1, shape[0], 14, 32))


def test_products_that_nothing_follows_are_stored_by_the_unit() -> None:
    """Without private memory between: of rows that are tiles, and of 50, of which the last tile has two."""
    random = np.random.default_rng(0)
    weight = random.normal(0, 0.1, (256, 256)).astype(np.float32)
    for rows in (64, 50):
        made = onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["": 20]>
            net (float[{rows}, 256] x) => (float[{rows}, 256] y) {{ y = MatMul(x, w) }}"""
        )
        made.graph.initializer.append(numpy_helper.from_array(weight, "w"))
        model = tilewright.compile(made, precision="bf16", target=UNIT)
        text = "".join(str(kernel.schedule.program) for kernel in model.compiled.kernels)
        assert uses_unit(model) and "in local" not in text
        if {"amx-bf16", "amx-int8"} <= set(HOST.features):
            x = random.normal(size=(rows, 256)).astype(np.float32)
            found = np.asarray(model(x))
            assert difference(found, rounded(x) @ rounded(weight)) < 1e-6


def rounded(numbers: NDArray[np.float32]) -> NDArray[np.float64]:
    return numbers.astype(ml_dtypes.bfloat16).astype(np.float64)


def test_groups_are_joined_where_they_share_blocks() -> None:
    """Not those of single channels, and not under strict math: 0 times infinity is no term of the sum."""
    joined, single = (of_groups(64, 64, groups, 1, np.random.default_rng(0)) for groups in (16, 64))

    def ways(model: onnx.ModelProto, math: Literal["default", "strict"] = "default") -> set[str]:
        choices = tilewright.compile(model, precision="bf16", target=UNIT, math=math).compiled.choices
        return {how for how, _ in choices.decisions.values()}

    assert "joined groups, in blocks" in ways(joined)
    assert "joined groups, in blocks" not in ways(joined, "strict") | ways(single)


VOLUMES = [
    (64, (4, 14, 14), "images of places in rows"),
    (512, (2, 7, 7), "places in rows"),  # weights of 14 MB are read once
    (64, (16, 40, 40), "direct"),
]


@pytest.mark.parametrize(("channels", "size", "way"), VOLUMES)
def test_rows_of_volumes(channels: int, size: tuple[int, ...], way: str) -> None:
    model = of_images(channels, channels, size, 3, 1, np.random.default_rng(0))
    choices = tilewright.compile(model, precision="bf16", target=UNIT).compiled.choices
    assert f"{way}, in blocks" in {how for how, _ in choices.decisions.values()}


def test_weights_of_joined_groups_count_as_memory() -> None:
    model = of_groups(64, 64, 16, 1, np.random.default_rng(0))
    choices = tilewright.compile(model, precision="bf16", target=UNIT).compiled.choices
    # With 4 of 32 channels in a group: 8 times as many numbers of 2 bytes in place of 4.
    assert choices.more_bytes == 64 * 4 * 9 * (8 * 2 - 4)
    less = choose(choices.graph, UNIT, spare=0, alternatives=choices.facts.alternatives, precision=Precision.BF16)
    assert less.more_bytes == 0


def _check_bf16(model: onnx.ModelProto, shape: tuple[int, ...]) -> None:
    """Against the model in float32 on operands rounded to bfloat16; as far as it can run here."""
    compiled = tilewright.compile(model, precision="bf16", target=UNIT, threads=2)
    assert uses_unit(compiled)
    if not set(UNIT.features) <= set(HOST.features):
        pytest.skip("compiled; running needs AMX, and a kernel that grants it")
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    rounded = onnx.ModelProto()
    rounded.CopyFrom(model)
    weight = next(w for w in rounded.graph.initializer if w.name == "w")
    array = numpy_helper.to_array(weight).astype(ml_dtypes.bfloat16).astype(np.float32)
    weight.CopyFrom(numpy_helper.from_array(array, "w"))
    expected = tilewright.compile(rounded, target=f"{UNIT},-amx-tile")(x.astype(ml_dtypes.bfloat16).astype(np.float32))
    found = compiled(x)
    assert difference(found, expected) < 1e-5
    np.testing.assert_array_equal(compiled(x), found)


def quantized(m: int, k: int, n: int, random: np.random.Generator) -> onnx.ModelProto:
    """An integer product, with zero points."""
    made = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        net (uint8[{m}, {k}] x) => (int32[{m}, {n}] y) {{ y = MatMulInteger(x, w, a, b) }}"""
    )
    arrays = {"w": random.integers(-128, 128, (k, n)).astype(np.int8), "a": np.uint8(200), "b": np.int8(-3)}
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items())
    return made


@pytest.mark.parametrize(("m", "k", "n"), [(64, 100, 48), (49, 256, 33)])
def test_products_of_bytes_are_exact(m: int, k: int, n: int) -> None:
    random = np.random.default_rng(2)
    model = quantized(m, k, n, random)
    compiled = tilewright.compile(model, target=UNIT)
    assert uses_unit(compiled)
    if not set(UNIT.features) <= set(HOST.features):
        pytest.skip("compiled; running needs AMX, and a kernel that grants it")
    x = random.choice([0, 1, 254, 255], (m, k)).astype(np.uint8)
    weight = numpy_helper.to_array(model.graph.initializer[0]).astype(np.int64)
    np.testing.assert_array_equal(compiled(x), (x.astype(np.int64) - 200) @ (weight + 3))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Array, Array]:
    """An artifact that uses the unit, an input, and what it gives."""
    folder = tmp_path_factory.mktemp("tiles")
    compiled = tilewright.compile(of_matrices(64, 64, 64, np.random.default_rng(3)), precision="bf16", target=UNIT)
    compiled.save(folder / "m.tw", signed=False)
    x = np.random.default_rng(4).normal(size=(64, 64)).astype(np.float32)
    np.save(folder / "x.npy", x)
    return folder / "m.tw", x, compiled(x)


@has_unit
def test_threads_of_python_and_their_children(shared: tuple[Path, Array, Array]) -> None:
    path, x, expected = shared
    model = tilewright.load(path, trust=True, threads=2)
    found: list[Array] = []
    threads = [threading.Thread(target=lambda: found.extend(model(x) for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    for array in found:
        np.testing.assert_array_equal(array, expected)


FORKED = """
import os, sys
import numpy as np
import tilewright

model, x = tilewright.load(sys.argv[1], trust=True, threads=2), np.load(sys.argv[2])
before = model(x)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(model(x), before) else 1)
assert os.waitpid(child, 0)[1] == 0
np.save(sys.argv[3], model(x))
"""


@has_unit
def test_a_new_process_asks_and_its_children_have_what_it_has(
    shared: tuple[Path, Array, Array], tmp_path: Path
) -> None:
    path, _, expected = shared
    command = [sys.executable, "-c", FORKED, str(path), str(path.with_name("x.npy")), str(tmp_path / "y.npy")]
    subprocess.run(command, check=True, timeout=120)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


REFUSED = """
import sys
from tilewright.base import tile_permission

tile_permission.ARCH_REQ_XCOMP_PERM = 0x7FFF  # no call of the kernel
import tilewright
from tilewright.base.errors import CorruptArtifact

assert not any(name.startswith("amx") for name in tilewright.Target.host().features)
try:
    tilewright.load(sys.argv[1], trust=True)
except CorruptArtifact as error:
    print(error)
"""


@has_unit
def test_a_refusal_is_an_error_and_no_tiles_are_chosen(shared: tuple[Path, Array, Array]) -> None:
    command = [sys.executable, "-c", REFUSED, str(shared[0])]
    said = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True).stdout
    assert "it needs amx-tile, which this processor has not, or the system does not grant" in said


@has_unit
def test_a_program_without_python_asks_itself(tmp_path: Path) -> None:
    compiled = tilewright.compile(of_matrices(64, 64, 64, np.random.default_rng(3)), precision="bf16", target=UNIT)
    x = np.random.default_rng(4).normal(size=(64, 64)).astype(np.float32)
    (path,) = compiled.emit(tmp_path / "program")
    found = subprocess.run([path], input=x.tobytes(), capture_output=True, check=True, timeout=60).stdout
    np.testing.assert_array_equal(np.frombuffer(found, np.float32).reshape(64, 64), compiled(x))
