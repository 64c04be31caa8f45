"""Zips with a model and its weights in other files: examined before anything is unpacked.

    network.onnx          exactly one model, in the top folder
    weights.bin, w/a, ..  what its tensors name

Only regular files, stored or deflated, with plain relative names. The directory of a zip is bounded before it is read,
its files by the sizes that it declares; ``zipfile`` unpacks no more than these, and compares the checksum.
"""

import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from tilewright.base.errors import BadInput, InvalidModel, UntrustedData
from tilewright.base.names import shown
from tilewright.service.limits import TooLarge

MAGIC: Final = b"PK\x03\x04"
"""No model of ONNX begins so: it would be a field that there is not."""
_MOST_FILES: Final = 4096
_MOST_DIRECTORY: Final = 1 << 20
_MOST_DEPTH: Final = 16
_MOST_RATIO: Final = 200
_ALWAYS: Final = 16 << 20
"""Bytes that may be unpacked whatever the ratio: weights of zeros are no bomb."""
_PIECE: Final = 1 << 20
_LONGEST: Final = 512
_ENCRYPTED: Final = 1
_END: Final = struct.Struct("<4s4H2LH")
_LOCATOR_BYTES: Final = 20
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def is_bundle(path: Path) -> bool:
    """Whether the file is a zip, by its first bytes. Raises ``OSError``."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def check(path: Path, most: int) -> None:
    """Examine the zip, which may unpack to ``most`` bytes.

    Raises ``InvalidModel``, ``UntrustedData`` or ``TooLarge``, which name the file in it, and ``OSError``.
    """
    with path.open("rb") as file:
        _members(file, most)


def unpack(path: Path, folder: Path, most: int) -> Path:
    """Unpack the zip into ``folder``, and return the path of the model. Raises as ``check``."""
    with path.open("rb") as file:
        archive, members = _members(file, most)
        for member in members:
            target = folder / member.filename
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, target.open("xb") as written:
                    shutil.copyfileobj(source, written, _PIECE)
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeError) as error:
                raise InvalidModel(f"{shown(member.filename)} in the zip is damaged: {error}") from error
        return folder / _model(members).filename


def _members(file: BinaryIO, most: int) -> tuple[zipfile.ZipFile, list[zipfile.ZipInfo]]:
    """The files of a zip that is well-formed and small enough."""
    _check_directory(file)
    try:
        archive = zipfile.ZipFile(file)
        members = [member for member in archive.infolist() if not member.is_dir()]
    except (zipfile.BadZipFile, NotImplementedError, UnicodeError, ValueError, struct.error) as error:
        raise InvalidModel(f"the zip is damaged: {error}") from error
    if len(members) > _MOST_FILES:
        raise TooLarge(f"the zip has {len(members)} files, and may have {_MOST_FILES}")
    for member in members:
        _check_member(member)
    _check_names(members)
    size, packed = sum(member.file_size for member in members), file.seek(0, 2)
    if size > most or size > max(_ALWAYS, _MOST_RATIO * packed):
        raise TooLarge(
            f"the zip's files have {size} bytes, which is more than {most}, or more than {_MOST_RATIO} times its own"
        )
    _model(members)
    return archive, members


def _check_directory(file: BinaryIO) -> None:
    """Bound the zip's directory before it is read: its entries take hundreds of bytes of memory each."""
    size = file.seek(0, 2)
    tail = min(size, _END.size + _LOCATOR_BYTES)
    file.seek(size - tail)
    end = file.read(tail)
    if len(end) < _END.size or end[-_END.size :][:4] != b"PK\x05\x06" or end[-2:] != b"\0\0":
        raise InvalidModel("the zip is cut off, or has a comment or more after its end: make it without")
    if end[:4] == b"PK\x06\x07":
        raise TooLarge("the zip is one for more than 4 GiB (zip64), which is refused")
    directory = int(_END.unpack(end[-_END.size :])[5])
    if directory > _MOST_DIRECTORY:
        raise TooLarge(f"the directory of the zip has {directory} bytes, and may have {_MOST_DIRECTORY}")


def _check_member(member: zipfile.ZipInfo) -> None:
    name, kind = member.filename, stat.S_IFMT(member.external_attr >> 16)
    parts = PurePosixPath(name).parts
    if kind not in (0, stat.S_IFREG):
        raise UntrustedData(f"{shown(name)} in the zip is no regular file")
    is_odd = not name.isprintable() or any(mark in name for mark in ("\\", ":", "//"))
    if not parts or name.startswith("/") or ".." in parts or "." in name.split("/") or is_odd:
        raise UntrustedData(f"{shown(name)} in the zip: give names of files below the model's folder")
    if len(parts) > _MOST_DEPTH or len(name.encode()) > _LONGEST or any(len(part.encode()) > 255 for part in parts):
        raise TooLarge(f"{shown(name)} in the zip: the name is too long")
    if member.flag_bits & _ENCRYPTED or member.compress_type not in _METHODS:
        raise InvalidModel(f"{shown(name)} in the zip is encrypted, or neither stored nor deflated")


def _check_names(members: Sequence[zipfile.ZipInfo]) -> None:
    names = [member.filename for member in members]
    known = set(names)
    if len(known) < len(names):
        raise InvalidModel("the zip has two files of one name")
    for name in names:
        above = [str(parent) for parent in PurePosixPath(name).parents if str(parent) in known]
        if above:
            raise InvalidModel(f"{shown(above[0])} in the zip is a file and a folder")


def _model(members: Sequence[zipfile.ZipInfo]) -> zipfile.ZipInfo:
    found = [member for member in members if "/" not in member.filename and member.filename.endswith(".onnx")]
    if len(found) != 1:
        raise BadInput(f"the zip has {len(found)} files NAME.onnx in its top folder: give exactly one")
    return found[0]
