"""BERT and GPT-2 with random weights, exported, then optimized and quantized by ONNX Runtime."""

import importlib.util
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import tilewright

# What torch and transformers warn of is theirs.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

HEADS, HIDDEN, WORDS, LONGEST = 4, 64, 100, 64


@pytest.fixture
def without_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers does not load beside a torchvision that does not fit torch, and does not need one here."""
    find = importlib.util.find_spec

    def found(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name.partition(".")[0] == "torchvision" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", found)


def feeds_of(kind: str, batch: int, length: int) -> dict[str, NDArray[np.int64]]:
    random = np.random.default_rng(length)
    ids = random.integers(0, WORDS, (batch, length))
    mask = (np.arange(length) < length - 3 * np.arange(batch)[:, None]).astype(np.int64)
    third = np.broadcast_to(np.arange(length), (batch, length)) if kind == "gpt2" else ids % 2
    return {"input_ids": ids, "attention_mask": mask, "third": np.ascontiguousarray(third)}


def exported(kind: str, path: Path) -> None:
    """The model of transformers, of any batch and length."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {"vocab_size": WORDS, "attn_implementation": "eager"}
    if kind == "bert":
        sizes = {"hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 128}
        config = transformers.BertConfig(**sizes, **small, max_position_embeddings=LONGEST)
        inner, third, result = transformers.BertModel(config, add_pooling_layer=False), "token_type_ids", 0
    else:
        config = transformers.GPT2Config(n_embd=HIDDEN, n_layer=2, n_head=HEADS, n_positions=LONGEST, **small)
        config.use_cache = False
        inner, third, result = transformers.GPT2LMHeadModel(config), "position_ids", 0

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner.eval()

        def forward(self, ids: object, mask: object, other: object) -> object:
            return self.inner(input_ids=ids, attention_mask=mask, **{third: other}, return_dict=False)[result]

    arguments = tuple(torch.from_numpy(array) for array in feeds_of(kind, 2, 16).values())
    names = ["input_ids", "attention_mask", "third"]
    axes = {name: {0: "batch", 1: "sequence"} for name in [*names, "y"]}
    options = {"opset_version": 17, "dynamo": False, "dynamic_axes": axes, "input_names": names, "output_names": ["y"]}
    torch.onnx.export(Wrapped(), arguments, str(path), **options)


def versions(kind: str, folder: Path) -> Mapping[str, Path]:
    """The exported model; optimized, quantized, both; and each after ONNX Runtime's own optimizations."""
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
    quantization = pytest.importorskip("onnxruntime.quantization")
    paths = {name: folder / f"{name}.onnx" for name in ("plain", "optimized", "quantized", "both")}
    exported(kind, paths["plain"])
    given = {"model_type": kind, "num_heads": HEADS, "hidden_size": HIDDEN, "opt_level": 0}
    optimizer.optimize_model(str(paths["plain"]), **given).save_model_to_file(str(paths["optimized"]))
    types = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    for source, made in (("plain", "quantized"), ("optimized", "both")):
        quantization.quantize_dynamic(str(paths[source]), str(paths[made]), extra_options=types)
    found = dict(paths)
    for name, path in paths.items():
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        found[f"{name}, saved"] = folder / f"{name}.saved.onnx"
        options.optimized_model_filepath = str(found[f"{name}, saved"])
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return found


@pytest.mark.usefixtures("without_torchvision")
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_optimized_and_quantized_files(kind: str, tmp_path: Path) -> None:
    """Each is one model for all sizes, with attention as one operator."""
    used: set[str] = set()
    for name, path in versions(kind, tmp_path).items():
        used.update(node.op_type for node in onnx.load(path).graph.node if node.domain == "com.microsoft")
        made = tilewright.compile(path, threads=1, dynamic="symbolic")
        kinds = [node.op.name for kernel in made.compiled.kernels for group in kernel.groups for node in group.nodes]
        assert kinds.count("BlockAttention") >= 1, name
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        for batch, length in ((2, 16), (1, 7)):
            feeds = feeds_of(kind, batch, length)
            (expected,) = session.run(None, feeds)
            (found,) = made.run(None, feeds)
            assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max(), name
    wanted = {"SkipLayerNormalization", "DynamicQuantizeMatMul", "FusedMatMul"}
    more = {"Attention", "QAttention", "EmbedLayerNormalization", "QEmbedLayerNormalization", "BiasGelu"}
    assert used >= wanted | (more if kind == "bert" else {"FastGelu"})
