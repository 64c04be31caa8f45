"""Calibration data: what fits is cut into batches, what does not is refused, with the name and the remedy."""

from pathlib import Path

import numpy as np
import pytest

from tests.frontend.models import Array
from tilewright.base.dtypes import f32, i64
from tilewright.base.errors import BadFeed, ResourceLimit
from tilewright.graph import Value
from tilewright.quantization.samples import checked_samples, read_samples
from tilewright.symbolic.expr import Extent, const

BATCH, LENGTH = Extent("n0", label="batch"), Extent("n1", label="length")
OPEN = (Value("x", f32, (BATCH, const(3))), Value("ids", i64, (BATCH, LENGTH)))
FIXED = (Value("x", f32, (const(2), const(3))),)


def floats(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_samples_along_the_first_dimension() -> None:
    found = checked_samples(OPEN, {"x": floats(6, 3), "ids": np.ones((6, 5), np.int64)})
    assert (found.count, len(found.batches), found.per_batch) == (6, 2, 3)
    assert found.sizes == {BATCH: 3, LENGTH: 5}
    np.testing.assert_array_equal(found.batches[1]["x"], floats(6, 3)[3:])
    assert found.first(1).count == 3
    fixed = checked_samples(FIXED, {"x": floats(8, 3)})
    assert (fixed.count, len(fixed.batches), fixed.sizes) == (8, 4, {})


def test_stacks_of_feeds() -> None:
    found = checked_samples(FIXED, {"x": floats(5, 2, 3)})
    assert (found.count, len(found.batches)) == (5, 5)
    assert found.batches[4]["x"].shape == (2, 3)
    single = checked_samples((Value("t", f32, ()), *FIXED), {"t": floats(5), "x": floats(5, 2, 3)})
    assert (single.batches[4]["t"].shape, single.batches[4]["t"].item()) == ((), 4.0)


NAN = floats(4, 3)
NAN[2, 1] = np.nan
IDS = np.ones((4, 5), np.int64)
BAD: dict[str, tuple[tuple[Value, ...], dict[str, object], str]] = {
    "a wrong name": (OPEN, {"y": floats(4, 3), "ids": IDS}, "no input 'y'; .*inputs are x, ids"),
    "a missing input": (OPEN, {"x": floats(4, 3)}, "input 'ids' is missing"),
    "a wrong type": (OPEN, {"x": floats(4, 3).astype(float), "ids": IDS}, r"convert them by .astype\('float32'\)"),
    "a wrong shape": (OPEN, {"x": floats(4, 2), "ids": IDS}, "after the first dimension"),
    "too few dimensions": (OPEN, {"x": floats(4), "ids": IDS}, "give 2 dimensions"),
    "NaN": (OPEN, {"x": NAN, "ids": IDS}, "input x: sample 2 has NaN or infinity"),
    "other numbers of samples": (OPEN, {"x": floats(3, 3), "ids": IDS}, r"\(x: 3, ids: 4\)"),
    "no samples": (OPEN, {"x": floats(0, 3), "ids": IDS[:0]}, "no samples"),
    "no elements": (OPEN, {"x": floats(4, 3), "ids": IDS[:, :0]}, "a dimension of extent 0"),
    "two forms": (OPEN, {"x": floats(4, 2, 3), "ids": IDS}, r"others not \(ids\)"),
    "no multiple of the batch": (FIXED, {"x": floats(3, 3)}, "batches of 2; give a multiple"),
    "no array": (FIXED, {"x": [[1.0]]}, "is no NumPy array"),
    "no inputs": ((), {}, "no inputs"),
}


@pytest.mark.parametrize("name", BAD)
def test_data_that_do_not_fit(name: str) -> None:
    inputs, data, told = BAD[name]
    with pytest.raises(BadFeed, match=told):
        checked_samples(inputs, data)


def test_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", x=floats(2, 3))
    np.testing.assert_array_equal(read_samples(tmp_path / "good.npz")["x"], floats(2, 3))
    np.save(tmp_path / "one.npy", floats(2, 3))
    with pytest.raises(BadFeed, match=r"without a name; save all inputs by numpy.savez"):
        read_samples(tmp_path / "one.npy")
    np.savez(tmp_path / "objects.npz", x=np.array([None], object))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "good.npz").read_bytes()[:100])
    (tmp_path / "empty.npz").touch()
    for name in ("objects.npz", "cut.npz", "empty.npz", "missing.npz"):
        with pytest.raises(BadFeed, match=r"can't be read as an \.npz file"):
            read_samples(tmp_path / name)


def test_a_small_file_with_large_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "zeros.npz", x=np.zeros((1000, 1000), np.float32))
    assert (tmp_path / "zeros.npz").stat().st_size < 10_000
    monkeypatch.setattr("tilewright.base.memory.available", lambda: 100_000)
    with pytest.raises(ResourceLimit, match=r"array x\.npy takes 4000128 bytes, .*give fewer samples"):
        read_samples(tmp_path / "zeros.npz")
