"""Arrays as bytes, with a description in JSON: nothing is pickled."""

from collections.abc import Mapping
from hashlib import sha256

import numpy as np

from tilewright.base import dtypes, fields
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed


def described(name: str, array: Array) -> dict[str, object]:
    """Name, dtype and shape. Raises ``UnsupportedDType`` for elements that Tilewright does not have."""
    return {"name": name, "dtype": str(dtypes.from_numpy(array.dtype)), "shape": list(array.shape)}


def content(array: Array) -> bytes:
    """Its elements, in C order, in this machine's byte order (all devices are little endian)."""
    return np.ascontiguousarray(array).tobytes()


def hashed(name: str, array: Array) -> tuple[dict[str, object], str, bytes]:
    """``described`` with the hash of its ``content``; that hash; the content."""
    data = content(array)
    key = sha256(data).hexdigest()
    return {**described(name, array), "hash": key}, key, data


def array_of(description: object, data: bytes) -> tuple[str, Array]:
    """The name and the array. Raises ``BadFeed`` if they do not fit, ``KeyError``, ``TypeError`` if malformed."""
    found: Mapping[str, object] = fields.mapping(description)
    shape = [fields.whole(extent) for extent in fields.items(found["shape"])]
    name, dtype = fields.text(found["name"]), dtypes.parse(fields.text(found["dtype"])).numpy
    try:
        return name, np.frombuffer(data, dtype).reshape(shape).copy()
    except ValueError as error:
        raise BadFeed(f"{name} is not {dtype} of shape {shape}: {error}") from error
