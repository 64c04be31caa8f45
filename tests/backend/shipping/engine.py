"""Modules of WebAssembly, run by wasmtime through the functions that they export."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tilewright.base.arrays import Array

_PAGE, _ALIGNMENT = 65536, 64


@dataclass
class _Place:
    """A tensor in the memory of a module."""

    dtype: str
    shape: list[int]
    bytes: int
    at: int


def described(module: bytes) -> dict[str, list[dict[str, object]]]:
    """The custom section ``tilewright``, by a search of our own."""
    at = module.rindex(b"tilewright{")
    return json.loads(module[at + len("tilewright") :])


def ran(module: bytes, inputs: Sequence[Array], open_: Sequence[int] = (), runs: int = 1) -> list[Array]:
    """The outputs, of the last of several runs. ``open_``: the sizes that the module leaves open."""
    wasmtime = pytest.importorskip("wasmtime")
    config = wasmtime.Config()
    config.wasm_memory64 = True
    store = wasmtime.Store(wasmtime.Engine(config))
    exports = wasmtime.Instance(store, wasmtime.Module(store.engine, module), []).exports(store)
    facts, memory = described(module), exports["memory"]
    pointer = {32: np.uint32, 64: np.uint64}[facts["bits"]]
    width = facts["bits"] // 8

    def reserve(end: int) -> None:
        pages = -(-(end - memory.data_len(store)) // _PAGE)
        if pages > 0:
            memory.grow(store, pages)

    tensors = [*facts["inputs"], *facts["outputs"]]
    count = sum(1 + len(one["shape"]) for one in tensors) + 1
    heap, list_at = facts["heap"], facts["heap"] + 8 * len(open_)
    table_at = list_at + 8 * count
    reserve(table_at)
    memory.write(store, np.array(open_, np.int64).tobytes(), heap)
    assert exports["sizes"](store, heap, 1, list_at) == 0
    sizes = iter(np.frombuffer(memory.read(store, list_at, table_at), np.int64).tolist())
    places, end = list[_Place](), _aligned(table_at + width * len(tensors))
    for one in tensors:
        shape = [next(sizes) for _ in one["shape"]]
        places.append(_Place(one["dtype"], shape, next(sizes), end))
        end = _aligned(end + places[-1].bytes)
    reserve(end + next(sizes))
    memory.write(store, np.array([place.at for place in places], pointer).tobytes(), table_at)
    results = places[len(inputs) :]
    for _ in range(runs):
        for place, given in zip(places, inputs, strict=False):
            assert given.nbytes == place.bytes
            memory.write(store, given.tobytes(), place.at)
        assert exports["run"](store, heap, table_at, table_at + width * len(inputs), end, 1, 0) == 0
    return [
        np.frombuffer(memory.read(store, one.at, one.at + one.bytes), one.dtype).reshape(one.shape) for one in results
    ]


def _aligned(at: int) -> int:
    return -(-at // _ALIGNMENT) * _ALIGNMENT
