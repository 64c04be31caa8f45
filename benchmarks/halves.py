"""The zoo's networks as models in float16 or bfloat16: Tilewright beside peers, and beside itself in float32.

`python -m benchmarks.halves [--types f16,bf16] [--networks bert_base,minilm,resnet50] [--lock PATH]` prints a table.
Weights and all operators of a converted model have the narrow type; its inputs and outputs stay float32, behind a Cast.
All are timed in turns, in processes of their own, on one thread. Errors are those of the first sample, in the Euclidean
norm, from the float32 network with the same rounded weights, by ONNX Runtime without optimizations.
"""

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from .contest import Outcome, Terms, run_in_turns, write_feeds
from .harness import Plan
from .networks import ZOO
from .options import ROUNDS, names
from .processes import Spec
from .zoo.samples import Sample, load_samples

TYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
PEERS = {"f16": ("tilewright", "onnxruntime", "openvino"), "bf16": ("tilewright", "openvino_bf16")}
"""ONNX Runtime has no operators for bfloat16."""
FLOAT32 = "tilewright, float32"


def converted(model: onnx.ModelProto, dtype: np.dtype) -> onnx.ModelProto:
    """`model` with `dtype` in place of float32, but for its inputs and outputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, code = made.graph, helper.np_dtype_to_tensor_dtype(dtype)
    del graph.value_info[:]
    for tensor in _tensors(graph):
        tensor.CopyFrom(numpy_helper.from_array(_rounded(numpy_helper.to_array(tensor), dtype), tensor.name))
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = code
    constants = {tensor.name for tensor in graph.initializer}
    inside = {
        v.name: f"{v.name}.narrow" for v in (*graph.input, *graph.output) if _is_float(v) and v.name not in constants
    }
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [inside.get(name, name) for name in values]
    casts = [helper.make_node("Cast", [v.name], [inside[v.name]], to=code) for v in graph.input if v.name in inside]
    after = [_widening(v.name, inside[v.name]) for v in graph.output if v.name in inside]
    nodes = [*casts, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    return made


def with_rounded_weights(model: onnx.ModelProto, dtype: np.dtype) -> onnx.ModelProto:
    """`model`, in float32, with the numbers of `dtype` for its constants."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in _tensors(made.graph):
        narrow = _rounded(numpy_helper.to_array(tensor), dtype)
        tensor.CopyFrom(numpy_helper.from_array(narrow.astype(np.float32), tensor.name))
    return made


def _widening(output: str, narrow: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [narrow], [output], to=TensorProto.FLOAT)


def _tensors(graph: onnx.GraphProto) -> Iterable[TensorProto]:
    """The constants in float32."""
    attributes = (attribute for node in graph.node for attribute in node.attribute if attribute.HasField("t"))
    every = (*graph.initializer, *(attribute.t for attribute in attributes))
    return [tensor for tensor in every if tensor.data_type == TensorProto.FLOAT]


def _rounded(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """In `dtype`, with its largest number for larger ones: masks add the least number of float32."""
    most = float(ml_dtypes.finfo(dtype).max)
    return np.clip(array, -most, most).astype(dtype)


def _is_float(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type == TensorProto.FLOAT


def exact(model: onnx.ModelProto, sample: Sample) -> Sample:
    """`sample` with the outputs of `model`, in the order of the outputs."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, dict(sample.inputs))
    outputs = {o.name: np.asarray(y, np.float64) for o, y in zip(session.get_outputs(), results, strict=True)}
    return Sample(sample.inputs, outputs)


def measured(name: str, kind: str, terms: Terms, zoo: Path) -> Outcome:
    """A network of the zoo, converted: the peers, and Tilewright on the network in float32."""
    with tempfile.TemporaryDirectory() as folder:
        model, dtype = onnx.load(zoo / f"{name}.onnx"), TYPES[kind]
        path = Path(folder) / f"{name}-{kind}.onnx"
        onnx.save(converted(model, dtype), path)
        samples = [exact(with_rounded_weights(model, dtype), load_samples(zoo / f"{name}.npz")[0])]
        feeds = write_feeds(samples, Path(folder))

        def spec(peer: str, factory: str, file: Path) -> Spec:
            return Spec(peer, f"benchmarks.candidates:{factory}", {"model": str(file), "feeds": str(feeds[0])}, 1)

        specs = [spec(peer, peer, path) for peer in PEERS[kind]]
        specs.append(spec(FLOAT32, "tilewright", zoo / f"{name}.onnx"))
        return run_in_turns(specs, samples, feeds, terms)


def rows(name: str, kind: str, outcome: Outcome) -> list[str]:
    """A row for each peer: its time relative to Tilewright's on the narrow model."""
    own = outcome.samples["tilewright"].median if "tilewright" in outcome.samples else float("nan")
    lines = []
    for peer in (*PEERS[kind], FLOAT32):
        if peer in outcome.samples:
            ratio = f"{outcome.samples[peer].median / own:.2f} | {outcome.errors[peer].norm:.1e}"
        else:
            ratio = f"- | {outcome.failures[peer][:60]}"
        lines.append(f"| {name} | {kind} | {peer} | {ratio} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", type=names, default=list(TYPES), help="of f16, bf16")
    parser.add_argument("--networks", type=names, default=["bert_base", "minilm", "resnet50"])
    parser.add_argument("--zoo", type=Path, default=ZOO, help="folder of the zoo, default %(default)s")
    parser.add_argument("--seconds", type=float, default=4.0, help="of timing for each, default %(default)s")
    parser.add_argument("--lock", type=Path, help="hold an exclusive lock on this file while timing")
    options = parser.parse_args(arguments)
    slot = options.seconds / ROUNDS
    terms = Terms(Plan(ROUNDS, slot, warm_up=slot / 4), lock=options.lock)
    print("| network | model in | by | time / Tilewright's | error |\n|---|---|---|---:|---:|")
    for name in options.networks:
        for kind in options.types:
            print("\n".join(rows(name, kind, measured(name, kind, terms, options.zoo))), flush=True)


if __name__ == "__main__":
    main()
