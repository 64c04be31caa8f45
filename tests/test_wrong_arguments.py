"""Whatever a public function is given: it works, or raises an error of ours whose text is short and names the argument.

Each argument of each function takes each value of a table, in turn: wrong types, numbers out of every range, texts of
all kinds, containers that hold themselves, objects that raise whenever somebody looks at them.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.frontend.models import model as onnx_model
from tests.frontend.models import single_node
from tilewright import te
from tilewright.api import compile as compile_model
from tilewright.base import dtypes
from tilewright.base.errors import MOST_CHARACTERS, BadFeed, BadInput, InternalError, TilewrightError
from tilewright.base.settings import Settings
from tilewright.runtime.sizing import default_threads
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Architecture, Target

X = np.ones((2, 3), np.float32)
OWN = Settings(records=None)
LONG = "x" * 10_000


class Hostile:
    """Raises whatever is asked of it."""

    def _refuse(self, *_: object) -> object:
        raise ZeroDivisionError("nobody looks at me")

    __repr__ = __str__ = __len__ = __iter__ = __getitem__ = __bool__ = __hash__ = __eq__ = _refuse
    __array__ = __index__ = __int__ = __float__ = __fspath__ = __dlpack__ = __call__ = _refuse
    __contains__ = __lt__ = __add__ = _refuse

    def __dlpack_device__(self) -> tuple[int, int]:
        raise ZeroDivisionError("nor at my device")


class HostileList(list[object]):
    """Says that it is a list."""

    def __iter__(self) -> Iterator[object]:
        raise ZeroDivisionError("no items")

    def __len__(self) -> int:
        raise ZeroDivisionError("no length")


class HostileDict(dict[str, object]):
    """Says that it is a dict."""

    def items(self) -> object:
        raise ZeroDivisionError("no items")

    def __getitem__(self, key: object) -> object:
        raise ZeroDivisionError("no items")

    def __len__(self) -> int:
        raise ZeroDivisionError("no length")


def endless(kind: type) -> object:
    """A container that holds itself."""
    if kind is dict:
        mapping: dict[str, object] = {}
        mapping["x"] = mapping
        return mapping
    items: list[object] = []
    items.append(items)
    return items


WRONG: Mapping[str, Callable[[], object]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "1.5": lambda: 1.5,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "a huge number": lambda: 10**5000,
    "2**63": lambda: 1 << 63,
    "a complex number": lambda: 1j,
    "an empty text": lambda: "",
    "a digit": lambda: "2",
    "a long text": lambda: LONG,
    "half a pair": lambda: "\ud800",
    "a zero character": lambda: "a\0b",
    "control characters": lambda: "\x1b[31m\n\r",
    "bytes": lambda: b"\xff\xfe",
    "a list": list,
    "a list of None": lambda: [None],
    "a dict": dict,
    "a dict of None": lambda: {"x": None},
    "a dict of numbers": lambda: {1: 2},
    "a set": set,
    "a list in itself": lambda: endless(list),
    "a dict in itself": lambda: endless(dict),
    "an endless iterator": lambda: itertools.repeat(1),
    "an object": object,
    "a class": lambda: int,
    "a function": lambda: max,
    "an array": lambda: X,
    "an array of objects": lambda: np.array([None, {}], object),
    "a dtype": lambda: np.dtype("f4"),
    "a hostile object": Hostile,
    "a hostile list": lambda: HostileList([1]),
    "a hostile dict": lambda: HostileDict(x=1),
    "a list of hostile objects": lambda: [Hostile()],
    "a dict of hostile objects": lambda: {"x": Hostile()},
}


@pytest.fixture(scope="module")
def compiled() -> tilewright.CompiledModel:
    return compile_model(single_node("Relu", {"x": X}), settings=OWN)


def allowed(call: Callable[[], object], place: str) -> None:
    """It works, or the error is ours and can be printed."""
    try:
        call()
    except TilewrightError as error:
        assert not isinstance(error, InternalError), place
        assert 0 < len(str(error)) <= error.most_characters, place
        str(error).encode()
    except Exception as error:  # noqa: BLE001  that is what is looked for
        pytest.fail(f"{place}: {type(error).__name__}: {error}")


def check_each(function: Callable[..., object], *right: object, **named: object) -> None:
    """Each argument in turn takes each wrong value, the others are right. What a function raises is its own."""
    for position, name in itertools.product(range(len(right)), WRONG):
        if inspect.isfunction(right[position]) and name in ("a class", "a function", "a hostile object"):
            continue
        given = [*right[:position], WRONG[name](), *right[position + 1 :]]
        allowed(lambda given=given: function(*given, **named), f"argument {position} is {name}")
    for keyword, name in itertools.product(named, WRONG):
        chosen = {**named, keyword: WRONG[name]()}
        allowed(lambda chosen=chosen: function(*right, **chosen), f"{keyword} is {name}")


# --- models -------------------------------------------------------------------------------------------------------


CALLABLE = ("a class", "a function", "a hostile object")


def test_compile() -> None:
    named = {"bounds": None, "dynamic": "auto", "math": "default", "memory_limit": None, "superopt": "off"}
    rest = {"target": "host", "threads": None, "settings": OWN, "shapes": None}
    proto = single_node("Relu", {"x": X})
    for keyword, name in itertools.product((*named, *rest, "listener"), WRONG):
        chosen = {"settings": OWN, keyword: WRONG[name]()}
        if keyword != "listener" or name not in CALLABLE:  # what a listener raises is its own
            allowed(lambda chosen=chosen: compile_model(proto, **chosen), f"{keyword} is {name}")
    for name, value in WRONG.items():
        allowed(lambda value=value: compile_model(value(), settings=OWN), f"the model is {name}")


def test_isolation() -> None:
    for field, name in itertools.product(("memory", "timeout"), WRONG):
        allowed(lambda field=field, name=name: tilewright.Isolation(**{field: WRONG[name]()}), f"{field} is {name}")


def test_compile_with_lists_of_things() -> None:
    """What is not in ``test_compile``, so that all arguments of ``compile`` are in one of the two."""
    proto = single_node("Relu", {"x": X})
    for keyword, name in itertools.product(
        ("backend", "checks", "isolate", "frontends", "operators", "alternatives", "rules"), WRONG
    ):
        if (keyword, name) != ("isolate", "True"):
            chosen = {"settings": OWN, keyword: WRONG[name]()}
            allowed(lambda chosen=chosen: compile_model(proto, **chosen), f"{keyword} is {name}")


@pytest.mark.parametrize(
    ("bounds", "told"),
    [({"n": 4}, "names 'n'; .* are none"), ({"batc": 4}, "names 'batc'; .* are batch$"), ({"batch": 4}, "")],
)
def test_bounds_of_unknown_dimensions(bounds: dict[str, int], told: str) -> None:
    proto = single_node("Relu", {"x": X})
    if "n" not in bounds:
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    if told:
        with pytest.raises(BadInput, match=told):
            compile_model(proto, bounds=bounds, settings=OWN)
    else:
        assert compile_model(proto, bounds=bounds, shapes={"x": (1, 3)}, settings=OWN).inputs[0].shape == (1, 3)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"PK\x03\x04abcdef", "archive"),
        (b"<!DOCTYPE html>", "page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (None, "a directory"),
    ],
)
def test_files_that_are_no_models(content: bytes | None, told: str, tmp_path: Path) -> None:
    place = tmp_path / "m.onnx"
    if content is None:
        place.mkdir()
    else:
        place.write_bytes(content)
    with pytest.raises(BadInput, match=told):
        compile_model(place, settings=OWN)


NODES: Mapping[str, tuple[np.ndarray, ...]] = {
    "Add": (X, X.astype(np.float64)),
    "Where": (X > 0, X, X.astype(np.float64)),
    "Not": (X,),
    "And": (X, X),
    "Clip": (X, np.float64(1)),
    "Mul": (X > 0, X > 0),
    "Gather": (X, X),
    "Sum": (X, X.astype(np.int64)),
    "LayerNormalization": (X, np.ones(3)),
}


@pytest.mark.parametrize("op", NODES)
def test_messages_about_models_are_not_in_te(op: str) -> None:
    proto = single_node(op, {f"x{position}": np.asarray(array) for position, array in enumerate(NODES[op])})
    with pytest.raises(BadInput, match=rf"^node n \({op}\): input `x\d` is .* Cast node$") as caught:
        compile_model(proto, settings=OWN)
    assert "@" not in str(caught.value)
    assert "astype" not in str(caught.value)


def test_load(tmp_path: Path, compiled: tilewright.CompiledModel) -> None:
    settings = Settings(records=None, key_dir=tmp_path / "keys")
    compiled.save(tmp_path / "m.tw", settings=settings)
    check_each(tilewright.load, tmp_path / "m.tw", trust=False, threads=1, settings=settings)


def test_run(compiled: tilewright.CompiledModel) -> None:
    check_each(compiled.run, ["y0"], {"x": X})
    check_each(compiled, X)
    check_each(compiled.executable.run, {"x": X}, threads=1)


def test_what_else_a_model_does(
    tmp_path: Path, compiled: tilewright.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(records=None, key_dir=tmp_path / "keys")
    check_each(compiled.save, "m.tw", signed=True, settings=settings)
    check_each(compiled.explain, ["x"])
    for keyword, name in itertools.product(("seconds", "roofs"), WRONG):
        chosen = {"seconds": 0.0, "roofs": False, keyword: WRONG[name]()}
        if name not in ("True", "a function"):
            allowed(lambda chosen=chosen: compiled.profile(X, **chosen), f"{keyword} is {name}")
    check_each(compiled.compare, X, against="reference", per_layer=False, tolerance=0.1)


def test_versions() -> None:
    proto = single_node("Relu", {"x": X})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model = compile_model(proto, dynamic="specialize", settings=OWN)
    for name, value in WRONG.items():
        if name != "0":
            allowed(lambda value=value: model.version(n=value()), f"n is {name}")
            allowed(lambda value=value: model.save(value()), f"the path is {name}")
            allowed(lambda value=value: model.run(None, {"x": value()}), f"x is {name}")


# --- feeds --------------------------------------------------------------------------------------------------------


class Sparse:
    """As a tensor of another library that has no dense memory: meta, sparse, on a device."""

    def __init__(self, device: object) -> None:
        self.device = device

    def __dlpack__(self, **_: object) -> object:
        raise RuntimeError("cannot be exported")

    def __dlpack_device__(self) -> object:
        return self.device


class Array:
    """Its array is something else."""

    def __init__(self, made: object) -> None:
        self.made = made

    def __array__(self, *_: object, **__: object) -> object:
        return self.made


FEEDS: Mapping[str, Callable[[], object]] = {
    "sparse": lambda: Sparse((1, 0)),
    "on a device": lambda: Sparse((2, 0)),
    "a device that is none": lambda: Sparse(None),
    "no device number": lambda: Sparse(()),
    "an array that is none": lambda: Array(None),
    "an array that is a text": lambda: Array("text"),
    "texts": lambda: np.array([["a", "b", "c"]] * 2),
    "objects": lambda: X.astype(object),
    "times": lambda: np.zeros((2, 3), "M8[s]"),
    "fields": lambda: np.zeros((2, 3), [("a", "f4")]),
    "complex": lambda: X.astype(complex),
    "rank 0": lambda: np.float32(1),
    "rank 32": lambda: np.ones([1] * 32, np.float32),
    "a masked array": lambda: np.ma.masked_array(X, X > 0),
    "ragged": lambda: [[1.0], [1.0, 2.0]],
    "nested for ever": lambda: endless(list),
    "numbers that no float holds": lambda: [[10**400] * 3] * 2,
    "texts in a list": lambda: [["a"] * 3] * 2,
    "hostile numbers": lambda: [[Hostile()] * 3] * 2,
}


@pytest.mark.parametrize("what", FEEDS)
def test_feeds_that_are_wrong(compiled: tilewright.CompiledModel, what: str) -> None:
    with pytest.raises(BadFeed, match="x: f32"):
        compiled.run(None, {"x": FEEDS[what]()})


class Subclass(np.ndarray):
    """An array of another class."""


@pytest.mark.parametrize(
    "feed",
    [
        X.view(Subclass),
        np.asfortranarray(X),
        X.astype(">f4"),
        np.ones((4, 6), np.float32)[::2, ::2],
        np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3),
        X.tolist(),
        [[np.float32(1)] * 3] * 2,
    ],
    ids=["subclass", "columns", "byte-swapped", "strided", "unaligned", "list", "list of scalars"],
)
def test_feeds_that_are_right(compiled: tilewright.CompiledModel, feed: object) -> None:
    (found,) = compiled.run(None, {"x": feed})
    np.testing.assert_array_equal(found, X)


# --- tensor expressions and schedules -----------------------------------------------------------------------------

A = te.placeholder((4, 4), name="A")
K = te.reduce_axis((0, 4), name="k")
S = te.placeholder((4, 4), name="S")
INIT = te.compute((1, 4), lambda _, i: A[0, i], name="init")
UPDATE = te.compute((4, 4), lambda t, i: S[t - 1, i] + A[t, i], name="update")
EXPRESSIONS: Mapping[str, tuple[Callable[..., object], tuple[object, ...]]] = {
    "placeholder": (te.placeholder, ((4,), dtypes.f32, "p")),
    "var": (te.var, ("n",)),
    "reduce_axis": (te.reduce_axis, ((0, 4), "k")),
    "compute": (te.compute, ((4,), lambda i: A[i, i], "c", ())),
    "body": (lambda value: te.compute((4,), lambda i: value), (A[0, 0],)),
    "sum": (lambda value: A[0, 0] + value, (1.0,)),
    "index": (lambda value: A[value, 0], (0,)),
    "const": (te.const, (1, dtypes.f32)),
    "cast": (te.cast, (A[0, 0], dtypes.f64)),
    "checked_index": (te.checked_index, (A[0, 0].astype(dtypes.index), 4, "Embed.ids")),
    "select": (te.select, (True, A[0, 0], A[0, 1])),
    "if_then_else": (te.if_then_else, (True, A[0, 0], A[0, 1])),
    "min_value": (te.min_value, (dtypes.f32,)),
    "max_value": (te.max_value, (dtypes.f32,)),
    "scan": (te.scan, (INIT, UPDATE, S, "scan")),
    "comm_reducer": (te.comm_reducer, (lambda x, y: x + y, lambda dtype: te.const(0, dtype), "r")),
    "argmax": (te.argmax, ((K, A[0, K]), K)),
    "create_schedule": (te.create_schedule, (UPDATE, "main")),
    "lower": (te.lower, (te.create_schedule(INIT),)),
    "format_loops": (te.format_loops, (te.create_schedule(INIT).program,)),
    "extern": (te.extern, ([(4,)], [A], lambda ins, outs: None, [dtypes.f32], "e")),
    "build": (te.build, (te.create_schedule(INIT), "x86_64")),
    "autoschedule": (te.autoschedule, (INIT, "x86_64")),
    "accelerate": (te.accelerate, (te.create_schedule(INIT),)),
    "evaluate": (te.evaluate, (INIT, {A: np.zeros((4, 4), np.float32)}, {})),
    "all": (te.all, (True, A[0, 0] > 0)),
    "clip": (te.clip, (A[0, 0], 0.0, 1.0)),
    "run_on_reference": (te.run_on_reference, (te.create_schedule(INIT), {}, {})),
    "decl_tensor_intrin": (te.decl_tensor_intrin, (INIT, "name")),
    "dot_products": (te.dot_products, (Target.parse("x86_64"),)),
    "tile_product": (
        lambda *given: te.tile_product(*given, rows=16, columns=16, depth=64),
        (Target.parse("x86_64,+amx-int8"), dtypes.u8, dtypes.i8),
    ),
    **{name: (getattr(te, name), (A[0, K], K)) for name in ("sum", "prod", "max", "min")},
    **{name: (getattr(te, name), (A[0, 0],)) for name in ("abs", "ceil", "exp", "floor", "sqrt", "tanh", "round")},
    **{name: (getattr(te, name), (A[0, 0], A[0, 1])) for name in ("power",)},
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_te(name: str) -> None:
    function, right = EXPRESSIONS[name]
    check_each(function, *right)


def test_te_is_complete() -> None:
    """A function of ``te`` is in the table, or is one of a family of which some are."""
    families = {"cos", "erf", "log", "sigmoid", "sin", "trunc", "truncdiv", "truncmod", "argmin", "maximum", "minimum"}
    families |= {"acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "exp2", "expm1", "isinf", "isnan"}
    families |= {"log1p", "rsqrt", "sinh", "tan", "fmod", "isfinite", "any"}
    functions = {name for name in te.__all__ if not inspect.isclass(getattr(te, name))}
    assert functions - families <= EXPRESSIONS.keys()


C = te.compute((8, 8), lambda y, x: te.sum(A[y % 4, K] * A[K, x % 4], axis=K), name="C")
PRIMITIVES: Mapping[str, tuple[object, ...]] = {
    "get_block": ("C",),
    "get_loops": ("C",),
    "split": ("y", (None, 4), ("a", "b")),
    "tile": (("y", "x"), (4, 4), ("a", "b", "c", "d")),
    "fuse": ("y", "x"),
    "reorder": ("x", "y"),
    "serial": ("y",),
    "unroll": ("y",),
    "vectorize": ("x",),
    "parallel": ("y",),
    "bind": ("y", "blockIdx.x"),
    "compute_at": ("C", "y"),
    "reverse_compute_at": ("C", "y"),
    "compute_inline": ("C",),
    "reverse_compute_inline": ("C",),
    "rfactor": ("k", 0),
    "decompose_reduction": ("C", "k"),
    "cache_read": (("C",), "A", te.create_schedule(C).program.params[0].memory),
    "cache_write": ("C", "C", te.create_schedule(C).program.params[0].memory),
    "set_scope": ("A", te.create_schedule(C).program.params[0].memory),
    "prefetch": ("A", 64, 1),
    "transform_layout": ("C", "C", "y, x -> y // 4, x, y % 4"),
    "pad": ("C", (4, 4, 4)),
    "storage_align": ("C", "C", 0, 4, 1),
    "skip_zeros": ("C",),
    "skip_padding": ("C", (1, 1, 1)),
    "double_buffer": ("C",),
    "lower_virtual_thread": ("y",),
    "place_barriers": (),
    "tensorize": ("y", "name"),
    "annotate": ("C", "key", 1),
    "unannotate": ("C", "key"),
    "sample_perfect_tile": ("y", 2, 4, (2, 4)),
    "sample_categorical": ((1, 2), (0.5, 0.5), 1),
}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitives(name: str) -> None:
    program = te.create_schedule(C).program
    check_each(lambda *given: getattr(Schedule(program), name)(*given), *PRIMITIVES[name])


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("split", (K, 4)),
        ("tile", (K, K, 2, 2)),
        ("fuse", (K, K)),
        ("unroll", (K,)),
        ("bind", (K, "blockIdx.x")),
        ("set_scope", ("local",)),
        ("tensorize", (K, "name")),
        ("annotate", ("key", 1)),
        ("decompose_reduction", (K,)),
        ("transform_layout", ("y, x -> y // 4, x, y % 4",)),
        ("pad", ((4, 4, 4),)),
        ("sample_perfect_tile", (K, 2, 4, (2, 2))),
        ("storage_align", (0, 4, 1)),
        ("lower_virtual_thread", (K,)),
    ],
)
def test_stages(name: str, right: tuple[object, ...]) -> None:
    check_each(lambda *given: getattr(te.create_schedule(C)[C], name)(*given), *right)


# --- settings and targets -----------------------------------------------------------------------------------------


def test_settings() -> None:
    for field, name in itertools.product(Settings.__dataclass_fields__, WRONG):
        allowed(lambda field=field, name=name: Settings(**{field: WRONG[name]()}), f"{field} is {name}")
    for value in WRONG.values():
        allowed(lambda value=value: Settings.from_environment(value()), "the environment")


TEXTS = [
    "",
    "0",
    "-1",
    "9" * 5000,
    "1e400",
    "nan",
    "²",
    "٣",
    LONG,
    "\ud800",
    "\x1b[31m",
    "/" + LONG,
    "~/x",
    "a,b",
    "=" * 99,
]


def test_environment_variables() -> None:
    for variable, text in itertools.product(
        ("PRINT", "NUM_THREADS", "CACHE_DIR", "CACHE_BYTES", "MODEL_CACHE_BYTES", "KEY_DIR", "RECORDS", LONG), TEXTS
    ):
        allowed(lambda v=variable, t=text: Settings.from_environment({f"TILEWRIGHT_{v}": t}), f"{variable}={text[:9]}")
    for variable, text in itertools.product(("TILEWRIGHT_NUM_THREADS", "OMP_NUM_THREADS", "XDG_DATA_HOME"), TEXTS):
        allowed(lambda v=variable, t=text: default_threads({v: t}), f"{variable}={text[:9]}")


def test_targets() -> None:
    check_each(Target.parse, "x86_64,znver5")
    check_each(Target.of, Architecture.X86_64, "znver5", ["avx2"])
    check_each(Target.host().restricted, "avx2")
    for text in TEXTS:
        for form in ("{}", "x86_64,{}", "x86_64,cores={}", "x86_64,+{}", "host,{}"):
            allowed(lambda form=form, text=text: Target.parse(form.format(text)), form)
    check_each(dtypes.parse, "f32")


# --- texts --------------------------------------------------------------------------------------------------------


def test_errors_are_short_and_can_be_printed() -> None:
    error = BadInput("a" * 10_000_000)
    assert len(str(error)) <= MOST_CHARACTERS
    assert "characters left out" in str(error)
    assert str(BadInput("half \ud800")) == "half \\ud800"
    assert str(BadInput("Straße")) == "Straße"


def test_a_model_with_long_names() -> None:
    name = "n" * 1_000_000
    for proto in (
        onnx_model([], {name: X}, [name + "y"]),
        single_node(name, {"x": X}),
        onnx_model([], {f"{name}{i}": X for i in range(8)}, ["y"]),
    ):
        with pytest.raises(TilewrightError) as caught:
            compile_model(proto, settings=OWN)
        assert len(str(caught.value)) <= MOST_CHARACTERS
