"""Decoders of one model file: Tilewright, ONNX Runtime and OpenVINO, each as it wants to be used for speed.

Caches of keys and values are allocated once. Where results are written to arrays of the caller (Tilewright, ONNX
Runtime with bound memory), two sets of them take turns. OpenVINO keeps caches as states of the model, in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .model import HEAD, Config

Floats = NDArray[np.float32]
Caches = Mapping[str, Floats]
"""Keys and values `[batch, kv heads, past, 64]` by the ends of their names."""


class Decoder(Protocol):
    name: str

    def start(self, caches: Caches) -> None:
        """Begin with these keys and values, of at least 0 tokens."""
        ...

    def step(self, words: NDArray[np.int64]) -> Floats:
        """The logits `[batch, sequence, words]` of the next words `[batch, sequence]`. They are valid until the next
        step."""
        ...

    def caches(self) -> Caches:
        """The keys and values so far, if it shows them."""
        ...


@dataclass(slots=True)
class Rooms:
    """Two sets of arrays for caches that grow: one is read while the other one is written."""

    config: Config
    batch: int
    most: int
    """Tokens that there is room for."""
    past: int = 0
    _front: dict[str, Floats] = field(init=False)
    _back: dict[str, Floats] = field(init=False)

    def __post_init__(self) -> None:
        size = self.batch * self.config.kv_heads * self.most * HEAD
        self._front, self._back = ({name: np.zeros(size, np.float32) for name in self.config.caches()} for _ in "12")

    def start(self, caches: Caches) -> None:
        self.past = next(iter(caches.values())).shape[2]
        for name, array in caches.items():
            self._front[name][: array.size] = array.reshape(-1)

    def read(self) -> dict[str, Floats]:
        return {name: self._shown(array, self.past) for name, array in self._front.items()}

    def written(self, sequence: int) -> dict[str, Floats]:
        return {name: self._shown(array, self.past + sequence) for name, array in self._back.items()}

    def advance(self, sequence: int) -> None:
        self.past += sequence
        self._front, self._back = self._back, self._front

    def _shown(self, flat: Floats, tokens: int) -> Floats:
        shape = (self.batch, self.config.kv_heads, tokens, HEAD)
        return flat[: int(np.prod(shape))].reshape(shape)


def feeds(words: NDArray[np.int64], past: int) -> dict[str, NDArray[np.int64]]:
    """The other inputs for the next words."""
    batch, sequence = words.shape
    positions = np.broadcast_to(np.arange(past, past + sequence), words.shape)
    mask = np.ones((batch, past + sequence), np.int64)
    given = {"input_ids": words, "attention_mask": mask, "position_ids": positions}
    return {name: np.ascontiguousarray(array) for name, array in given.items()}


class Ours:
    """Tilewright, into preallocated outputs."""

    def __init__(self, path: Path, rooms: Rooms, threads: int, precision: str = "fp32") -> None:
        import tilewright  # each decoder loads one library only

        self.name = "tilewright"
        self.model = tilewright.compile(path, threads=threads, precision=precision, dynamic="symbolic")
        self._rooms = rooms

    def start(self, caches: Caches) -> None:
        self._rooms.start(caches)

    def inputs(self, words: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
        """All inputs of the next step."""
        past = {f"past_key_values.{name}": array for name, array in self._rooms.read().items()}
        return {**feeds(words, self._rooms.past), **past}

    def step(self, words: NDArray[np.int64]) -> Floats:
        sequence = words.shape[1]
        out = {f"present.{name}": array for name, array in self._rooms.written(sequence).items()}
        logits = self.model.executable.run(self.inputs(words), out)[0]
        self._rooms.advance(sequence)
        return logits

    def caches(self) -> Caches:
        return self._rooms.read()


class OnnxRuntime:
    """ONNX Runtime with bound inputs and outputs."""

    def __init__(self, path: Path, rooms: Rooms, threads: int) -> None:
        import onnxruntime

        self.name = "onnxruntime"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._rooms = rooms

    def start(self, caches: Caches) -> None:
        self._rooms.start(caches)

    def step(self, words: NDArray[np.int64]) -> Floats:
        sequence, rooms = words.shape[1], self._rooms
        past = {f"past_key_values.{name}": array for name, array in rooms.read().items()}
        logits = np.empty((*words.shape, rooms.config.words), np.float32)
        outputs = {"logits": logits, **{f"present.{name}": a for name, a in rooms.written(sequence).items()}}
        binding = self._session.io_binding()
        for name, array in {**feeds(words, rooms.past), **past}.items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for name, array in outputs.items():
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._session.run_with_iobinding(binding)
        rooms.advance(sequence)
        return logits

    def caches(self) -> Caches:
        return self._rooms.read()


class OpenVino:
    """OpenVINO for latency, with caches as states of the model."""

    def __init__(self, path: Path, config: Config, threads: int, precision: str = "f32") -> None:
        import openvino
        from openvino._offline_transformations import apply_make_stateful_transformation

        self.name = "openvino"
        core = openvino.Core()
        model = core.read_model(path)
        pairs = {f"past_key_values.{name}": f"present.{name}" for name in config.caches()}
        apply_make_stateful_transformation(model, pairs)
        kind = getattr(openvino.Type, precision)
        options = {"INFERENCE_PRECISION_HINT": kind, "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
        options["KV_CACHE_PRECISION"] = kind
        compiled = core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", **options})
        self._tensor = openvino.Tensor
        self._request = compiled.create_infer_request()
        self._names = {f"past_key_values.{name}present.{name}": name for name in config.caches()}
        self._past = 0

    def start(self, caches: Caches) -> None:
        self._past = next(iter(caches.values())).shape[2]
        self._request.reset_state()
        for state in self._request.query_state():
            state.state = self._tensor(np.ascontiguousarray(caches[self._names[state.name]]))

    def step(self, words: NDArray[np.int64]) -> Floats:
        self._request.infer(feeds(words, self._past), share_inputs=True)
        self._past += words.shape[1]
        return self._request.get_output_tensor(0).data

    def caches(self) -> Caches:
        return {}  # states come in an order of elements of its own
