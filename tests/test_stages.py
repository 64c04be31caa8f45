"""Models whose shapes depend on data: compiled in stages, against ONNX Runtime and NumPy."""

import pickle
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.frontend.models import run_onnxruntime
from tests.test_computed_shapes import node
from tilewright.base.errors import BadFeed, CorruptArtifact, TilewrightError, Timeout, Unsupported, UnsupportedModel
from tilewright.base.settings import Settings
from tilewright.runtime.stages import Kind
from tilewright.staged import StagedModel

Array = NDArray[np.generic]
KINDS = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}
CHECKED = Settings(cache_dir=None, repro_dir=None, bounds_check=True)
GENERATOR = np.random.default_rng(7)


def info(spec: str, shape: Sequence[int | str] | None = None) -> onnx.ValueInfoProto:
    """``x:f``: the value x of floats."""
    name, kind = spec.split(":")
    return helper.make_tensor_value_info(name, KINDS[kind], shape)


def graph(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, "g", inputs, [info(spec) for spec in outputs.split()])


def proto(
    nodes: list[onnx.NodeProto], inputs: dict[str, Sequence[int | str]], outputs: str, **constants: Array
) -> onnx.ModelProto:
    whole = graph(nodes, [info(spec, shape) for spec, shape in inputs.items()], outputs)
    whole.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items())
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def staged(model: onnx.ModelProto) -> StagedModel:
    made = tilewright.compile(model, threads=1, settings=CHECKED)
    assert isinstance(made, StagedModel)
    return made


def check(model: onnx.ModelProto, feeds: Sequence[dict[str, Array]]) -> StagedModel:
    """One compiled model agrees with ONNX Runtime for all ``feeds``."""
    made = staged(model)
    for each in feeds:
        for found, expected in zip(made.run(None, each), run_onnxruntime(model, each), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    return made


def sparse(*shape: int, share: float = 0.5) -> Array:
    found = GENERATOR.standard_normal(shape).astype(np.float32)
    return np.where(GENERATOR.random(shape) < share, found, np.float32(0))


CHOSEN = [
    node("NonZero", ["x"], ["p"]),
    node("Transpose", ["p"], ["t"]),
    node("GatherND", ["x", "t"], ["g"]),
    node("Exp", ["g"], ["y"]),
    node("Shape", ["y"], ["s"]),
]


def test_what_is_not_zero() -> None:
    """Also nothing, and of no rows at all; the size is known to nodes after it."""
    made = check(
        proto(CHOSEN, {"x:f": ["n", 5]}, "y:f p:i s:i"),
        [{"x": x} for x in (sparse(4, 5), sparse(3, 5, share=0), sparse(2, 5, share=1), sparse(0, 5))],
    )
    assert [plan.kind for plan in made.stages] == [Kind.PART, Kind.SIZES, Kind.PART]
    assert [spec.shape for spec in made.outputs] == [("node 0 (NonZero)",), (2, "node 0 (NonZero)"), (1,)]
    x = sparse(3, 5)
    count = np.count_nonzero(x)
    y = np.empty(count, np.float32)
    made.run(["y"], {"x": x}, out=[y])
    np.testing.assert_allclose(y, np.exp(x[np.nonzero(x)]), rtol=1e-5)
    with pytest.raises(BadFeed, match="allocate it as"):
        made.run(["y"], {"x": x}, out=[np.empty(count + 1, np.float32)])
    with pytest.raises(Unsupported, match="known only after a run"):
        made.bind({"x": x})
    with pytest.raises(Timeout, match="was not begun"):
        made.run(None, {"x": x}, timeout=0.0)


def test_equal_counts_are_one_size() -> None:
    """What one mask chooses twice is added: the sizes are known to be equal."""
    nodes = [
        node("Greater", ["x", "zero"], ["m"]),
        node("Compress", ["x", "m"], ["a"]),
        node("Compress", ["y", "m"], ["b"]),
        node("Add", ["a", "b"], ["s"]),
    ]
    model = proto(nodes, {"x:f": ["n"], "y:f": ["n"]}, "s:f", zero=np.float32(0))
    made = check(model, [{"x": sparse(n), "y": sparse(n)} for n in (9, 1)])
    assert sum(plan.kind is Kind.SIZES for plan in made.stages) == 1


@pytest.mark.slow
def test_unique_values_and_rows() -> None:
    nodes = [
        node("Unique", ["x"], ["a", "b", "c", "d"]),
        node("Unique", ["x"], ["e", "f", "g", "h"], axis=1),
        node("Unique", ["x"], ["i", "j", "k", "l"], axis=0, sorted=0),
    ]
    outputs = "a:f b:i c:i d:i e:f f:i g:i h:i i:f j:i k:i l:i"
    data = [GENERATOR.integers(0, 3, shape).astype(np.float32) for shape in ((6, 2), (1, 2), (11, 2))]
    check(proto(nodes, {"x:f": ["n", 2]}, outputs), [{"x": x} for x in data])


def boxes(*shape: int) -> Array:
    corners = GENERATOR.random((*shape, 2)).astype(np.float32)
    return np.concatenate([corners, corners + GENERATOR.random((*shape, 2)).astype(np.float32) / 2], -1)


@pytest.mark.parametrize("centered", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_boxes_that_overlap(centered: int) -> None:
    """With limits that are inputs, and of any number of boxes."""
    nodes = [
        node("NonMaxSuppression", ["x", "s", "most", "iou", "least"], ["r"], center_point_box=centered),
        node("Gather", ["r", "two"], ["c"], axis=1),
        node("Squeeze", ["c", "one"], ["k"]),
        node("Gather", ["x", "k"], ["y"], axis=1),
    ]
    inputs = {"x:f": ["b", "n", 4], "s:f": ["b", "c", "n"], "most:i": [1], "iou:f": [1], "least:f": [1]}
    model = proto(nodes, inputs, "r:i y:f", two=np.array([2]), one=np.array([1]))
    feeds = [
        {
            "x": boxes(b, n),
            "s": GENERATOR.random((b, c, n)).astype(np.float32),
            "most": np.array([most]),
            "iou": np.array([0.3], np.float32),
            "least": np.array([0.2], np.float32),
        }
        for b, c, n, most in ((1, 1, 30, 100), (2, 3, 9, 2), (1, 2, 5, 0))
    ]
    made = check(model, feeds)
    none = {**feeds[0], "x": boxes(1, 0), "s": np.zeros((1, 1, 0), np.float32)}
    assert [array.shape for array in made.run(None, none)] == [(0, 3), (1, 0, 4)]


def test_sizes_that_are_inputs() -> None:
    """The limit of a range, the number of largest elements, and a shape."""
    nodes = [
        node("Range", ["zero", "n", "step"], ["r"]),
        node("TopK", ["x", "k"], ["v", "i"]),
        node("ConstantOfShape", ["shape"], ["c"], value=numpy_helper.from_array(np.array([2.0], np.float32))),
        node("Range", ["begin", "end", "by"], ["f"]),
    ]
    model = proto(
        nodes,
        {"n:i": [], "k:i": [1], "shape:i": [2], "x:f": ["m"], "begin:f": [], "end:f": [], "by:f": [], "step:i": []},
        "r:i v:f i:i c:f f:f",
        zero=np.array(0),
    )
    feeds = [
        {
            "n": np.array(n),
            "step": np.array(3 if n > 0 else -1),
            "k": np.array([k]),
            "shape": np.array(shape),
            "x": sparse(6),
            **{name: np.array(end, np.float32) for name, end in zip(("begin", "end", "by"), ends, strict=True)},
        }
        for n, k, shape, ends in (
            (7, 2, (2, 3), (1, 2, 0.25)),
            (-4, 6, (0, 5), (3, -1, -0.7)),
            (0, 0, (1, 1), (2, 1, 1)),
        )
    ]
    made = check(model, feeds)
    with pytest.raises(BadFeed, match="a size is computed as -1"):
        made.run(None, {**feeds[0], "k": np.array([-1])})
    with pytest.raises(BadFeed, match="is -1, but the model was compiled for 0 or more"):
        made.run(None, {**feeds[0], "k": np.array([7])})
    with pytest.raises(TilewrightError, match="a size is computed as -1"):
        made.run(None, {**feeds[0], "step": np.array(0)})


def branches() -> onnx.ModelProto:
    """What a branch makes has another size in each; it reads values around it, and has a branch inside."""
    inner = graph([node("Neg", ["x"], ["n"])], [], "n:f"), graph([node("Abs", ["x"], ["a"])], [], "a:f")
    then = [node("If", ["d"], ["u"], then_branch=inner[0], else_branch=inner[1]), node("Add", ["u", "h"], ["t"])]
    other = [node("Concat", ["h", "h"], ["t"], axis=0)]
    nodes = [
        node("Mul", ["x", "two"], ["h"]),
        node("If", ["c"], ["z"], then_branch=graph(then, [], "t:f"), else_branch=graph(other, [], "t:f")),
        node("Relu", ["z"], ["y"]),
    ]
    inputs = {"x:f": ["n"], "c:b": [], "d:b": [1]}
    return proto(nodes, inputs, "y:f", two=np.float32(2))


def feeds_of_branches() -> list[dict[str, Array]]:
    ends = ((True, True, 3), (True, False, 3), (False, False, 2), (False, True, 0))
    return [{"x": sparse(n, share=1), "c": np.array(c), "d": np.array([d])} for c, d, n in ends]


def test_a_branch_that_is_chosen_by_data() -> None:
    made = check(branches(), feeds_of_branches())
    with pytest.raises(BadFeed, match="give an array of that shape"):
        made.run(None, {**feeds_of_branches()[0], "d": np.array([True, False])})


def loops() -> onnx.ModelProto:
    """A state that grows, one that stays, and what each step makes; until data says so."""
    body = graph(
        [
            node("Concat", ["s", "x"], ["s2"], axis=0),
            node("Mul", ["v", "two"], ["v2"]),
            node("ReduceSum", ["v2"], ["total"], keepdims=0),
            node("Less", ["total", "most"], ["go"]),
            node("Identity", ["v2"], ["e"]),
        ],
        [info("i:i", []), info("c:b", []), info("s:f", ["a"]), info("v:f", ["n"])],
        "go:b s2:f v2:f e:f",
    )
    nodes = [node("Loop", ["m", "", "first", "x"], ["s3", "v3", "all"], body=body), node("Exp", ["s3"], ["y"])]
    inputs = {"x:f": ["n"], "first:f": ["k"], "most:f": [], "m:i": []}
    return proto(nodes, inputs, "y:f v3:f all:f", two=np.float32(2))


def feeds_of_loops() -> list[dict[str, Array]]:
    ends = ((3, 2, 40.0, 100), (1, 0, 1e9, 4), (2, 3, 0.0, 9), (2, 1, 1e9, 0))
    return [
        {
            "x": GENERATOR.random(n).astype(np.float32),
            "first": sparse(k),
            "most": np.array(most, np.float32),
            "m": np.array(m),
        }
        for n, k, most, m in ends
    ]


def test_a_loop_until_data_says_so() -> None:
    """Also of no steps: then the states are the first ones, and arrays of their own."""
    *others, feeds = feeds_of_loops()
    made = check(loops(), others)
    y, last, stacked = made.run(None, feeds)
    np.testing.assert_allclose(y, np.exp(feeds["first"]), rtol=1e-5)
    np.testing.assert_array_equal(last, feeds["x"])
    assert stacked.shape == (0, 2)
    assert not any(np.may_share_memory(last, given) for given in feeds.values())


@pytest.mark.slow
def test_sizes_inside_of_a_loop() -> None:
    """Each step counts anew, and only the state's size may change."""
    body = graph(
        [
            node("Greater", ["s", "t"], ["large"]),
            node("Compress", ["s", "large"], ["s2"]),
            node("Shape", ["s2"], ["size"]),
            node("Identity", ["c"], ["c2"]),
            node("Sub", ["t", "less"], ["t2"]),
        ],
        [info("i:i", []), info("c:b", []), info("s:f", ["a"]), info("t:f", [])],
        "c2:b s2:f t2:f size:i",
    )
    nodes = [node("Loop", ["m", "", "x", "t"], ["y", "u", "sizes"], body=body)]
    model = proto(nodes, {"x:f": ["n"], "t:f": [], "m:i": []}, "y:f u:f sizes:i", less=np.float32(-0.5))
    feeds = [{"x": sparse(n, share=1), "t": np.array(-1, np.float32), "m": np.array(m)} for n, m in ((30, 3), (1, 2))]
    check(model, feeds)


@pytest.mark.slow
def test_a_scan_over_any_number_of_steps() -> None:
    body = graph(
        [node("Add", ["s", "e"], ["s2"]), node("Mul", ["s2", "e"], ["o"])],
        [info("s:f", [2]), info("e:f", [2])],
        "s2:f o:f",
    )
    options = {"num_scan_inputs": 1, "scan_input_axes": [1], "scan_input_directions": [1], "scan_output_axes": [1]}
    nodes = [node("Scan", ["h", "x"], ["last", "all"], body=body, **options)]
    model = proto(nodes, {"h:f": [2], "x:f": [2, "n"]}, "last:f all:f")
    check(model, [{"h": sparse(2), "x": sparse(2, n)} for n in (5, 1)])


@pytest.mark.parametrize(
    ("model", "feeds"),
    [
        pytest.param(
            proto(CHOSEN, {"x:f": ["n", 5]}, "y:f p:i s:i"), lambda: [{"x": sparse(4, 5)}], marks=pytest.mark.slow
        ),
        pytest.param(branches(), feeds_of_branches, marks=pytest.mark.slow),
        (loops(), feeds_of_loops),
    ],
    ids=["sizes", "branches", "loops"],
)
def test_an_artifact_has_all_stages(
    model: onnx.ModelProto, feeds: Callable[[], list[dict[str, Array]]], tmp_path: Path
) -> None:
    made, own = staged(model), Settings(key_dir=tmp_path / "keys")
    paths = [tmp_path / name for name in ("a.tw", "b.tw")]
    for path in paths:
        made.save(path, settings=own, signed=path == paths[0])
    assert paths[1].read_bytes() != paths[0].read_bytes()
    made.save(paths[1], settings=own)
    assert paths[1].read_bytes() == paths[0].read_bytes()
    again = [
        tilewright.load(paths[0], settings=own, threads=1),
        tilewright.load(paths[0], settings=own, mmap=True),
        tilewright.load(paths[0].read_bytes(), settings=own),
        pickle.loads(pickle.dumps(made)),
    ]
    for each in feeds():
        expected = made.run(None, each)
        for other in again:
            assert [spec.shape for spec in other.outputs] == [spec.shape for spec in made.outputs]
            for found, wanted in zip(other.run(None, each), expected, strict=True):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_a_damaged_artifact_is_refused(tmp_path: Path) -> None:
    own = Settings(key_dir=tmp_path / "keys")
    path, other = tmp_path / "a.tw", tmp_path / "b.tw"
    staged(branches()).save(path, settings=own)
    with zipfile.ZipFile(path) as file:
        members = [member.filename for member in file.infolist()]
    assert members[0] == "stages.json"
    assert any(name.startswith("bodies/") for name in members)
    content = path.read_bytes()
    for at in GENERATOR.choice(len(content), 25, replace=False):
        other.write_bytes(content[:at] + bytes([content[at] ^ 64]) + content[at + 1 :])
        with pytest.raises(TilewrightError):
            tilewright.load(other, settings=own)
    other.write_bytes(content.replace(b'"number": 0', b'"number": 1'))
    with pytest.raises(CorruptArtifact):
        tilewright.load(other, settings=own, trust=True)


def test_stages_are_explained_profiled_and_compared() -> None:
    made = staged(proto(CHOSEN, {"x:f": ["n", 5]}, "y:f p:i s:i"))
    x = sparse(4, 5)
    assert made.compare({"x": x}).agrees
    explained = made.explain()
    assert [f.subject for f in explained.findings if f.kind == "stage"] == ["node 0 (NonZero)"]
    assert {row.fate for row in explained.nodes if row.node == "node 3 (Exp)"} == {"kernel"}
    names = [row.kernel for row in made.profile({"x": x}, seconds=0.0, roofs=False).kernels]
    assert "node 0 (NonZero) [1]" in names
    assert any(name.startswith("part2.") for name in names)


def test_what_nothing_needs_does_not_run() -> None:
    nodes = [node("NonZero", ["x"], ["p"]), node("Add", ["p", "p"], ["q"]), node("Exp", ["x"], ["y"])]
    assert [plan.kind for plan in staged(proto(nodes, {"x:f": ["n", 5]}, "y:f")).stages] == [Kind.PART]


def test_pads_lengths_and_depths_that_are_data() -> None:
    """A negative pad, lengths that do not make up the whole, and a negative depth are refused in a run."""
    nodes = [
        node("Pad", ["x", "p"], ["a"]),
        node("Split", ["x", "l"], ["b", "c"], axis=1),
        node("Mul", ["c", "c"], ["cc"]),
        node("OneHot", ["i", "d", "v"], ["o"]),
    ]
    inputs = {"x:f": ["n", 5], "p:i": [4], "l:i": [2], "i:i": ["n"], "d:i": []}
    model = proto(nodes, inputs, "a:f b:f cc:f o:f", v=np.array([0, 2], np.float32))

    def feeds(pads: Sequence[int], lengths: Sequence[int], depth: int) -> dict[str, Array]:
        x = sparse(3, 5)
        return {
            "x": x,
            "p": np.array(pads),
            "l": np.array(lengths),
            "i": np.array([2, 0, -1]),
            "d": np.array(depth),
        }

    made = check(model, [feeds([1, 0, 2, 3], [1, 4], 4), feeds([0, 0, 0, 0], [0, 5], 1)])
    for wrong in (feeds([-1, 0, 0, 0], [1, 4], 3), feeds([0, 0, 0, 0], [1, 3], 3), feeds([0, 0, 0, 0], [1, 4], -3)):
        with pytest.raises(BadFeed):
            made.run(None, wrong)


@pytest.mark.slow
def test_sizes_of_images_that_are_data() -> None:
    nodes = [node("Resize", ["x", "", "", "s"], ["y"])]
    feeds = [{"x": sparse(1, 2, 5, 6), "s": np.array([1, 2, *size])} for size in ((7, 3), (5, 6))]
    check(proto(nodes, {"x:f": [1, 2, "h", "w"], "s:i": [4]}, "y:f"), feeds)


def test_parts_come_from_the_cache(tmp_path: Path) -> None:
    """Each part of the same model, and none of one with other weights; what compiling made of it is made again."""
    settings = Settings(cache_dir=tmp_path / "cache", key_dir=tmp_path / "keys", repro_dir=None)
    x = {"x": sparse(4, 5)}

    def made(weight: float) -> StagedModel:
        nodes = [*CHOSEN, node("Mul", ["y", "w"], ["z"])]
        model = proto(nodes, {"x:f": ["n", 5]}, "z:f", w=np.float32(weight))
        found = tilewright.compile(model, threads=1, settings=settings)
        assert isinstance(found, StagedModel)
        return found

    first, again, other = made(2), made(2), made(3)
    assert not first.is_cached
    assert again.is_cached
    assert not other.is_cached
    np.testing.assert_array_equal(again.run(None, x)[0], first.run(None, x)[0])
    np.testing.assert_allclose(other.run(None, x)[0], first.run(None, x)[0] * 1.5, rtol=1e-6)
    assert [str(part.compiled.graph) for part in again.parts] == [str(part.compiled.graph) for part in first.parts]


def slices(**given: Array) -> dict[str, Array]:
    return {"x": GENERATOR.standard_normal((4, 5, 6)).astype(np.float32), **given}


def test_slices_along_axes_and_by_steps_that_are_data() -> None:
    """Also backwards, beyond the ends, of nothing, and by steps whose sums leave i64 (as NumPy)."""
    most, inputs = np.iinfo(np.int64).max, {"x:f": ["a", 5, "c"], **{f"{name}:i": [2] for name in "seat"}}
    bounds = ([1, 0, 4, 5], [1, -1, -3, -9], [0, 2, 0, 99], [5, 1, 3, 1], [2, -5, 1, -2], [1, 4, 99, -99])
    axes = ([0, 1], [2, 0], [-1, 1], [1, 2], [-3, -1], [2, 1])
    feeds = [
        slices(s=np.array([s, u]), e=np.array([e, v]), a=np.array(a), t=np.array([t, step]))
        for (s, e, u, v), a in zip(bounds, axes, strict=False)
        for t, step in ((1, 2), (-1, 3), (2, -1), (-9, -2))
    ]
    made = check(proto([node("Slice", [*"xseat"], ["y"])], inputs, "y:f"), feeds)
    far = slices(s=np.array([1, most]), e=np.array([4, -most]), a=np.array([1, 2]), t=np.array([most, -most]))
    np.testing.assert_array_equal(made.run(None, far)[0], far["x"][:, 1:4:most, ::-most])
    for steps, named in (([1, 0], [0, 1]), ([1, 1], [1, -2]), ([1, 1], [0, 3])):
        with pytest.raises(BadFeed, match="a size is computed as -1"):
            made.run(None, {**feeds[0], "t": np.array(steps), "a": np.array(named)})
    empty = slices(x=np.zeros((0, 5, 2), np.float32), s=np.array([3, 3]), e=np.array([-9, -9]))
    (found,) = made.run(None, {**empty, "a": np.array([0, 2]), "t": np.array([-1, -1])})
    assert found.shape == (0, 5, 2)


def test_slices_of_which_axes_or_steps_are_data() -> None:
    one = np.array([1])
    by = proto([node("Slice", [*"xsebt"], ["y"])], {"x:f": [4, "b", 6], "t:i": [1]}, "y:f", s=one, e=-one, b=one)
    check(by, [slices(t=np.array([step])) for step in (1, 3, -1)])
    along = proto([node("Slice", [*"xsea"], ["y"])], {"x:f": [4, "b", 6], "a:i": [1]}, "y:f", s=one, e=-one)
    check(along, [slices(a=np.array([axis])) for axis in (0, 1, 2, -1)])


def test_what_is_refused() -> None:
    """Ranks that depend on data, states that change their rank, and sizes that are too many."""
    other = graph([node("Unsqueeze", ["x", "axis"], ["t"])], [], "t:f")
    nodes = [node("If", ["c"], ["y"], then_branch=graph([node("Abs", ["x"], ["t"])], [], "t:f"), else_branch=other)]
    with pytest.raises(UnsupportedModel, match="different types or ranks"):
        staged(proto(nodes, {"x:f": [3], "c:b": []}, "y:f", axis=np.array([0])))
    body = graph(
        [node("Unsqueeze", ["s", "axis"], ["s2"]), node("Identity", ["c"], ["c2"])],
        [info("i:i", []), info("c:b", []), info("s:f")],
        "c2:b s2:f",
    )
    with pytest.raises(UnsupportedModel, match="after a step it is f32 of 2 dimensions"):
        staged(
            proto([node("Loop", ["m", "", "x"], ["y"], body=body)], {"x:f": [3], "m:i": []}, "y:f", axis=np.array([0]))
        )
    with pytest.raises(UnsupportedModel, match="are not a few numbers"):
        tilewright.compile(proto([node("ConstantOfShape", ["s"], ["y"])], {"s:i": ["n"]}, "y:f"), dynamic="symbolic")
