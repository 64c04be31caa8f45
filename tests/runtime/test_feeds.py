"""What is taken as an input, what is refused, and what the message says."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from tests.runtime.images import ADD, SCALE, image_of
from tilewright.base import dtypes as dt
from tilewright.base.errors import BadFeed
from tilewright.runtime.executable import Executable
from tilewright.runtime.feeds import Feed, new_output
from tilewright.runtime.manifest import Manifest, Symbol, TensorSpec
from tilewright.runtime.memory import address_of
from tilewright.runtime.native import NativeExecutable

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def feed(dtype: dt.DType = dt.f32, shape: tuple[int | str, ...] = (2, 3)) -> Feed:
    return Feed(TensorSpec("x", dtype, shape))


class Dlpack:
    """Something that offers DLPack only."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self.array = array
        self.device = device

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class ArrayLike:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.array


def test_no_copy_where_the_layout_is_right() -> None:
    readonly = X.copy()
    readonly.flags.writeable = False
    for value in (X, readonly, X.view(np.memmap), Dlpack(X), ArrayLike(X)):
        taken = feed().accept(value)
        assert type(taken) is np.ndarray
        if value is readonly:
            assert address_of(taken) == readonly.ctypes.data
        else:
            assert np.shares_memory(taken, X)


@pytest.mark.parametrize(
    "value",
    [
        np.asfortranarray(X),
        np.stack([X, X])[::2][0],
        np.repeat(X, 2, axis=1)[:, ::2],
        X[::-1][::-1],
        X.astype(">f4"),
        np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3),
        np.broadcast_to(np.float32(1), (2, 3)),
        X.tolist(),
        [[0, 1, 2], [3, 4, 5]],
    ],
    ids=["fortran", "view", "strided", "reversed twice", "big endian", "unaligned", "broadcast", "list", "ints"],
)
def test_other_layouts_are_copied_right(value: object) -> None:
    taken = feed().accept(value)
    assert taken.flags.c_contiguous
    assert taken.flags.aligned
    assert taken.dtype == np.dtype(np.float32)
    np.testing.assert_array_equal(taken, np.asarray(value, dtype=np.float32))


@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_every_dtype(dtype: dt.DType) -> None:
    value = np.zeros((2, 3), dtype.numpy)
    assert feed(dtype).accept(value) is value
    assert address_of(value) == value.ctypes.data
    result, address = new_output((2, 3), dtype.numpy)
    assert address % 64 == 0
    assert result.ctypes.data == address
    assert feed(dtype).accept([[1, 0, 1], [0, 0, 1]] if dtype != dt.boolean else [[True] * 3] * 2).dtype == dtype.numpy


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
def test_scalars_and_empty_arrays(shape: tuple[int, ...]) -> None:
    value = np.zeros(shape, np.float32)
    assert feed(shape=shape).accept(value).shape == shape
    assert new_output(shape, np.dtype(np.float32))[0].shape == shape
    if shape == ():
        assert feed(shape=shape).accept(3).item() == 3.0
        assert feed(shape=shape).accept(np.float32(3)).item() == 3.0


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (X.astype(np.float64), ["x: f32[2, 3]", "float64[2, 3]", "feeds['x'].astype('float32')"]),
        (X.astype(np.int32), ["int32[2, 3]", "astype"]),
        (np.zeros((3, 2), np.float32), ["float32[3, 2]", "feeds['x'].reshape(2, 3)"]),
        (np.zeros((2, 4), np.float32), ["float32[2, 4]", "give an array of that shape"]),
        (np.zeros(6, np.float32), ["reshape(2, 3)"]),
        (np.zeros((2, 3), np.complex64), ["complex64"]),
        (np.array([["a"] * 3] * 2), ["<U1"]),
        (np.array([[None] * 3] * 2), ["object"]),
        (np.ma.masked_array(X, X > 2), ["masked", ".filled"]),
        (None, ["builtins.NoneType", "NumPy array"]),
        ("abc", ["builtins.str", "NumPy array"]),
        ([[1, 2], [3]], ["builtins.list"]),
        ([[1j] * 3] * 2, ["complex128"]),
        (Dlpack(X, device=2), ["Dlpack", "host memory", ".cpu()"]),
        (np.float32(1), ["float32[]"]),
    ],
)
def test_refused(value: object, parts: list[str]) -> None:
    with pytest.raises(BadFeed) as caught:
        feed().accept(value)
    for part in ["x: f32[2, 3]", *parts]:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "value"), [(dt.i8, [300]), (dt.u8, [-1]), (dt.i32, [1.5]), (dt.boolean, [2]), (dt.u8, [1 << 70])]
)
def test_numbers_that_do_not_fit(dtype: dt.DType, value: list[float]) -> None:
    with pytest.raises(BadFeed, match="x: "):
        feed(dtype, (1,)).accept(value)


def test_numbers_that_fit() -> None:
    assert feed(dt.u8, (1,)).accept([255]).item() == 255
    assert feed(dt.bf16, (1,)).accept([1.5]) == ml_dtypes.bfloat16(1.5)
    assert feed(dt.i64, (0,)).accept([]).shape == (0,)
    assert feed(dt.f64, ()).accept(True).item() == 1.0


def adder() -> Executable:
    specs = [TensorSpec(name, dt.f32, (2, 3)) for name in ("left", "right", "sum")]
    return NativeExecutable(Manifest(tuple(specs[:2]), (specs[2],)), image_of(ADD.format(n=6)), threads=1)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"left": X}, "input 'right' is missing; the inputs are left, right"),
        ({}, "input 'left', 'right' is missing"),
        ({"left": X, "rigth": X}, "no input 'rigth'; did you mean 'right'"),
        ({"left": X, "right": X, "extra": X}, "no input 'extra'"),
    ],
)
def test_names(feeds: Mapping[str, object], message: str) -> None:
    with pytest.raises(BadFeed, match=message.replace("?", r"\?")):
        adder().run(feeds)


def scaler(symbols: tuple[Symbol, ...], inputs: tuple[TensorSpec, ...]) -> Executable:
    manifest = Manifest(
        inputs, (TensorSpec("y", dt.f32, ("n",)),), (TensorSpec("c", dt.f32, ()),), symbols, workspace=4096, scratch=64
    )
    return NativeExecutable(manifest, image_of(SCALE), [np.array(2, np.float32)], threads=1)


def test_symbols() -> None:
    model = scaler((Symbol("n", 1, 10),), (TensorSpec("x", dt.f32, ("n",)),))
    for n in (1, 3, 10):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(model.run({"x": x})[0], 2 * x)
    with pytest.raises(BadFeed, match="extent 'n' is 11, but the model was compiled for 1 to 10"):
        model.run({"x": np.zeros(11, np.float32)})
    with pytest.raises(BadFeed, match="extent 'n' is 0"):
        model.run({"x": np.zeros(0, np.float32)})
    with pytest.raises(BadFeed, match=r"x: f32\[n\] was given float32\[2, 2\]"):
        model.run({"x": np.zeros((2, 2), np.float32)})


def test_feeds_must_agree_on_symbols() -> None:
    specs = (TensorSpec("x", dt.f32, ("n",)), TensorSpec("z", dt.f32, ("n",)))
    model = scaler((Symbol("n"),), specs)
    with pytest.raises(BadFeed, match=r"z: f32\[n\]: extent 'n' is 3 here and 2 in another input"):
        model.run({"x": np.zeros(2, np.float32), "z": np.zeros(3, np.float32)})


class Recording(Dlpack):
    """Like a tensor of PyTorch that requires a gradient: only what is detached from its history is exported."""

    requires_grad = True

    def __dlpack__(self, **options: object) -> object:
        raise BufferError("can't export tensors that require gradient")

    def detach(self) -> Dlpack:
        return Dlpack(self.array)


def test_what_records_its_history_is_read_without_it() -> None:
    for taken in (feed().accept(Recording(X)), feed().in_place(Recording(X))):
        assert np.shares_memory(taken, X)


@pytest.mark.slow
def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    model, x = adder(), torch.arange(6, dtype=torch.float32).reshape(2, 3).requires_grad_()
    (z,) = model.run({"left": x, "right": x.detach()})
    np.testing.assert_array_equal(z, X + X)
    bound = model.bind({"left": x, "right": X})
    with torch.no_grad():
        x += 1
    bound.run(None)
    np.testing.assert_array_equal(bound.outputs[0], X + 1 + X)
    with pytest.raises(BadFeed, match="not C-contiguous"):
        model.bind({"left": x.T.contiguous().T, "right": X})
