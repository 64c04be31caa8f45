"""Zips with a model and its weights, as clients send them: what is one, and what is refused, and where."""

import io
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import tilewright
from tests.frontend.models import single_node
from tests.service.support import Here, X
from tilewright.base.errors import BadInput, InvalidModel, TilewrightError, UntrustedData
from tilewright.service import bundle
from tilewright.service.limits import Limits, TooLarge

MOST = 1 << 20


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return written.getvalue()


def with_mode(mode: int, name: str = "weights") -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("m.onnx", b"m")
        member = zipfile.ZipInfo(name)
        member.external_attr = (mode | 0o644) << 16
        archive.writestr(member, b"/etc/passwd")
    return written.getvalue()


def with_two_of_one_name() -> bytes:
    return zipped({"m.onnx": b"m", "w1": b"a", "w2": b"b"}).replace(b"w2", b"w1")


def encrypted() -> bytes:
    """The flag in the directory, which comes first there."""
    content = bytearray(zipped({"m.onnx": b"m"}))
    at = content.index(b"PK\x01\x02") + 8
    content[at] |= 1
    return bytes(content)


def with_claimed_size(size: int) -> bytes:
    """Deflated zeros that are said to be ``size`` bytes."""
    content = bytearray(zipped({"m.onnx": b"m", "w": bytes(100_000)}))
    at = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 1) + 24
    content[at : at + 4] = struct.pack("<L", size)
    return bytes(content)


def with_directory(size: int) -> bytes:
    content = bytearray(zipped({"m.onnx": b"m"}))
    content[-10:-6] = struct.pack("<L", size)
    return bytes(content)


REFUSED: dict[str, tuple[Callable[[], bytes], type[TilewrightError], str]] = {
    "above": (lambda: zipped({"m.onnx": b"m", "../w": b""}), UntrustedData, r"'\.\./w' in the zip"),
    "above, within": (lambda: zipped({"m.onnx": b"m", "a/../../w": b""}), UntrustedData, "below the model's folder"),
    "absolute": (lambda: zipped({"m.onnx": b"m", "/etc/w": b""}), UntrustedData, "'/etc/w'"),
    "of Windows": (lambda: zipped({"m.onnx": b"m", "C:w": b""}), UntrustedData, "'C:w'"),
    "a dot": (lambda: zipped({"m.onnx": b"m", "a/./w": b""}), UntrustedData, "'a/./w'"),
    "a new line": (lambda: zipped({"m.onnx": b"m", "a\nb": b""}), UntrustedData, "below the model's folder"),
    "long": (lambda: zipped({"m.onnx": b"m", "x" * 300: b""}), TooLarge, "too long"),
    "deep": (lambda: zipped({"m.onnx": b"m", "a/" * 20 + "w": b""}), TooLarge, "too long"),
    "a symbolic link": (lambda: with_mode(stat.S_IFLNK), UntrustedData, "'weights' in the zip is no regular file"),
    "a pipe": (lambda: with_mode(stat.S_IFIFO), UntrustedData, "no regular file"),
    "a device": (lambda: with_mode(stat.S_IFCHR), UntrustedData, "no regular file"),
    "twice": (with_two_of_one_name, InvalidModel, "two files of one name"),
    "a file and a folder": (
        lambda: zipped({"m.onnx": b"m", "a": b"", "a/b": b""}),
        InvalidModel,
        "a file and a folder",
    ),
    "no model": (lambda: zipped({"w": b""}), BadInput, "0 files NAME.onnx"),
    "two models": (lambda: zipped({"a.onnx": b"", "b.onnx": b""}), BadInput, "2 files NAME.onnx"),
    "a model below": (lambda: zipped({"a/b.onnx": b""}), BadInput, "0 files NAME.onnx"),
    "too much": (
        lambda: zipped({"m.onnx": bytes(MOST + 1)}, zipfile.ZIP_STORED),
        TooLarge,
        "which is more than 1048576",
    ),
    "too many": (lambda: zipped({"m.onnx": b"", **{str(i): b"" for i in range(5000)}}), TooLarge, "may have 4096"),
    "encrypted": (encrypted, InvalidModel, "is encrypted"),
    "another method": (lambda: zipped({"m.onnx": b"m"}, zipfile.ZIP_LZMA), InvalidModel, "neither stored nor deflated"),
    "cut off": (lambda: zipped({"m.onnx": b"m"})[:-1], InvalidModel, "cut off"),
    "nothing but a head": (lambda: bundle.MAGIC, InvalidModel, "cut off"),
    "a huge directory": (lambda: with_directory(1 << 30), TooLarge, "directory of the zip has 1073741824 bytes"),
    "a directory elsewhere": (lambda: with_directory(10), InvalidModel, "damaged"),
    "another file behind": (lambda: zipped({"m.onnx": b"m"}) + b"x", InvalidModel, "more after its end"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    made, kind, text = REFUSED[name]
    path = tmp_path / "x.zip"
    path.write_bytes(made())
    with pytest.raises(kind, match=text):
        bundle.check(path, MOST)
    folder = tmp_path / "unpacked"
    folder.mkdir()
    with pytest.raises(kind, match=text):
        bundle.unpack(path, folder, MOST)
    assert not list(folder.iterdir())


def test_a_bomb_is_refused_by_its_ratio_and_what_lies_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(zipped({"m.onnx": b"m", "w": bytes(40 << 20)}))
    with pytest.raises(TooLarge, match="more than 200 times its own"):
        bundle.check(path, 1 << 40)
    path.write_bytes(with_claimed_size(100))
    bundle.check(path, MOST)
    (tmp_path / "u").mkdir()
    with pytest.raises(InvalidModel, match="'w' in the zip is damaged"):
        bundle.unpack(path, tmp_path / "u", MOST)
    assert (tmp_path / "u" / "w").stat().st_size <= 100


def with_weights(folder: str) -> dict[str, bytes]:
    """``x`` plus weights in another file."""
    proto = single_node("Add", {"x": X}, {"c": X})
    weights = proto.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=f"{folder}weights.bin")
    return {"any name.onnx": proto.SerializeToString(), f"{folder}weights.bin": (X * 3).tobytes()}


def test_a_model_with_weights_in_other_files_is_compiled(tmp_path: Path) -> None:
    with Here(tmp_path) as here:
        job = here.client.post("/v1/jobs?threads=1", content=zipped(with_weights("w/"))).json()["id"]
        assert here.worker().step()
        found = here.client.get(f"/v1/jobs/{job}").json()
        assert found["error"] is None
        loaded = tilewright.load(here.client.get(f"/v1/artifacts/{found['artifact']}").content, trust=True)
        np.testing.assert_array_equal(loaded.run(None, {"x": X})[0], X * 4)


def test_the_service_refuses_a_zip_before_it_is_a_job(tmp_path: Path) -> None:
    with Here(tmp_path, limits=Limits(unpacked_bytes=1000)) as here:
        for content, status, kind in (
            (zipped({"m.onnx": b"m", "../w": b""}), 400, "UntrustedData"),
            (zipped({"m.onnx": bytes(1001)}), 413, "TooLarge"),
            (b"PK\x03\x04" + bytes(1000), 400, "InvalidModel"),
        ):
            answer = here.client.post("/v1/jobs", content=content)
            assert (answer.status_code, answer.json()["error"]["kind"]) == (status, kind)
        assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
